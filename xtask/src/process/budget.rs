//! Time limits of a child: what is limited, and in which phase of its life it counts.
//!
//! Their order (silence ≤ run ≤ total) is checked where suites are loaded, not here.

use std::time::{Duration, Instant};

use crate::outcome::Budget;

/// How long each part of a child may take; `None` is no limit. All times are monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimits {
    /// In [`Phase::Queue`]: waiting for a device or a batch slot.
    pub queue: Option<Duration>,
    /// In [`Phase::Setup`]: compile, fixture, golden.
    pub setup: Option<Duration>,
    /// In [`Phase::Run`]: from the first dispatch to the end of the process.
    pub run: Option<Duration>,
    /// Without a byte of output or a line in the report, in any phase but the queue.
    pub silence: Option<Duration>,
    /// From start to end of the process.
    pub total: Option<Duration>,
}

/// Where a child stands, as far as its budgets are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The launcher waits for a device: nothing of the case runs.
    Queue,
    /// The case prepares: nothing was dispatched yet.
    Setup,
    /// The first dispatch has begun.
    Run,
}

impl Phase {
    /// The budget that limits this phase.
    pub const fn budget(self) -> Budget {
        match self {
            Self::Queue => Budget::Queue,
            Self::Setup => Budget::Setup,
            Self::Run => Budget::Run,
        }
    }
}

/// Since when each budget counts, on a clock that stands still while the child waits for others.
#[derive(Debug)]
pub(super) struct Counted {
    start: Instant,
    /// Since the current phase began.
    pub(super) phase: Instant,
    /// Since the last sign of life.
    pub(super) sign: Instant,
}

impl From<Instant> for Counted {
    fn from(start: Instant) -> Self {
        Self {
            start,
            phase: start,
            sign: start,
        }
    }
}

impl TimeLimits {
    /// The budgets in force in `phase`, with the instants at which they run out on the clock of `counted`.
    pub(super) fn deadlines(
        self,
        phase: Phase,
        counted: &Counted,
    ) -> impl Iterator<Item = (Budget, Duration, Instant)> {
        let of_phase = match phase {
            Phase::Queue => self.queue,
            Phase::Setup => self.setup,
            Phase::Run => self.run,
        };
        let silence = if phase == Phase::Queue { None } else { self.silence };
        [
            (Budget::Total, self.total, counted.start),
            (phase.budget(), of_phase, counted.phase),
            (Budget::Silence, silence, counted.sign.max(counted.phase)),
        ]
        .into_iter()
        .filter_map(|(budget, limit, from)| limit.map(|limit| (budget, limit, from + limit)))
    }
}

/// What tells that a child has entered a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A line of output that starts with these bytes.
    OutputLine(Vec<u8>),
    /// A `stage` event of the report whose stage has this name and whose phase is `begin`.
    ReportStage(String),
}

/// The phases that a child goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhasePlan {
    /// The phase that the process starts in.
    pub first: Phase,
    /// Later phases and what announces each; one that is announced twice counts once.
    pub signs: Vec<(Phase, Sign)>,
}

impl PhasePlan {
    /// A child without phases of its own: all of it counts as [`Phase::Run`].
    pub const fn run_only() -> Self {
        Self {
            first: Phase::Run,
            signs: Vec::new(),
        }
    }

    /// A child that prepares until its report says that `stage` begins.
    pub fn setup_until_report(stage: &str) -> Self {
        Self {
            first: Phase::Setup,
            signs: vec![(Phase::Run, Sign::ReportStage(stage.to_owned()))],
        }
    }
}
