//! Cores: threads that take blocks, run them, and complete tasks.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::block::Block;
use crate::faults::TaskFault;
use crate::ids::TaskId;
use crate::report::{Panicked, RunEnd};
use crate::shared::{Shared, Tally};
use crate::slot::UNPOISONED;
use crate::sync::atomic::Ordering;
use crate::sync::yield_now;

/// How often a core looks for work in a row before it begins to give way to other threads. On a
/// machine with fewer processors than threads, spinning takes time from whoever makes the work.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 64 };
/// How often it gives way before it sleeps.
const YIELDS: u32 = if cfg!(loom) { 2 } else { 16 };
/// A sleeping core is always woken for work; the limit only bounds the cost of a mistake.
const NAP: Duration = Duration::from_millis(100);

/// Body of the thread of core `core`.
pub(crate) fn work(shared: &Arc<Shared>, core: usize) {
    shared.cores_idle.enter(core);
    let tally = &shared.cores[core];
    let mut ripple = Vec::new();
    let mut looks = 0;
    while !shared.shutdown.load(Ordering::Acquire) {
        let found = shared.begin_look(tally) && {
            let found = look(shared, core, &mut ripple);
            tally.end_look();
            found
        };
        if found {
            looks = 0;
            continue;
        }
        looks += 1;
        if looks < LOOKS {
            std::hint::spin_loop();
        } else if looks < LOOKS + YIELDS {
            shared.program_draining.wake_one();
            yield_now();
        } else {
            shared.program_draining.wake_one();
            shared.cores_idle.sleep(core, NAP, || shared.work_waits());
            looks = 0;
        }
    }
}

/// Takes one ticket and serves it. Returns whether there was one.
pub(crate) fn look(shared: &Shared, core: usize, ripple: &mut Vec<TaskId>) -> bool {
    if shared.deaf.load(Ordering::Relaxed) {
        return false;
    }
    if let Some(ticket) = shared.gangs.gathering()
        && join(shared, TaskId::from_u64(ticket), core, ripple)
    {
        return true;
    }
    let Some(ticket) = shared.ready.pop() else {
        return false;
    };
    serve(shared, TaskId::from_u64(ticket), core, ripple);
    true
}

/// Runs blocks of `task` until none is left to take.
fn serve(shared: &Shared, task: TaskId, core: usize, ripple: &mut Vec<TaskId>) {
    let slot = shared.slot(task);
    let mut taken = slot.take_block(task.local());
    if let Some((_, true)) = taken {
        // The ticket goes back before the block runs, so that other cores can join.
        shared.offer(task);
    }
    while let Some((block, _)) = taken {
        if shared.stop.is_raised() {
            return;
        }
        let ended = run_block(shared, task, block, core);
        if !ended {
            return;
        }
        // Taken before this block is counted as done: until then the task can't complete, so the
        // slot is still its own.
        taken = slot.take_block(task.local());
        finish_block(shared, task, core, ripple);
    }
}

/// Takes part in a task whose blocks start together; `false` if all its blocks are taken.
fn join(shared: &Shared, task: TaskId, core: usize, ripple: &mut Vec<TaskId>) -> bool {
    let slot = shared.slot(task);
    let Some((block, more)) = slot.take_block(task.local()) else {
        return false;
    };
    if !more {
        shared.gangs.gathered();
    }
    slot.arrived.fetch_add(1, Ordering::AcqRel);
    while slot.arrived.load(Ordering::Acquire) < slot.blocks() {
        if shared.stop.is_raised() {
            return true;
        }
        yield_now();
    }
    if run_block(shared, task, block, core) {
        finish_block(shared, task, core, ripple);
    }
    true
}

/// Runs one block. Returns whether it ended without a panic.
fn run_block(shared: &Shared, task: TaskId, block: u32, core: usize) -> bool {
    let slot = shared.slot(task);
    let tally = &shared.cores[core];
    let work = slot.work.read().expect(UNPOISONED);
    let body = work.body.as_ref().expect("a task with blocks has a body");
    tally.blocks.add_one();
    tally.running.store(task.as_u64() + 1, Ordering::Release);
    let context = Block::new(
        work.name,
        block as usize,
        slot.blocks() as usize,
        core,
        &work.arguments,
        &shared.stop,
    );
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&context)));
    tally.running.store(0, Ordering::Release);
    tally.blocks_done.add_one();
    let Err(panic) = outcome else {
        return true;
    };
    shared.end(RunEnd::Panicked(Panicked {
        task,
        name: work.name,
        block: block as usize,
        message: message(panic.as_ref()),
    }));
    false
}

fn message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}

fn finish_block(shared: &Shared, task: TaskId, core: usize, ripple: &mut Vec<TaskId>) {
    if shared.slot(task).finish_block() {
        shared.complete(task, &shared.cores[core], ripple);
        shared.program_blocked.wake_one();
    }
}

impl Shared {
    /// Lets a core take a block of `task`.
    fn offer(&self, task: TaskId) {
        while !self.ready.push(task.as_u64()) {
            yield_now();
        }
        self.cores_idle.wake_one();
    }

    /// All producers of `task` have completed. Dependency-only tasks ripple on, others go to the cores.
    pub(crate) fn ready(&self, task: TaskId, by: &Tally, ripple: &mut Vec<TaskId>) {
        by.readied.add_one();
        let slot = self.slot(task);
        if slot.blocks() == 0 {
            ripple.push(task);
        } else if slot.work.read().expect(UNPOISONED).together {
            self.gangs.push(task.as_u64());
            self.cores_idle.wake_all();
        } else {
            self.offer(task);
        }
    }

    /// Completes `task`, and all dependency-only tasks that this makes ready.
    ///
    /// `ripple` is scratch space, empty before and after.
    pub(crate) fn complete(&self, task: TaskId, by: &Tally, ripple: &mut Vec<TaskId>) {
        ripple.push(task);
        while let Some(task) = ripple.pop() {
            self.complete_one(task, by, ripple);
        }
    }

    fn complete_one(&self, task: TaskId, by: &Tally, ripple: &mut Vec<TaskId>) {
        let slot = self.slot(task);
        let fault = {
            let mut work = slot.work.write().expect(UNPOISONED);
            if work.fault == Some(TaskFault::LoseCompletion) {
                return;
            }
            // Before the task counts as complete: whoever sees it complete sees its producers released.
            for producer in work.producers.drain(..) {
                self.slot(TaskId::from_u64(producer)).life.release();
            }
            let fault = work.fault;
            work.clear();
            fault
        };
        let mut waiting = slot.fanout.close();
        // From here on the slot may get another occupant.
        slot.life.complete();
        by.completed.add_one();
        if fault == Some(TaskFault::KeepConsumersWaiting) {
            return;
        }
        while let Some(name) = waiting {
            let (consumer, next) = self.entry(name).read();
            let consumer = TaskId::from_u64(consumer);
            if self.slot(consumer).pending.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.ready(consumer, by, ripple);
            }
            waiting = next;
        }
    }
}
