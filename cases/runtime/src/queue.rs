//! The ready queue: a bounded queue that any thread may push to and pop from.
//!
//! Each cell has a turn counter that says whose move it is (D. Vyukov's bounded queue). Values are
//! task numbers in atomics, so the algorithm needs no unsafe code.

use crate::segments::Segments;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The turn is stored relative to the cell's index, so that zero is the right start.
#[derive(Debug)]
struct Cell {
    turn: AtomicUsize,
    value: AtomicU64,
}

impl Default for Cell {
    fn default() -> Self {
        Self {
            turn: AtomicUsize::new(0),
            value: AtomicU64::new(0),
        }
    }
}

/// Keeps the two ends on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
struct End(AtomicUsize);

/// A first-in, first-out queue of numbers.
#[derive(Debug)]
pub(crate) struct Queue {
    cells: Segments<Cell>,
    mask: usize,
    tail: End,
    head: End,
}

impl Queue {
    /// Room for at least `capacity` numbers.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(2).next_power_of_two();
        Self {
            cells: Segments::new(capacity),
            mask: capacity - 1,
            tail: End(AtomicUsize::new(0)),
            head: End(AtomicUsize::new(0)),
        }
    }

    /// Appends `value`; `false` when the queue is full.
    pub(crate) fn push(&self, value: u64) -> bool {
        let mut at = self.tail.0.load(Ordering::Relaxed);
        loop {
            let index = at & self.mask;
            let cell = self.cells.get(index);
            let turn = cell.turn.load(Ordering::Acquire).wrapping_add(index);
            if turn == at {
                match self
                    .tail
                    .0
                    .compare_exchange_weak(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed)
                {
                    Ok(_) => {
                        cell.value.store(value, Ordering::Relaxed);
                        cell.turn
                            .store(at.wrapping_add(1).wrapping_sub(index), Ordering::Release);
                        return true;
                    }
                    Err(now) => at = now,
                }
            } else if (turn.wrapping_sub(at) as isize) < 0 {
                return false;
            } else {
                at = self.tail.0.load(Ordering::Relaxed);
            }
        }
    }

    /// Takes the oldest value.
    pub(crate) fn pop(&self) -> Option<u64> {
        let mut at = self.head.0.load(Ordering::Relaxed);
        loop {
            let index = at & self.mask;
            let cell = self.cells.get(index);
            let turn = cell.turn.load(Ordering::Acquire).wrapping_add(index);
            let full = at.wrapping_add(1);
            if turn == full {
                match self
                    .head
                    .0
                    .compare_exchange_weak(at, full, Ordering::Relaxed, Ordering::Relaxed)
                {
                    Ok(_) => {
                        let value = cell.value.load(Ordering::Relaxed);
                        let next = at.wrapping_add(self.mask).wrapping_add(1);
                        cell.turn.store(next.wrapping_sub(index), Ordering::Release);
                        return Some(value);
                    }
                    Err(now) => at = now,
                }
            } else if (turn.wrapping_sub(full) as isize) < 0 {
                return None;
            } else {
                at = self.head.0.load(Ordering::Relaxed);
            }
        }
    }

    /// How many values wait, as far as one look can tell.
    pub(crate) fn len(&self) -> usize {
        let head = self.head.0.load(Ordering::Relaxed);
        self.tail.0.load(Ordering::Relaxed).saturating_sub(head)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn order_capacity_and_wrap() {
        let queue = Queue::new(4);
        for round in 0..5u64 {
            assert!((0..4).all(|i| queue.push(round * 10 + i)));
            assert!(!queue.push(99));
            assert_eq!(queue.len(), 4);
            let popped: Vec<u64> = std::iter::from_fn(|| queue.pop()).collect();
            assert_eq!(popped, [0, 1, 2, 3].map(|i| round * 10 + i));
        }
    }

    #[test]
    fn every_value_arrives_once_between_threads() {
        let queue = Queue::new(64);
        let total = std::sync::atomic::AtomicU64::new(0);
        let left = std::sync::atomic::AtomicU64::new(20_000);
        std::thread::scope(|scope| {
            for half in 0..2u64 {
                let queue = &queue;
                scope.spawn(move || {
                    for value in (half * 10_000 + 1)..=(half * 10_000 + 10_000) {
                        while !queue.push(value) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    while left.load(Ordering::Relaxed) > 0 {
                        match queue.pop() {
                            Some(value) => {
                                total.fetch_add(value, Ordering::Relaxed);
                                left.fetch_sub(1, Ordering::Relaxed);
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 20_000 * 20_001 / 2);
    }
}
