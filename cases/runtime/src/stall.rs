//! Runs that stopped making progress.

use crate::ids::TaskId;

/// What the counters say about a run without progress; decided in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StallClass {
    /// A block is running and doesn't come back.
    S1,
    /// Blocks are ready, and no core takes one.
    S3,
    /// Tasks wait for others, and nothing runs that could end their wait.
    S4,
    /// Nothing is left to do, and the program submits nothing.
    S5,
    /// None of these.
    Unknown,
}

impl StallClass {
    /// Name with its meaning, as device logs print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S1 => "S1:running-stalled",
            Self::S3 => "S3:ready-but-all-idle",
            Self::S4 => "S4:dependency-deadlock",
            Self::S5 => "S5:orchestrator-starvation",
            Self::Unknown => "unknown",
        }
    }

    /// Class of these counts.
    pub(crate) const fn of(running: usize, ready: usize, waiting: u64, orch_done: bool) -> Self {
        if running > 0 {
            Self::S1
        } else if ready > 0 {
            Self::S3
        } else if waiting > 0 {
            Self::S4
        } else if !orch_done {
            Self::S5
        } else {
            Self::Unknown
        }
    }
}

/// A run that made no progress for the scheduler time limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// What the counts say.
    pub class: StallClass,
    /// Tasks completed.
    pub completed: u64,
    /// Tasks submitted.
    pub total: u64,
    /// Cores that run a block.
    pub running: usize,
    /// Tasks with a block that waits for a core.
    pub ready: usize,
    /// Tasks that wait for other tasks.
    pub waiting: u64,
    /// Whether the program had ended.
    pub orch_done: bool,
    /// The task that stands in the way: the one on the stuck core, else the oldest that is not completed.
    pub stuck_task: Option<(TaskId, &'static str)>,
    /// The core that has been in one block for longest. Never an idle one.
    pub stuck_core: Option<usize>,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn classes_in_order_of_precedence() {
        let classes = [
            StallClass::of(1, 1, 1, false),
            StallClass::of(0, 1, 1, false),
            StallClass::of(0, 0, 1, false),
            StallClass::of(0, 0, 0, false),
            StallClass::of(0, 0, 0, true),
        ];
        assert_eq!(
            classes,
            [
                StallClass::S1,
                StallClass::S3,
                StallClass::S4,
                StallClass::S5,
                StallClass::Unknown
            ]
        );
    }
}
