//! Whether a case became slower or faster, or why that can't be said.
//!
//! A verdict of `slower` or `faster` takes two things: a rank test of the process runs' medians that
//! holds at the level of the whole sweep, and an interval of the change that lies beyond every floor.
//! One process run per side is never a test; then a plain ratio of medians is given, called just that.

use std::fmt;

use rayon::prelude::*;

use super::{CaseSummary, LatencySummary, RingPeak, Rules};
use crate::baseline::Row;
use crate::host_class::FactDifference;
use crate::record::Clock;
use crate::stats;

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

/// The verdicts of all cases, and how many tests were corrected for together.
pub(super) struct Judged {
    pub(super) verdicts: Vec<LatencyVerdict>,
    pub(super) family: usize,
}

/// A case before the correction over the sweep.
enum Measured {
    Settled(LatencyVerdict),
    Tested(Tested),
}

struct Tested {
    p: f64,
    /// Interval of the logarithm of the ratio.
    shift: stats::Shift,
    floor: f64,
    reading: Reading,
    base_runs: usize,
    now_runs: usize,
}

/// Judges every case; `incomparable` names the host facts that differ, which rules out all of them.
pub(super) fn judge_all(
    cases: &[(Option<&Row>, Option<&CaseSummary>)],
    incomparable: Option<&[FactDifference]>,
    rules: &Rules,
) -> Judged {
    let measured: Vec<Measured> = cases
        .par_iter()
        .map(|(row, now)| measure(*row, *now, incomparable, rules))
        .collect();
    finish(measured, rules)
}

/// Judges medians of process runs alone: of the reference, of the run, ns, and the noise floor of the case
/// (a share, 0 where none was learnt). The correction is over these cases.
pub fn judge_medians(sides: &[(&[f64], &[f64], f64)], rules: &Rules) -> Vec<LatencyVerdict> {
    let measured = sides
        .iter()
        .map(|(base, now, floor)| medians(base, now, *floor, None, rules))
        .collect();
    finish(measured, rules).verdicts
}

fn finish(measured: Vec<Measured>, rules: &Rules) -> Judged {
    let raw: Vec<f64> = measured
        .iter()
        .filter_map(|case| match case {
            Measured::Tested(tested) => Some(tested.p),
            Measured::Settled(_) => None,
        })
        .collect();
    let family = raw.len();
    let mut adjusted = rules.correction.adjust(&raw).into_iter();
    let verdicts = measured
        .into_iter()
        .map(|case| match case {
            Measured::Settled(verdict) => verdict,
            Measured::Tested(tested) => {
                let p_adjusted = adjusted.next().expect("one corrected value per test");
                tested.verdict(p_adjusted, family, rules)
            }
        })
        .collect();
    Judged { verdicts, family }
}

fn measure(
    row: Option<&Row>,
    now: Option<&CaseSummary>,
    incomparable: Option<&[FactDifference]>,
    rules: &Rules,
) -> Measured {
    let undecided = |why| Measured::Settled(LatencyVerdict::Undecided(why, None));
    let base_latency = row.and_then(|row| row.summary.latency.as_ref());
    let now_latency = now.and_then(|now| now.latency.as_ref());
    let (base, now, before, after, row) = match (base_latency, now_latency, row, now) {
        (Some(before), Some(after), Some(row), Some(now)) => (&row.summary, now, before, after, row),
        (None, Some(_), Some(_), _) => return undecided(Undecided::NoReference),
        // A case that doesn't pass any more has a worse verdict than a missing latency.
        (Some(_), None, _, Some(now)) if now.outcome == crate::outcome::Outcome::Pass => {
            return undecided(Undecided::NotTimed);
        }
        _ => return Measured::Settled(LatencyVerdict::None),
    };
    if let Some(differences) = incomparable {
        let facts: Vec<String> = differences.iter().map(ToString::to_string).collect();
        return undecided(Undecided::OtherHostClass(facts.join(", ")));
    }
    if let Some(why) = differs(row, base, now, before, after) {
        return undecided(why);
    }
    let unlikely = unlikely_gain(base, now, rules);
    medians(
        &before.run_medians_ns,
        &after.run_medians_ns,
        row.noise_floor.unwrap_or(0.0),
        Some((before.rounds, unlikely)),
        rules,
    )
}

/// What keeps the two sides from being the same quantity.
fn differs(
    row: &Row,
    base: &CaseSummary,
    now: &CaseSummary,
    before: &LatencySummary,
    after: &LatencySummary,
) -> Option<Undecided> {
    if row.statistic != Row::STATISTIC {
        return Some(Undecided::OtherStatistic(row.statistic.clone()));
    }
    if row.unit != Row::UNIT {
        return Some(Undecided::OtherUnit(row.unit.clone()));
    }
    if before.clock != after.clock {
        return Some(Undecided::OtherClock {
            base: before.clock,
            now: after.clock,
        });
    }
    if before.rounds != after.rounds {
        return Some(Undecided::OtherRounds {
            base: before.rounds,
            now: after.rounds,
        });
    }
    (base.subject != now.subject).then(|| Undecided::OtherSubject {
        base: base.subject.clone(),
        now: now.subject.clone(),
    })
}

/// What is wrong with a number that should be a latency in nanoseconds.
fn invalid(value: f64) -> Option<Undecided> {
    match value {
        v if !v.is_finite() => Some(Undecided::NotFinite),
        v if v < 0.0 => Some(Undecided::Negative),
        0.0 => Some(Undecided::Zero),
        v if v < 1.0 => Some(Undecided::Denormal),
        _ => None,
    }
}

