//! Where in a ring heap a task's outputs lie.
//!
//! Positions depend on the sequence of requests alone, never on timing: the block goes to `top` if
//! the rest of the heap holds it, else to the start. Timing only decides *when* that becomes
//! possible. A block never straddles the end; the bytes skipped there are lost until the tail wraps.

use std::cmp::Ordering;

/// Each output is padded to a multiple of this many bytes.
const OUTPUT_ALIGN: u64 = 1024;
/// A request is rounded up to a multiple of this many bytes.
const REQUEST_ALIGN: u64 = 64;

/// Size of an output in the heap, in bytes; `None` when it does not fit 64 bits.
pub(crate) fn padded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(OUTPUT_ALIGN)
}

/// The bytes `start..end` of the heap. Of an empty block both are the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Allocation state of one ring heap, in bytes. First in, first out.
#[derive(Clone, Debug)]
pub(crate) struct Heap {
    size: u64,
    top: u64,
    tail: u64,
    /// First task that was placed after the last rebase. Ends of earlier tasks are positions of the
    /// old sequence and must not move the tail.
    anchor: Option<u32>,
    high_water: u64,
}

impl Heap {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            top: 0,
            tail: 0,
            anchor: None,
            high_water: 0,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn top(&self) -> u64 {
        self.top
    }

    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// Most bytes that were ever in use at a time.
    pub(crate) fn high_water(&self) -> u64 {
        self.high_water
    }

    /// Bytes in use, counting those skipped at the end. `top == tail` reads as empty: by the strict
    /// guards only a linear fill ever uses every byte, and then `top` is the size.
    pub(crate) fn used(&self) -> u64 {
        if self.top >= self.tail {
            self.top - self.tail
        } else {
            self.size - self.tail + self.top
        }
    }

    /// The largest gap: all of an empty heap, since it can start over.
    pub(crate) fn available(&self) -> u64 {
        match self.top.cmp(&self.tail) {
            Ordering::Equal => self.size,
            Ordering::Greater => (self.size - self.top).max(self.tail),
            Ordering::Less => self.tail - self.top,
        }
    }

    /// Places `request` bytes for task `task`, if there is room.
    pub(crate) fn place(&mut self, request: u64, task: u32) -> Option<Block> {
        if request == 0 {
            return Some(Block {
                start: self.top,
                end: self.top,
            });
        }
        let request = request.checked_next_multiple_of(REQUEST_ALIGN)?;
        let start = if self.top >= self.tail {
            if self.size - self.top >= request {
                self.top
            } else if self.tail > request {
                // Strictly: a top that caught the tail from behind would read as empty.
                0
            } else if self.top == self.tail && request <= self.size {
                // Nothing is alive, wherever the two met: start over.
                self.tail = 0;
                self.anchor = Some(task);
                0
            } else {
                return None;
            }
        } else if self.tail - self.top > request {
            self.top
        } else {
            return None;
        };
        self.top = start + request;
        self.high_water = self.high_water.max(self.used());
        Some(Block { start, end: self.top })
    }

    /// Frees everything up to `end`, the end of the block of task `last_alive - 1`.
    pub(crate) fn reclaim(&mut self, last_alive: u32, end: u64) {
        if self.anchor.is_some_and(|anchor| last_alive <= anchor) {
            return;
        }
        self.anchor = None;
        self.tail = end;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_padded_separately() {
        assert_eq!(
            [0, 1, 1024, 1025].map(padded),
            [Some(0), Some(1024), Some(1024), Some(2048)]
        );
        assert_eq!(padded(u64::MAX), None);
    }

    #[test]
    fn a_linear_fill_may_use_every_byte() {
        let mut heap = Heap::new(4096);
        assert!(heap.place(1024, 0).is_some() && heap.place(3072, 1).is_some());
        assert_eq!((heap.used(), heap.high_water(), heap.available()), (4096, 4096, 0));
        assert_eq!(heap.place(64, 2), None);
    }

    #[test]
    fn wrapping_never_catches_the_tail_issue_544() {
        let mut heap = Heap::new(4096);
        heap.place(2048, 0).unwrap();
        heap.place(2048, 1).unwrap();
        heap.reclaim(1, 2048);
        assert_eq!(heap.place(2048, 2), None, "top would equal tail");
        assert_eq!(heap.place(1024, 2), Some(Block { start: 0, end: 1024 }));
        assert_eq!(heap.place(1024, 3), None, "the gap is guarded strictly too");
        assert!(heap.place(960, 3).is_some());
    }

    #[test]
    fn an_empty_ring_starts_over_issue_1469() {
        let mut heap = Heap::new(4096);
        heap.place(3072, 0).unwrap();
        heap.reclaim(1, 3072);
        // Neither the 1024 bytes behind the top nor the 3072 before it hold the request.
        assert_eq!(heap.place(4096, 1), Some(Block { start: 0, end: 4096 }));
        assert_eq!((heap.tail(), heap.used()), (0, 4096));
    }

    #[test]
    fn old_ends_do_not_move_the_tail_after_a_rebase_issue_1514() {
        let mut heap = Heap::new(4096);
        heap.place(3072, 0).unwrap();
        heap.reclaim(1, 3072);
        heap.place(3584, 1).unwrap();
        heap.reclaim(1, 3072);
        assert_eq!(heap.tail(), 0, "task 0 ended in the old sequence");
        heap.reclaim(2, 3584);
        assert_eq!((heap.tail(), heap.used()), (3584, 0));
    }

    #[test]
    fn a_task_without_bytes_ends_at_the_top() {
        let mut heap = Heap::new(4096);
        heap.place(1024, 0).unwrap();
        assert_eq!(heap.place(0, 1), Some(Block { start: 1024, end: 1024 }));
    }
}
