//! What a task slot holds, as far as other threads than the orchestrator look at it.

use crate::argument::Argument;
use crate::fanout::Fanout;
use crate::faults::TaskFault;
use crate::life::Life;
use crate::pools::SpillPool;
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::task::Body;

/// One slot of a task window. Its occupant changes only once the former one is consumed.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) life: Life,
    pub(crate) fanout: Fanout,
    /// Producers that have not completed, plus one while the orchestrator links the task.
    pub(crate) pending: AtomicU32,
    /// Number of blocks; 0 for a task that no core runs.
    blocks: AtomicU32,
    /// Blocks that are not done.
    unfinished: AtomicU32,
    /// Blocks that wait at the common start.
    pub(crate) arrived: AtomicU32,
    supply: Supply,
    pub(crate) work: RwLock<Work>,
}

/// Hands out blocks. Tickets of former occupants get none: the task's number stands beside the count.
#[derive(Debug, Default)]
struct Supply(AtomicU64);

/// What the occupant is to do, and what it holds.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) body: Option<Body>,
    pub(crate) arguments: Vec<Argument>,
    /// Producers to release on completion.
    pub(crate) producers: Vec<u64>,
    pub(crate) together: bool,
    pub(crate) fault: Option<TaskFault>,
}

/// The lock is not held across code of the program that could panic without being caught.
pub(crate) const UNPOISONED: &str = "panics of blocks are caught before the lock is given back";

impl Slot {
    /// Begins the life of an occupant with `blocks` blocks that waits, for now, for its own linking.
    pub(crate) fn begin(&self, local: u32, blocks: u32) {
        self.pending.store(1, Ordering::Relaxed);
        self.blocks.store(blocks, Ordering::Relaxed);
        self.unfinished.store(blocks, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.supply
            .0
            .store(u64::from(local) << 32 | u64::from(blocks), Ordering::Release);
        self.life.begin();
        self.fanout.begin();
    }

    /// Begins the life of an occupant that has nothing to wait for and nothing to run.
    pub(crate) fn begin_completed(&self) {
        self.life.begin_completed();
    }

    /// Drops what the last run left behind.
    pub(crate) fn reset(&self) {
        self.supply.0.store(0, Ordering::Relaxed);
        self.work.write().expect(UNPOISONED).clear();
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Takes a block of task `local`: its index, and whether there are more.
    pub(crate) fn take_block(&self, local: u32) -> Option<(u32, bool)> {
        let mut seen = self.supply.0.load(Ordering::Acquire);
        loop {
            let left = seen as u32;
            if (seen >> 32) as u32 != local || left == 0 {
                return None;
            }
            match self
                .supply
                .0
                .compare_exchange_weak(seen, seen - 1, Ordering::AcqRel, Ordering::Acquire)
            {
                // From here on the task can't complete without this block, so `blocks` is its own.
                Ok(_) => return Some((self.blocks() - left, left > 1)),
                Err(now) => seen = now,
            }
        }
    }

    /// A block is done. Returns whether it was the last.
    pub(crate) fn finish_block(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Work {
    /// Drops what the occupant held. The list of producers keeps its memory for the next occupant, up
    /// to the edges that a slot is meant to hold.
    pub(crate) fn clear(&mut self) {
        self.body = None;
        self.arguments = Vec::new();
        self.producers.clear();
        self.producers.shrink_to(SpillPool::INLINE);
        self.together = false;
        self.fault = None;
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("name", &self.name)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_taken_once_and_by_its_own_task() {
        let slot = Slot::default();
        slot.begin(7, 3);
        assert_eq!(slot.take_block(3), None);
        let blocks: Vec<_> = std::iter::from_fn(|| slot.take_block(7)).collect();
        assert_eq!(blocks, [(0, true), (1, true), (2, false)]);
        assert_eq!([(); 3].map(|()| slot.finish_block()), [false, false, true]);
    }
}