/// `within` are the timed dispatches per process run and what would make a gain unlikely; `None` for fresh runs.
fn medians(
    before: &[f64],
    after: &[f64],
    noise_floor: f64,
    within: Option<(usize, Option<Unlikely>)>,
    rules: &Rules,
) -> Measured {
    let settled = Measured::Settled;
    if let Some(why) = before.iter().chain(after).find_map(|&value| invalid(value)) {
        return settled(LatencyVerdict::Undecided(why, None));
    }
    let (Some(base), Some(now)) = (stats::median(before), stats::median(after)) else {
        return settled(LatencyVerdict::None);
    };
    let reading = Reading::of(now / base, rules.plain_threshold);
    let unlikely = within.and_then(|(_, unlikely)| unlikely);
    if now < base * rules.implausible_ratio {
        return settled(LatencyVerdict::Implausible(
            unlikely.unwrap_or(Unlikely::TooFast),
            reading,
        ));
    }
    if let Some(unlikely) = unlikely.filter(|_| reading.beyond == Some(Direction::Faster)) {
        return settled(LatencyVerdict::Implausible(unlikely, reading));
    }
    // All one number, or the same numbers on both sides: a copied or canned file, not a second measurement.
    let flat = before
        .iter()
        .chain(after)
        .all(|value| value.total_cmp(&before[0]).is_eq());
    if flat || stats::sorted(before) == stats::sorted(after) {
        return settled(LatencyVerdict::Undecided(Undecided::Identical, Some(reading)));
    }
    if let Some((1, _)) = within
        && before.len() == 1
        && after.len() == 1
    {
        return settled(LatencyVerdict::Undecided(Undecided::OneSample, Some(reading)));
    }
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
    let shift = stats::hodges_lehmann(&logs(before), &logs(after), rules.confidence);
    let (Some(shift), Some(test)) = (shift, stats::mann_whitney(before, after)) else {
        return settled(LatencyVerdict::Undecided(
            too_few(before.len(), after.len(), 1, rules),
            Some(reading),
        ));
    };
    Measured::Tested(Tested {
        p: test.p,
        shift,
        floor: rules
            .relative_floor
            .max(noise_floor)
            .max(rules.absolute_floor_ns / base),
        reading,
        base_runs: before.len(),
        now_runs: after.len(),
    })
}

fn too_few(base: usize, now: usize, family: usize, rules: &Rules) -> Undecided {
    let level = rules.alpha / family.max(1) as f64;
    let reaches = |runs: &usize| stats::smallest_p(*runs, base) <= level;
    Undecided::TooFewRuns {
        base,
        now,
        // More than a hundred process runs are no advice.
        need: (1..=100).find(reaches),
        need_each: stats::runs_needed(level, None).unwrap_or(1000),
    }
}

/// Signs of other work rather than faster work.
fn unlikely_gain(base: &CaseSummary, now: &CaseSummary, rules: &Rules) -> Option<Unlikely> {
    let collapsed = |base: u64, now: u64| (now as f64) < base as f64 * rules.work_collapse;
    if let (Some(before), Some(after)) = (base.work, now.work)
        && collapsed(before.tasks_submitted, after.tasks_submitted)
    {
        return Some(Unlikely::FewerTasks {
            base: before.tasks_submitted,
            now: after.tasks_submitted,
        });
    }
    let heap = |peaks: [RingPeak; 4]| peaks.iter().map(|peak| peak.heap_high_water_bytes).sum::<u64>();
    let (before, after) = (heap(base.rings?), heap(now.rings?));
    collapsed(before, after).then_some(Unlikely::LessHeap {
        base: before,
        now: after,
    })
}

impl Reading {
    fn of(ratio: f64, threshold: f64) -> Self {
        // Both ways by the same factor, so that swapping the sides swaps the answer.
        let beyond = match ratio.ln() {
            log if log > threshold.ln_1p() => Some(Direction::Slower),
            log if log < -threshold.ln_1p() => Some(Direction::Faster),
            _ => None,
        };
        Self {
            ratio,
            threshold,
            beyond,
        }
    }
}

impl Tested {
    fn verdict(self, p_adjusted: f64, family: usize, rules: &Rules) -> LatencyVerdict {
        let effect = Effect {
            ratio: self.shift.estimate.exp(),
            low: self.shift.low.exp(),
            high: self.shift.high.exp(),
            p_raw: self.p,
            p_adjusted,
            floor: self.floor,
            base_runs: self.base_runs,
            now_runs: self.now_runs,
        };
        let floor = self.floor.ln_1p();
        let (slower, faster) = (self.shift.low > floor, self.shift.high < -floor);
        let sure = p_adjusted <= rules.alpha;
        if slower && sure {
            return LatencyVerdict::Slower(effect);
        }
        if faster && sure {
            return LatencyVerdict::Faster(effect);
        }
        let undecided = |why| LatencyVerdict::Undecided(why, Some(self.reading));
        if slower || faster {
            let reachable = stats::smallest_p(self.base_runs, self.now_runs) * family as f64 <= rules.alpha;
            return undecided(if reachable {
                Undecided::NotSure {
                    p_raw: self.p,
                    p_adjusted,
                }
            } else {
                too_few(self.base_runs, self.now_runs, family, rules)
            });
        }
        let resolution = self.floor.max(rules.resolution).ln_1p();
        if self.shift.low >= -resolution && self.shift.high <= resolution {
            return LatencyVerdict::Unchanged(effect);
        }
        undecided(Undecided::SpreadTooWide {
            low: effect.low,
            high: effect.high,
        })
    }
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
            "{} [{}, {}], p {:.2e}, over the sweep {:.2e}, {} against {} runs",
            percent(self.ratio),
            percent(self.low),
            percent(self.high),
            self.p_raw,
            self.p_adjusted,
            self.now_runs,
            self.base_runs
        )
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
