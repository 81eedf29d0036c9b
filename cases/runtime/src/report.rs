//! What a run reports, however it ended.

use std::time::Duration;

use crate::fatal::Fatal;
use crate::ids::{RINGS, RingId, TaskId};
use crate::requests::Requests;
use crate::stall::Stall;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The program ended and every task completed.
    Passed,
    /// A resource could not admit more, or the program was rejected or ended itself.
    Fatal(Box<Fatal>),
    /// No progress.
    Stalled(Stall),
    /// A block panicked.
    Panicked(Panicked),
    /// Stopped from outside.
    Stopped,
    /// Not started: an earlier run left a core behind that never came back.
    Poisoned,
}

/// A block that panicked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panicked {
    /// Which task.
    pub task: TaskId,
    /// Its name.
    pub name: &'static str,
    /// Which of its blocks.
    pub block: usize,
    /// What the panic said.
    pub message: String,
}

/// Use of one ring during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingUsage {
    /// Heap, in bytes.
    pub heap_capacity: u64,
    /// Most heap bytes in use at a time. A linear fill to exactly the capacity counts as the capacity.
    pub heap_high_water: u64,
    /// Task slots.
    pub task_window: u32,
    /// Most live tasks at a time.
    pub tasks_high_water: u32,
    /// Tasks submitted to this ring.
    pub tasks_submitted: u32,
    /// Entries of the dependency pool, and of the fan-in spill pool.
    pub dep_pool: u32,
    /// Most dependency entries in use at a time.
    pub dep_pool_high_water: u32,
    /// Most spilled fan-in edges at a time.
    pub fanin_high_water: u32,
}

/// Heap use of one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopePeak {
    /// Position in the order in which scopes were opened; the root's is 0.
    pub order: usize,
    /// Depth; the root's is 0.
    pub depth: usize,
    /// The ring that the depth maps to.
    pub ring: RingId,
    /// Heap bytes of that ring in use when the scope was opened.
    pub heap_begin: u64,
    /// The same when it was closed, before its tasks were released.
    pub heap_end: u64,
    /// The most at a time in between, over the scope itself and scopes of the same ring inside.
    pub heap_peak: u64,
    /// Tasks submitted in the scope itself.
    pub tasks: usize,
}

/// Per-scope records: those with the largest peaks, in order of opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopePeaks {
    /// At most as many as configured.
    pub largest: Vec<ScopePeak>,
    /// How many scopes were left out.
    pub left_out: usize,
}

impl ScopePeaks {
    /// Adds a record, and drops the smallest ones once there are twice as many as `keep`.
    pub(crate) fn add(&mut self, record: ScopePeak, keep: usize) {
        self.largest.push(record);
        if self.largest.len() >= 2 * keep.max(1) {
            self.trim(keep);
        }
    }

    /// Keeps the `keep` largest peaks; of equal ones, the earliest.
    pub(crate) fn trim(&mut self, keep: usize) {
        if self.largest.len() > keep {
            self.largest
                .sort_by_key(|record| (std::cmp::Reverse(record.heap_peak), record.order));
            self.left_out += self.largest.len() - keep;
            self.largest.truncate(keep);
        }
        self.largest.sort_by_key(|record| record.order);
    }
}

/// How many tasks a run had, by kind and by progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// All tasks that got a slot.
    pub submitted: u64,
    /// Of these, allocations.
    pub allocations: u64,
    /// Of these, dependency-only tasks.
    pub dependency_only: u64,
    /// Of these, tasks for cores.
    pub kernels: u64,
    /// Blocks that cores started.
    pub blocks: u64,
    /// Tasks that completed.
    pub completed: u64,
    /// Tasks whose slot and heap were reclaimed.
    pub retired: u64,
}

/// Everything about one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// How it ended.
    pub end: RunEnd,
    /// Use of rings 0 to 3.
    pub rings: [RingUsage; RINGS],
    /// Heap use per scope.
    pub scopes: ScopePeaks,
    /// Task counts.
    pub tasks: TaskCounts,
    /// What the program asked of the heaps, if the configuration says to keep it.
    pub requests: Option<Requests>,
    /// Capacity of the tensor map.
    pub tensormap_entries: usize,
    /// Most tensor-map entries in use at a time.
    pub tensormap_high_water: usize,
    /// Monotonic time from the start of the program until the last task had completed, or the run was
    /// given up. Thread and heap set-up are not in it.
    pub device: Duration,
    /// Whether any block reached a core.
    pub first_launch: bool,
}

impl RunReport {
    /// Whether the run passed.
    pub fn passed(&self) -> bool {
        matches!(self.end, RunEnd::Passed)
    }

    /// The fatal error, if one ended the run.
    pub fn fatal(&self) -> Option<&Fatal> {
        match &self.end {
            RunEnd::Fatal(fatal) => Some(fatal),
            RunEnd::Passed | RunEnd::Stalled(_) | RunEnd::Panicked(_) | RunEnd::Stopped | RunEnd::Poisoned => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_largest_peaks_are_kept_in_order() {
        let mut peaks = ScopePeaks::default();
        for order in 0..100 {
            let heap_peak = if order == 40 { 1 << 30 } else { order as u64 };
            let record = ScopePeak {
                order,
                depth: 0,
                ring: RingId::ALL[0],
                heap_begin: 0,
                heap_end: 0,
                heap_peak,
                tasks: 0,
            };
            peaks.add(record, 3);
        }
        peaks.trim(3);
        let orders: Vec<usize> = peaks.largest.iter().map(|record| record.order).collect();
        assert_eq!((orders, peaks.left_out), (vec![40, 98, 99], 97));
    }
}
