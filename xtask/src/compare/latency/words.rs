//! Verdicts in words, as every report tells them.

use std::fmt;

use super::{Design, Effect, LatencyVerdict, Reading, Undecided, Unlikely};
use crate::compare::Direction;

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

impl fmt::Display for LatencyVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Slower(effect) => write!(f, "slower {effect}"),
            Self::Faster(effect) => write!(f, "faster {effect}"),
            Self::Unchanged(effect) => write!(f, "unchanged {effect}"),
            Self::Undecided(why, None) => write!(f, "undecided: {why}"),
            Self::Undecided(why, Some(reading)) => write!(f, "undecided: {why}; {reading}"),
            Self::Implausible(why, reading) => write!(f, "implausible: {why}; {}", percent(reading.ratio)),
        }
    }
}

impl fmt::Display for Effect {
    /// `+10.2 % [+8.9 %, +11.4 %], p 0.0003, over the sweep 0.006, 8 against 8 runs`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} [{}, {}], p {:.2e}, over the sweep {:.2e}, ",
            percent(self.ratio),
            percent(self.low),
            percent(self.high),
            self.p_raw,
            self.p_adjusted,
        )?;
        match self.design {
            Design::Samples => write!(f, "{} against {} runs", self.now_runs, self.base_runs),
            Design::Pairs => write!(f, "{} pairs of runs", self.now_runs),
        }
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.beyond {
            None => "within",
            Some(Direction::Slower | Direction::Faster) => "beyond",
        };
        write!(
            f,
            "median {}, {side} a plain threshold of {:.0} %, no test",
            percent(self.ratio),
            self.threshold * 100.0
        )
    }
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneSample => f.write_str("one sample on each side"),
            Self::TooFewRuns {
                base,
                now,
                need: Some(need),
                ..
            } => write!(f, "too few runs: {now} against {base}, needs {need}"),
            Self::TooFewRuns {
                base,
                now,
                need: None,
                need_each,
            } => write!(f, "too few runs: {now} against {base}, needs {need_each} on each side"),
            Self::SpreadTooWide { low, high } => write!(
                f,
                "spread too wide: anything from {} to {}",
                percent(*low),
                percent(*high)
            ),
            Self::NotSure { p_raw, p_adjusted } => write!(
                f,
                "not sure at the level of the sweep: p {p_raw:.2e}, over the sweep {p_adjusted:.2e}"
            ),
            Self::Identical => f.write_str("identical samples on both sides: no clock does that"),
            Self::NotFinite => f.write_str("a sample is NaN or infinite"),
            Self::Negative => f.write_str("a sample is negative"),
            Self::Zero => f.write_str("a sample is zero"),
            Self::Denormal => f.write_str("a sample is shorter than a nanosecond"),
            Self::OtherStatistic(statistic) => write!(f, "the reference holds another statistic: {statistic}"),
            Self::OtherUnit(unit) => write!(f, "the reference holds another unit: {unit}"),
            Self::OtherClock { base, now } => write!(f, "other clock: {} → {}", base.token(), now.token()),
            Self::OtherRounds { base, now } => write!(f, "other rounds: {base} → {now}"),
            Self::OtherSubject { base, now } => write!(f, "other inputs: {base} → {now}"),
            Self::OtherHostClass(facts) if facts.is_empty() => f.write_str("other platform"),
            Self::OtherHostClass(facts) => write!(f, "other host class: {facts}"),
            Self::NoReference => f.write_str("the reference holds no latency"),
            Self::NotTimed => f.write_str("not timed, though the reference is"),
        }
    }
}

impl fmt::Display for Unlikely {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFast => f.write_str("too fast to be the same work"),
            Self::FewerTasks { base, now } => write!(f, "did {now} tasks, the reference did {base}"),
            Self::LessHeap { base, now } => {
                write!(f, "used {now} bytes of ring heap, the reference used {base}")
            }
        }
    }
}
