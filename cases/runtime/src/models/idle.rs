//! No core sleeps beside work: a lost wake-up is a deadlock here, since under loom no sleep times out.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::idle::Idle;
use crate::queue::Queue;

struct Shared {
    idle: Idle,
    queue: Queue,
}

impl Shared {
    fn new(cores: usize) -> Arc<Self> {
        Arc::new(Self {
            idle: Idle::new(cores),
            queue: Queue::new(2),
        })
    }

    fn offer(&self, ticket: u64) {
        assert!(self.queue.push(ticket));
        self.idle.wake_one();
    }

    /// A core that wants one ticket.
    fn work(&self, core: usize) -> u64 {
        self.idle.enter(core);
        loop {
            if let Some(ticket) = self.queue.pop() {
                return ticket;
            }
            self.idle.sleep(core, Duration::MAX, || self.queue.len() > 0);
            // A ticket counts before it can be taken: until its push ends, a core looks again and again.
            thread::yield_now();
        }
    }
}

#[test]
fn a_sleeping_core_is_woken_for_each_ticket() {
    super::check(|| {
        let shared = Shared::new(1);
        let core = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || [shared.work(0), shared.work(0)])
        };
        shared.offer(1);
        shared.offer(2);
        assert_eq!(core.join().unwrap(), [1, 2]);
    });
}

/// A count stands for the queue, whose half-made pushes let two cores look for ever in turns.
#[test]
fn two_cores_share_two_tickets() {
    super::check(|| {
        let shared = Arc::new((Idle::new(2), AtomicUsize::new(0)));
        let cores: Vec<_> = (0..2)
            .map(|core| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (idle, tickets) = &*shared;
                    idle.enter(core);
                    let take = |tickets: usize| tickets.checked_sub(1);
                    while tickets.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_err() {
                        idle.sleep(core, Duration::MAX, || tickets.load(Ordering::Acquire) > 0);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            shared.1.fetch_add(1, Ordering::Release);
            shared.0.wake_one();
        }
        for core in cores {
            core.join().unwrap();
        }
    });
}

/// The work of each ticket needs the other's to run at the same time, as blocks that signal each other do.
#[test]
fn two_tickets_reach_two_cores() {
    super::check_bounded(2, || {
        let shared = Arc::new((Idle::new(2), AtomicUsize::new(0), AtomicUsize::new(0)));
        let cores: Vec<_> = (0..2)
            .map(|core| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (idle, tickets, taken) = &*shared;
                    idle.enter(core);
                    let take = |tickets: usize| tickets.checked_sub(1);
                    while tickets.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).is_err() {
                        idle.sleep(core, Duration::MAX, || tickets.load(Ordering::Acquire) > 0);
                    }
                    taken.fetch_add(1, Ordering::AcqRel);
                    while taken.load(Ordering::Acquire) < 2 {
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            shared.1.fetch_add(1, Ordering::Release);
            shared.0.wake_one();
        }
        for core in cores {
            core.join().unwrap();
        }
    });
}
