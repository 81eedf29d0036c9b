//! How a supervised child ended: facts, no verdict.

use std::fmt;
use std::time::Duration;

use rustix::process::WaitIdStatus;

use super::budget::Phase;
use super::capture::OutputSummary;
use super::family::Survivor;
use super::proc_fs::ProcessFacts;
use crate::outcome::{Budget, SignalName};

/// The status that a process left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitState {
    /// It exited with this code, 0 to 255.
    Code(i32),
    /// A signal ended it.
    Signal(SignalName),
}

impl ExitState {
    pub(super) fn from_wait(status: &WaitIdStatus) -> Option<Self> {
        if let Some(code) = status.exit_status() {
            return Some(Self::Code(code));
        }
        status
            .terminating_signal()
            .map(|number| Self::Signal(SignalName::from_number(number)))
    }

    /// Exit code 0.
    pub fn is_success(&self) -> bool {
        *self == Self::Code(0)
    }
}

impl fmt::Display for ExitState {
    /// `exit 3`, `SIGSEGV`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(name) => f.write_str(name.as_str()),
        }
    }
}

/// Why the supervisor ended a child that had not ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A budget ran out.
    Budget {
        /// Which.
        budget: Budget,
        /// What it allowed.
        limit: Duration,
    },
    /// It was stopped by this signal and nobody continued it.
    Suspended(SignalName),
    /// The user interrupted the sweep.
    Interrupted,
}

/// All that supervision saw of a child.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its status.
    pub exit: ExitState,
    /// Why it was ended, if it did not end by itself.
    pub stop: Option<Stop>,
    /// Whether TERM was not enough.
    pub needed_kill: bool,
    /// Whether the kernel killed it for lack of memory.
    pub out_of_memory_kill: bool,
    /// From start to observed exit (monotonic).
    pub elapsed: Duration,
    /// How long it was in each phase that it reached, in order.
    pub phases: Vec<(Phase, Duration)>,
    /// What became of its output.
    pub output: OutputSummary,
    /// What it left behind; all of it was killed.
    pub survivors: Vec<Survivor>,
    /// Whether something held the output pipe after the process itself had ended.
    pub output_held: bool,
    /// Itself and its descendants at the moment when it was ended.
    pub tree: Vec<ProcessFacts>,
}

impl Ended {
    /// Whether it ended by itself but left processes behind.
    pub fn leaked(&self) -> bool {
        self.stop.is_none() && (self.output_held || !self.survivors.is_empty())
    }

    /// The phase in which it ended.
    pub fn last_phase(&self) -> Option<Phase> {
        self.phases.last().map(|(phase, _)| *phase)
    }
}
