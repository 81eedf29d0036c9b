//! Who waits for a task: a list of dependency-pool entries that ends when the task completes.
//!
//! The orchestrator pushes, the thread that completes the task closes. A push after the close is
//! refused, which tells the orchestrator that there is nothing to wait for. So each consumer is
//! either on the list that the closer walks, or knows that it isn't.

use crate::sync::atomic::{AtomicU64, Ordering};

const EMPTY: u64 = 0;
const CLOSED: u64 = u64::MAX;

/// Names an entry of a dependency pool: ring and index. Never [`EMPTY`] nor [`CLOSED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRef(u64);

impl EntryRef {
    pub(crate) fn new(ring: usize, index: usize) -> Self {
        Self(((ring as u64) << 32 | index as u64) + 1)
    }

    pub(crate) fn ring(self) -> usize {
        ((self.0 - 1) >> 32) as usize
    }

    pub(crate) fn index(self) -> usize {
        (self.0 - 1) as u32 as usize
    }

    fn from_link(link: u64) -> Option<Self> {
        (link != EMPTY && link != CLOSED).then_some(Self(link))
    }
}

/// One waiting consumer.
#[derive(Debug)]
pub(crate) struct Entry {
    consumer: AtomicU64,
    next: AtomicU64,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            consumer: AtomicU64::new(0),
            next: AtomicU64::new(EMPTY),
        }
    }
}

impl Entry {
    /// The consumer, and the entry behind this one. After the consumer was told, the entry may be
    /// reused, so read both first.
    pub(crate) fn read(&self) -> (u64, Option<EntryRef>) {
        let next = self.next.load(Ordering::Relaxed);
        (self.consumer.load(Ordering::Relaxed), EntryRef::from_link(next))
    }
}

/// Head of the list.
#[derive(Debug)]
pub(crate) struct Fanout(AtomicU64);

impl Default for Fanout {
    fn default() -> Self {
        Self(AtomicU64::new(CLOSED))
    }
}

impl Fanout {
    /// Opens the list of a new occupant of the slot.
    pub(crate) fn begin(&self) {
        self.0.store(EMPTY, Ordering::Release);
    }

    /// Puts `entry`, which stands for `consumer`, on the list; `false` if the task has completed.
    pub(crate) fn push(&self, name: EntryRef, entry: &Entry, consumer: u64) -> bool {
        entry.consumer.store(consumer, Ordering::Relaxed);
        let mut head = self.0.load(Ordering::Acquire);
        while head != CLOSED {
            entry.next.store(head, Ordering::Relaxed);
            // Release: the closer must see what is in the entry.
            match self
                .0
                .compare_exchange_weak(head, name.0, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(now) => head = now,
            }
        }
        false
    }

    /// Ends the list and returns its first entry.
    pub(crate) fn close(&self) -> Option<EntryRef> {
        EntryRef::from_link(self.0.swap(CLOSED, Ordering::AcqRel))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_until_the_list_is_closed() {
        let entries = [Entry::default(), Entry::default(), Entry::default()];
        let fanout = Fanout::default();
        assert!(!fanout.push(EntryRef::new(0, 0), &entries[0], 7), "no occupant");
        fanout.begin();
        assert!(fanout.push(EntryRef::new(0, 0), &entries[0], 7));
        assert!(fanout.push(EntryRef::new(3, 1), &entries[1], 8));
        let first = fanout.close().expect("two entries");
        assert_eq!((first.ring(), first.index()), (3, 1));
        let (consumer, next) = entries[1].read();
        assert_eq!((consumer, next), (8, Some(EntryRef::new(0, 0))));
        assert!(!fanout.push(EntryRef::new(0, 2), &entries[2], 9));
    }
}
