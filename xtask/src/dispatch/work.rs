//! What the dispatcher is given, and what it tells.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use jiff::civil::Date;

use crate::plan::{Plan, PlannedCase};
use crate::process::{Request, Supervisor};
use crate::record::CaseRecord;
use crate::runner::Runners;
use crate::slots::Sharing;

/// How a plan is to be run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most cases at once.
    pub jobs: NonZeroUsize,
    /// Whether benchmarks may share the machine.
    pub sharing: Sharing,
    /// Process runs per case.
    pub repeat: NonZeroUsize,
    /// Memory of this machine that cases share, bytes.
    pub memory_bytes: Option<u64>,
    /// No case is started after this instant.
    pub start_until: Option<Instant>,
    /// Today, for expectations.
    pub today: Date,
    /// How often the watcher gets a [`Notice::Tick`].
    pub tick: Option<Duration>,
}

/// Everything that running a plan takes.
pub struct Work<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The workspace root.
    pub root: &'a std::path::Path,
    /// How.
    pub settings: &'a Settings,
    /// What supervises children.
    pub supervisor: &'a Supervisor,
    /// The runner of each kind that the plan uses.
    pub runners: &'a Runners,
    /// Requests of the user to stop: the first is polite, the second is not.
    pub interrupts: Receiver<()>,
    /// Attempts that an earlier part of the run has finished.
    pub done: &'a [CaseRecord],
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("settings", self.settings)
            .finish_non_exhaustive()
    }
}

/// What a watcher is told.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A case was started.
    Started {
        /// The case.
        case: &'a PlannedCase,
        /// Process run, from 0.
        repeat: u32,
        /// Attempt, from 1.
        attempt: u32,
    },
    /// A record was written.
    Finished {
        /// The record.
        record: &'a CaseRecord,
        /// Whether the case is tried again.
        again: bool,
    },
    /// A device is not used any more.
    Quarantined {
        /// Which.
        device: u32,
    },
    /// The user asked to stop; the second time with force.
    Stopping {
        /// How many cases still run.
        running: usize,
        /// What they were asked.
        request: Request,
    },
    /// Time has passed.
    Tick,
}

/// Why the dispatcher came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every attempt of every case has its record.
    Finished,
    /// The user interrupted it.
    Interrupted,
    /// The time for starting cases was over before the last one.
    OutOfTime,
}
