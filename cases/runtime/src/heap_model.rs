//! The allocator against a model that knows no top and tail: a queue of blocks and the bytes that
//! each keeps from others, its own and those skipped before it.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::heap::{Block, Heap};

#[derive(Debug)]
struct Kept {
    skipped: u64,
    block: Block,
    era: u32,
}

#[derive(Debug)]
struct Model {
    size: u64,
    queue: VecDeque<Kept>,
    /// Where the youngest block ends.
    end: u64,
    /// Where the last retired block ended. That a heap's last byte is followed by its first is not
    /// seen there: with everything up to the last byte retired, the guard against it stays strict.
    freed: u64,
    /// How often the ring started over.
    era: u32,
}

impl Model {
    fn used(&self) -> u64 {
        self.queue
            .iter()
            .map(|kept| kept.skipped + kept.block.end - kept.block.start)
            .sum()
    }

    /// Where `request` bytes go, by the rule in words: behind the youngest block, or at the start.
    fn place(&mut self, request: u64) -> Option<Block> {
        let used = self.used();
        let (fits, linear) = (self.size - self.end >= request, self.freed <= self.end);
        let (start, skipped, room) = if request == 0 || fits && linear {
            (self.end, 0, true)
        } else if !linear {
            (self.end, 0, used + request < self.size)
        } else if used == 0 && self.end <= request {
            // Nothing is kept, and wrapping would not do: the ring starts over.
            if request <= self.size {
                (self.era, self.freed) = (self.era + 1, 0);
            }
            (0, 0, request <= self.size)
        } else {
            let skipped = self.size - self.end;
            (0, skipped, used + skipped + request < self.size)
        };
        room.then(|| {
            let block = Block {
                start,
                end: start + request,
            };
            self.end = block.end;
            let era = self.era;
            self.queue.push_back(Kept { skipped, block, era });
            block
        })
    }

    /// The oldest block is given back; returns where it ended.
    fn retire(&mut self) -> u64 {
        let Kept { block, era, .. } = self.queue.pop_front().expect("one entry per live task");
        if era == self.era {
            self.freed = block.end;
        }
        block.end
    }
}

proptest! {
    #[test]
    fn agrees_with_the_queue_model(
        size in 1024u64..20_000,
        steps in prop::collection::vec((0u64..9, 0u32..4), 1..400),
    ) {
        let mut heap = Heap::new(size);
        let mut model = Model { size, queue: VecDeque::new(), end: 0, freed: 0, era: 0 };
        let (mut next, mut last_alive) = (0u32, 0u32);
        for (kib, retire) in steps {
            let ours = heap.place(kib * 1024, next);
            prop_assert_eq!(ours, model.place(kib * 1024));
            if let Some(block) = ours {
                next += 1;
                prop_assert!(block.end <= size);
                let younger = model.queue.len() - 1;
                for kept in model.queue.iter().take(younger) {
                    let empty = |block: Block| block.start == block.end;
                    let apart = empty(block) || empty(kept.block) || block.end <= kept.block.start || kept.block.end <= block.start;
                    prop_assert!(apart, "{:?} overlaps {:?}", block, kept);
                }
            }
            prop_assert_eq!(heap.used(), model.used());
            prop_assert!(heap.high_water() >= heap.used() && heap.high_water() <= size);
            // First in, first out, some at a time.
            for _ in 0..retire.min(next - last_alive) {
                last_alive += 1;
                heap.reclaim(last_alive, model.retire());
            }
        }
    }
}
