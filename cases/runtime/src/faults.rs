//! Faults on purpose, so that each stall class can be reached by a real run.
//!
//! Nothing here reports anything: a fault only breaks a part of the machinery, and the watchdog has
//! to find out by itself what is wrong.
//!
//! | class | how to reach it |
//! | --- | --- |
//! | S1 | a block that doesn't return while [`Block::stopping`](crate::Block::stopping) is false (needs no fault) |
//! | S3 | [`deafen_cores`], then submit a task for cores |
//! | S4 | a task with [`TaskFault::KeepConsumersWaiting`], and another after it |
//! | S5 | [`starve`] |
//! | unknown | a task with [`TaskFault::LoseCompletion`] that nobody waits for |

use crate::halt::Halted;
use crate::orchestrator::Orchestrator;
use crate::task::TaskBuilder;

/// A defect of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskFault {
    /// The task completes, but those that wait for it are never told.
    KeepConsumersWaiting,
    /// The task's last block ends, and nobody notices.
    LoseCompletion,
}

/// Gives a task under construction a defect.
pub fn inject(mut task: TaskBuilder, fault: TaskFault) -> TaskBuilder {
    task.task.fault = Some(fault);
    task
}

/// From now on, and until the end of the run, no core looks for work.
pub fn deafen_cores(orchestrator: &mut Orchestrator<'_>) {
    orchestrator.deafen_cores();
}

/// The program stops submitting and never ends by itself; returns once the run has been given up.
pub fn starve(orchestrator: &mut Orchestrator<'_>) -> Halted {
    orchestrator.starve()
}
