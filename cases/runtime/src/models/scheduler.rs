//! Blocks, gangs and whole cores, over the real scheduler with the smallest windows.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::config::{RingLimits, RuntimeConfig};
use crate::ids::{RingId, TaskId};
use crate::memory::{Home, Memory};
use crate::shared::Shared;
use crate::slot::Slot;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::worker;

/// Blocks of a task are taken once each while tickets of the slot's former occupant are about.
#[test]
fn a_stale_ticket_takes_no_block_of_the_next_occupant() {
    super::check(|| {
        let slot = Arc::new(Slot::default());
        slot.begin(3, 2);
        slot.life.release_scope();
        // Both cores hold a ticket of task 3, and try it once more when they are done.
        let core = |slot: &Slot| {
            let mut taken = 0;
            while let Some((block, _)) = slot.take_block(3) {
                taken |= 1 << block;
                if slot.finish_block() {
                    slot.fanout.close();
                    slot.life.complete();
                }
            }
            taken
        };
        let other = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || core(&slot))
        };
        let program = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                let reused = slot.life.load().consumed();
                if reused {
                    slot.begin(7, 1);
                }
                reused
            })
        };
        let taken = core(&slot);
        assert_eq!(taken + other.join().unwrap(), 0b11, "each block once");
        if program.join().unwrap() {
            assert_eq!(slot.take_block(7), Some((0, false)));
        }
    });
}

fn shared(cores: usize) -> Arc<Shared> {
    let limits = RingLimits::new(1024, 4, 4).unwrap();
    let memories = RingId::ALL.map(|ring| Arc::new(Memory::map(1024, Home::Ring(ring)).unwrap()));
    let config = RuntimeConfig::new([limits; 4], NonZeroUsize::new(cores).unwrap());
    Arc::new(Shared::new(config, memories))
}

/// Puts task `local` of ring 0 with `blocks` blocks in its slot.
fn begin(shared: &Shared, local: u32, blocks: u32, together: bool, body: impl Fn() + Send + Sync + 'static) -> TaskId {
    let task = TaskId::new(RingId::ALL[0], local);
    let slot = shared.slot(task);
    slot.begin(local, blocks);
    let mut work = slot.work.write().unwrap();
    work.together = together;
    work.body = Some(Box::new(move |_| body()));
    shared.program.submitted.add_one();
    task
}

/// Starts the program and the cores; the program ends the cores when all its tasks have completed.
fn run(shared: &Arc<Shared>, cores: usize, submit: impl FnOnce(&Shared) + 'static) {
    let program = {
        let shared = Arc::clone(shared);
        // Not on the model's main thread: loom can't unpark a thread that joins others.
        thread::spawn(move || {
            shared.program_draining.enter(0);
            shared.wake();
            submit(&shared);
            while !shared.all_completed() {
                shared
                    .program_draining
                    .sleep(0, Duration::MAX, || shared.all_completed());
            }
            shared.shutdown.store(true, Ordering::Release);
            shared.cores_idle.wake_all();
        })
    };
    for core in 0..cores - 1 {
        let shared = Arc::clone(shared);
        thread::spawn(move || worker::work(&shared, core));
    }
    worker::work(shared, cores - 1);
    program.join().unwrap();
}

/// From the hand-off over the block to the drain and the end of the core, nobody sleeps for ever.
#[test]
fn a_task_goes_to_a_sleeping_core_and_its_end_to_the_program() {
    super::check(|| {
        let shared = shared(1);
        let output = Arc::new(AtomicU32::new(0));
        let written = Arc::clone(&output);
        run(&shared, 1, |shared| {
            let task = begin(shared, 0, 1, false, move || written.store(1, Ordering::Relaxed));
            shared.ready(task, &shared.program, &mut Vec::new());
        });
        assert_eq!(output.load(Ordering::Relaxed), 1);
    });
}

/// Two cores look for work until all is done; nobody sleeps, so the models stay small.
fn look_until_done(shared: &Arc<Shared>) {
    let core = |shared: &Shared, core: usize| {
        let mut ripple = Vec::new();
        while !shared.all_completed() {
            worker::look(shared, core, &mut ripple);
            thread::yield_now();
        }
    };
    let other = {
        let shared = Arc::clone(shared);
        thread::spawn(move || core(&shared, 1))
    };
    core(shared, 0);
    other.join().unwrap();
}

/// Two tasks that want both cores each: no core may wait in one while the other waits in the second.
#[test]
fn gangs_gather_one_after_the_other() {
    super::check_bounded(2, || {
        let shared = shared(2);
        let ran = Arc::new(AtomicU32::new(0));
        for local in 0..2 {
            let running = Arc::clone(&ran);
            let task = begin(&shared, local, 2, true, move || {
                running.fetch_add(1, Ordering::Relaxed);
            });
            shared.ready(task, &shared.program, &mut Vec::new());
        }
        look_until_done(&shared);
        assert_eq!(ran.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn cores_share_the_blocks_of_a_task() {
    super::check_bounded(2, || {
        let shared = shared(2);
        let ran = Arc::new(AtomicU32::new(0));
        let running = Arc::clone(&ran);
        let task = begin(&shared, 0, 2, false, move || {
            running.fetch_add(1, Ordering::Relaxed);
        });
        shared.ready(task, &shared.program, &mut Vec::new());
        look_until_done(&shared);
        assert_eq!(ran.load(Ordering::Relaxed), 2);
        assert!(
            shared.slot(task).life.release_scope(),
            "completed, and nobody else holds it"
        );
    });
}

/// The ticket that the last core of a task gave back outlives the task, and the run. The next run
/// has tasks of the same name.
#[test]
fn a_stale_ticket_starts_nothing_in_the_next_run() {
    super::check(|| {
        let shared = shared(1);
        let (linked, early) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let body = {
            let (linked, early) = (Arc::clone(&linked), Arc::clone(&early));
            move || {
                if !linked.load(Ordering::Relaxed) {
                    early.store(true, Ordering::Relaxed);
                }
            }
        };
        run(&shared, 1, move |shared| {
            let task = begin(shared, 0, 2, false, body.clone());
            shared.ready(task, &shared.program, &mut Vec::new());
            while !shared.all_completed() {
                shared
                    .program_draining
                    .sleep(0, Duration::MAX, || shared.all_completed());
            }
            assert!(shared.rest(Duration::MAX), "no block hangs");
            shared.reset();
            linked.store(false, Ordering::Relaxed);
            shared.wake();
            let task = begin(shared, 0, 1, false, body);
            linked.store(true, Ordering::Relaxed);
            shared.ready(task, &shared.program, &mut Vec::new());
        });
        assert!(!early.load(Ordering::Relaxed));
    });
}

#[test]
fn no_core_touches_anything_while_the_cores_rest() {
    super::check(|| {
        let shared = Arc::new((shared(1), UnsafeCell::new(0)));
        shared.0.wake();
        let core = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (shared, slots) = &*shared;
                for _ in 0..2 {
                    if shared.begin_look(&shared.cores[0]) {
                        slots.with_mut(|_| ());
                        shared.cores[0].end_look();
                    }
                }
            })
        };
        assert!(shared.0.rest(Duration::MAX));
        shared.1.with_mut(|_| ());
        shared.0.wake();
        core.join().unwrap();
    });
}
