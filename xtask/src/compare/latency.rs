//! Whether a case became slower or faster, or why that can't be said.
//!
//! A verdict of `slower` or `faster` takes two things: a rank test of the process runs' medians that
//! holds at the level of the whole sweep, and an interval of the change that lies beyond every floor.
//! One process run per side is never a test; then a plain ratio of medians is given, called just that.

use rayon::prelude::*;

use super::{CaseSummary, LatencySummary, RingPeak, Rules};
use crate::baseline::Row;
use crate::host_class::FactDifference;
use crate::stats;

mod kinds;
mod words;

pub use kinds::{Design, Direction, Effect, LatencyVerdict, Reading, Undecided, Unlikely};

/// The verdicts of all cases, and how many tests were corrected for together.
pub(super) struct Judged {
    pub(super) verdicts: Vec<LatencyVerdict>,
    pub(super) family: usize,
}

/// A case before the correction over the sweep.
pub(super) enum Measured {
    Settled(LatencyVerdict),
    Tested(Tested),
}

pub(super) struct Tested {
    p: f64,
    /// The smallest p value that so many runs can give.
    smallest_p: f64,
    /// Interval of the logarithm of the ratio.
    shift: stats::Shift,
    floor: f64,
    reading: Reading,
    base_runs: usize,
    now_runs: usize,
    design: Design,
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

pub(super) fn finish(measured: Vec<Measured>, rules: &Rules) -> Judged {
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
pub(super) fn medians(
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
        smallest_p: stats::smallest_p(before.len(), after.len()),
        shift,
        floor: floor(base, noise_floor, rules),
        reading,
        base_runs: before.len(),
        now_runs: after.len(),
        design: Design::Samples,
    })
}

/// Share that a change must exceed, of a reference of `base` ns.
fn floor(base: f64, noise_floor: f64, rules: &Rules) -> f64 {
    rules
        .relative_floor
        .max(noise_floor)
        .max(rules.absolute_floor_ns / base)
}

/// The test of process runs of both programs that ran next to each other, ns, reference first.
///
/// `None` where they allow no test; what is wrong with a number, [`medians`] says.
pub(super) fn pairs(pairs: &[(f64, f64)], rules: &Rules) -> Option<Tested> {
    if pairs
        .iter()
        .any(|&(base, now)| invalid(base).or(invalid(now)).is_some())
    {
        return None;
    }
    let (before, after): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (base, now) = (stats::median(&before)?, stats::median(&after)?);
    let logs: Vec<f64> = pairs.iter().map(|(base, now)| (now / base).ln()).collect();
    Some(Tested {
        p: stats::signed_rank(&logs)?.p,
        smallest_p: 0.5_f64.powi(logs.len() as i32 - 1).min(1.0),
        shift: stats::paired_shift(&logs, rules.confidence)?,
        floor: floor(base, 0.0, rules),
        reading: Reading::of(now / base, rules.plain_threshold),
        base_runs: pairs.len(),
        now_runs: pairs.len(),
        design: Design::Pairs,
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
            design: self.design,
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
            let reachable = self.smallest_p * family as f64 <= rules.alpha;
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
