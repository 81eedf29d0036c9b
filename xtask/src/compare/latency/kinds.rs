//! What can be said of a case's latency, and why it can't be said.

use crate::record::Clock;

/// Slower or faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Takes longer than the reference.
    Slower,
    /// Takes less.
    Faster,
}

/// The latency of a case against the reference's.
#[derive(Clone, Debug, PartialEq)]
pub enum LatencyVerdict {
    /// Neither side has one: nothing was timed, or the case didn't pass.
    None,
    /// Takes longer, beyond doubt and beyond the floors.
    Slower(Effect),
    /// Takes less, beyond doubt and beyond the floors.
    Faster(Effect),
    /// Any change is smaller than what matters.
    Unchanged(Effect),
    /// Can't be said; with the plain ratio where there is one.
    Undecided(Undecided, Option<Reading>),
    /// Faster than the same work can be: to be explained, no win.
    Implausible(Unlikely, Reading),
}

/// A tested change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// Run / reference: Hodges–Lehmann estimate over the process runs' medians.
    pub ratio: f64,
    /// Lower end of the ratio's interval.
    pub low: f64,
    /// Upper end of the ratio's interval.
    pub high: f64,
    /// Two-sided p value of the rank test of this case alone.
    pub p_raw: f64,
    /// The same, corrected over the sweep.
    pub p_adjusted: f64,
    /// Share that a change must exceed to count: the largest of the floors.
    pub floor: f64,
    /// Process runs of the reference.
    pub base_runs: usize,
    /// Process runs of the run.
    pub now_runs: usize,
    /// How the process runs were held against each other.
    pub design: Design,
}

/// How process runs are held against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// All of one side against all of the other: Mann–Whitney's test.
    Samples,
    /// Each with the one of the other side that ran next to it: Wilcoxon's signed-rank test.
    Pairs,
}

/// A ratio of medians and nothing more: no test stands behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Run / reference.
    pub ratio: f64,
    /// The plain threshold, as a share.
    pub threshold: f64,
    /// Which way the ratio exceeds the threshold, if it does.
    pub beyond: Option<Direction>,
}

/// Why it can't be said.
#[derive(Clone, Debug, PartialEq)]
pub enum Undecided {
    /// Each side is one process run with one timed dispatch.
    OneSample,
    /// No test of so few process runs can reach the sweep-wide level.
    TooFewRuns {
        /// Process runs of the reference.
        base: usize,
        /// Process runs of the run.
        now: usize,
        /// Process runs of the run that would do; `None` where no number would: the reference needs more.
        need: Option<usize>,
        /// Process runs per side that would do, if both sides took as many.
        need_each: usize,
    },
    /// The interval reaches from no change to a change that matters.
    SpreadTooWide {
        /// Lower end of the ratio's interval.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// Beyond the floors, but the test doesn't hold at the level of the sweep.
    NotSure {
        /// P value of this case alone.
        p_raw: f64,
        /// Corrected over the sweep.
        p_adjusted: f64,
    },
    /// The process runs' medians are the same numbers on both sides: no clock does that.
    Identical,
    /// A number that is NaN or infinite.
    NotFinite,
    /// A number that is negative.
    Negative,
    /// A number that is zero.
    Zero,
    /// A number of less than a nanosecond.
    Denormal,
    /// The reference holds another statistic.
    OtherStatistic(String),
    /// The reference holds another unit.
    OtherUnit(String),
    /// The two sides used different clocks.
    OtherClock {
        /// Clock of the reference.
        base: Clock,
        /// Clock of the run.
        now: Clock,
    },
    /// Different numbers of timed dispatches.
    OtherRounds {
        /// Rounds of the reference.
        base: usize,
        /// Rounds of the run.
        now: usize,
    },
    /// Another seed or other parameters under the same name.
    OtherSubject {
        /// Of the reference.
        base: String,
        /// Of the run.
        now: String,
    },
    /// The hosts are of different classes.
    OtherHostClass(String),
    /// The reference holds no latency.
    NoReference,
    /// The run holds none, though the reference does.
    NotTimed,
}

/// What makes a gain unlikely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unlikely {
    /// Much faster than any change of the same work explains.
    TooFast,
    /// Fewer tasks were done than in the reference.
    FewerTasks {
        /// Tasks of the reference.
        base: u64,
        /// Tasks of the run.
        now: u64,
    },
    /// Less ring heap was used than in the reference.
    LessHeap {
        /// High-water over all rings of the reference, bytes.
        base: u64,
        /// High-water over all rings of the run, bytes.
        now: u64,
    },
}

impl LatencyVerdict {
    /// The word for it in every file and report; `-` where there is no latency.
    pub const fn token(&self) -> &'static str {
        match self {
            Self::None => "-",
            Self::Slower(_) => "slower",
            Self::Faster(_) => "faster",
            Self::Unchanged(_) => "unchanged",
            Self::Undecided(..) => "undecided",
            Self::Implausible(..) => "implausible",
        }
    }

    /// Run / reference, where both sides have a number.
    pub fn ratio(&self) -> Option<f64> {
        match self {
            Self::None => None,
            Self::Slower(effect) | Self::Faster(effect) | Self::Unchanged(effect) => Some(effect.ratio),
            Self::Undecided(_, reading) => reading.map(|reading| reading.ratio),
            Self::Implausible(_, reading) => Some(reading.ratio),
        }
    }
}
