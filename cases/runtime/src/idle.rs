//! Threads that have nothing to do sleep here, and whoever makes work wakes one.
//!
//! A sleeper raises its bit, looks for work once more, and only then parks. A waker publishes work,
//! then looks at the bits. Both have a sequentially consistent fence in between, so at least one of
//! the two sees the other; the waker that takes the bit down owes the one wake-up.

use std::time::Duration;

use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, park_timeout};

/// A set of threads that may sleep, numbered from 0.
#[derive(Debug)]
pub(crate) struct Idle {
    asleep: Box<[AtomicU64]>,
    threads: Box<[Mutex<Option<Thread>>]>,
}

impl Idle {
    pub(crate) fn new(members: usize) -> Self {
        Self {
            asleep: (0..members.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            threads: (0..members).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// The calling thread is member `member` from now on.
    pub(crate) fn enter(&self, member: usize) {
        *self.threads[member].lock().expect("nothing panics under this lock") = Some(thread::current());
    }

    /// Sleeps until woken or `limit` has passed, unless `ready` says that there is something to do.
    pub(crate) fn sleep(&self, member: usize, limit: Duration, ready: impl FnOnce() -> bool) {
        let (word, bit) = (&self.asleep[member / 64], 1 << (member % 64));
        word.fetch_or(bit, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !ready() {
            park_timeout(limit);
        }
        // A waker that took the bit meanwhile leaves a token behind; the next park returns at once
        // because of it, which costs one more look for work.
        word.fetch_and(!bit, Ordering::SeqCst);
    }

    /// Wakes one sleeper, if there is one. The work must have been published before.
    pub(crate) fn wake_one(&self) {
        fence(Ordering::SeqCst);
        for (index, word) in self.asleep.iter().enumerate() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != 0 {
                let bit = 1 << seen.trailing_zeros();
                let before = word.fetch_and(!bit, Ordering::SeqCst);
                if before & bit != 0 {
                    self.unpark(index * 64 + seen.trailing_zeros() as usize);
                    return;
                }
                seen = before & !bit;
            }
        }
    }

    /// Wakes all sleepers.
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        for (index, word) in self.asleep.iter().enumerate() {
            let mut seen = word.swap(0, Ordering::SeqCst);
            while seen != 0 {
                self.unpark(index * 64 + seen.trailing_zeros() as usize);
                seen &= seen - 1;
            }
        }
    }

    fn unpark(&self, member: usize) {
        if let Some(thread) = &*self.threads[member].lock().expect("nothing panics under this lock") {
            thread.unpark();
        }
    }
}
