//! Signals: counters by which the ranks of a program tell each other how far they are.
//!
//! A writer changes the counter, then looks for waiters; a waiter registers, then looks at the
//! counter. A sequentially consistent fence stands between the two steps on both sides, so at least
//! one of them sees the other, and no wake-up is lost. A writer that finds no waiter touches no lock.

use std::sync::Arc;
use std::time::Duration;

use crate::halt::{Halted, StopFlag};
use crate::sync::atomic::{AtomicI32, AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex};

/// What a waiter compares a signal with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cmp {
    /// Wait until the signal is at least the value.
    Ge,
    /// Wait until the signal equals the value.
    Eq,
}

impl Cmp {
    fn holds(self, signal: i32, value: i32) -> bool {
        match self {
            Self::Ge => signal >= value,
            Self::Eq => signal == value,
        }
    }
}

/// A row of counters, zero at first, shared by all clones.
///
/// Changing a signal releases, reading it acquires: who has seen a value sees all that was done
/// before it was set.
#[derive(Clone, Debug)]
pub struct Signals {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    cells: Box<[AtomicI32]>,
    /// Number of threads in `wait` that may sleep.
    waiting: AtomicUsize,
    /// Held by a waiter from its look at the counter until it sleeps, so that no wake-up falls between.
    sleep: Mutex<()>,
    changed: Condvar,
}

/// How often a waiter gives way before it sleeps: a peer that runs at the same time is mostly
/// nearly there, and waking a thread takes longer than a few turns of the scheduler.
#[cfg(not(loom))]
const TURNS: usize = 32;

/// How long a sleeping waiter may miss that its run is stopping; nobody wakes it for that. Under
/// loom a wait has no time-out, so there a lost wake-up is a deadlock.
const STOP_POLL: Duration = Duration::from_millis(2);

const UNPOISONED: &str = "nothing panics while it holds the sleep lock";

impl Signals {
    /// `count` signals, all zero.
    pub fn new(count: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                cells: (0..count).map(|_| AtomicI32::new(0)).collect(),
                waiting: AtomicUsize::new(0),
                sleep: Mutex::new(()),
                changed: Condvar::new(),
            }),
        }
    }

    /// Number of signals.
    pub fn len(&self) -> usize {
        self.shared.cells.len()
    }

    /// Whether there is no signal.
    pub fn is_empty(&self) -> bool {
        self.shared.cells.is_empty()
    }

    /// Adds `value` to signal `index`, wrapping around. Panics when there is no such signal.
    #[track_caller]
    pub fn add(&self, index: usize, value: i32) {
        self.cell(index).fetch_add(value, Ordering::Release);
        self.wake();
    }

    /// Sets signal `index`. Panics when there is no such signal.
    #[track_caller]
    pub fn set(&self, index: usize, value: i32) {
        self.cell(index).store(value, Ordering::Release);
        self.wake();
    }

    /// Value of signal `index`. Panics when there is no such signal.
    #[track_caller]
    pub fn get(&self, index: usize) -> i32 {
        self.cell(index).load(Ordering::Acquire)
    }

    /// Blocks until the comparison holds, or `stop` is raised.
    #[track_caller]
    pub(crate) fn wait(&self, index: usize, cmp: Cmp, value: i32, stop: &StopFlag) -> Result<(), Halted> {
        let cell = self.cell(index);
        let holds = || cmp.holds(cell.load(Ordering::Acquire), value);
        #[cfg(not(loom))]
        for _ in 0..TURNS {
            if holds() {
                return Ok(());
            }
            if stop.is_raised() {
                return Err(Halted);
            }
            std::thread::yield_now();
        }
        let Shared {
            waiting,
            sleep,
            changed,
            ..
        } = &*self.shared;
        waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut guard = sleep.lock().expect(UNPOISONED);
        let end = loop {
            if holds() {
                break Ok(());
            }
            if stop.is_raised() {
                break Err(Halted);
            }
            guard = changed.wait_timeout(guard, STOP_POLL).expect(UNPOISONED).0;
        };
        drop(guard);
        waiting.fetch_sub(1, Ordering::Relaxed);
        end
    }

    #[track_caller]
    fn cell(&self, index: usize) -> &AtomicI32 {
        let cells = &self.shared.cells;
        cells
            .get(index)
            .unwrap_or_else(|| panic!("signal {index} of {}", cells.len()))
    }

    fn wake(&self) {
        let Shared {
            waiting,
            sleep,
            changed,
            ..
        } = &*self.shared;
        fence(Ordering::SeqCst);
        if waiting.load(Ordering::Relaxed) > 0 {
            // A waiter that has looked at the counter but does not sleep yet holds the lock.
            drop(sleep.lock().expect(UNPOISONED));
            changed.notify_all();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_wait_ends_when_the_peer_has_counted_far_enough() {
        let (signals, stop) = (Signals::new(2), StopFlag::new());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| signals.wait(1, Cmp::Ge, 1000, &stop));
            for _ in 0..1000 {
                signals.add(1, 1);
            }
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
        assert_eq!((signals.get(0), signals.get(1)), (0, 1000));
    }

    #[test]
    fn peers_in_lockstep_wake_each_other() {
        let (signals, stop) = (Signals::new(2), StopFlag::new());
        thread::scope(|scope| {
            for rank in 0..2 {
                let (signals, stop) = (&signals, &stop);
                scope.spawn(move || {
                    for step in 1..=2000 {
                        signals.set(rank, step);
                        signals.wait(1 - rank, Cmp::Ge, step, stop).unwrap();
                    }
                });
            }
        });
        assert_eq!((signals.get(0), signals.get(1)), (2000, 2000));
    }

    #[test]
    fn a_stop_ends_a_wait_that_nobody_will_satisfy() {
        let (signals, stop) = (Signals::new(1), StopFlag::new());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| signals.wait(0, Cmp::Eq, 1, &stop));
            stop.raise();
            assert_eq!(waiter.join().unwrap(), Err(Halted));
        });
    }

    #[test]
    #[should_panic(expected = "signal 3 of 3")]
    fn a_signal_that_is_not_there_panics() {
        Signals::new(3).add(3, 1);
    }
}
