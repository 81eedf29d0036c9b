//! Suspects: cases that must be measured again before they may fail a gate.
//!
//! This is the seam to whoever can start processes: [`suspects`] says which cases need how many fresh
//! process runs per side and look, [`confirm`] takes what came out. Fresh runs of the reference's own
//! program, in turn with the run's, are the best second opinion; without them the fresh runs of the run
//! stand against the medians that the reference holds. Who is not sure and still looks slow
//! ([`LatencyVerdict::asks_for_more`]) is looked at again, up to `confirm_looks` times.
//!
//! Where all cases moved together, most of them are suspects, and measuring every one again could take
//! hours. A few of them, the [`probes`], are measured first: what they moved by in the sweep and not beside
//! the reference's own program is what the machine did, and who moved no further is explained by that.

use std::collections::BTreeMap;

use super::common_mode::LEAST_CASES;
use super::{CaseDiff, Comparison, Direction, Fresh, LatencyVerdict, Remeasured, Rules, judge_fresh};
use crate::case_id::CaseId;
use crate::record::Run;
use crate::stats;

/// A case to measure again.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The case.
    pub case: CaseId,
    /// What it is suspected of.
    pub direction: Direction,
    /// Fresh process runs per side and look.
    pub repeats: usize,
    /// Ratio of its medians, relative to the median ratio of all cases.
    pub ratio: f64,
}

/// How many cases tell what the machine did.
pub const PROBES: usize = LEAST_CASES;

/// What the machine did to all cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Environment {
    /// By how much the probes' ratio in the sweep exceeds the one beside the reference's own program, in the median.
    pub ratio: f64,
    /// How many cases were measured so.
    pub probes: usize,
}

impl std::fmt::Display for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the reference's own program moved by {:+.1} % too, in the median of {} cases measured again",
            (self.ratio - 1.0) * 100.0,
            self.probes
        )
    }
}

/// How a suspect fared.
#[derive(Clone, Debug, PartialEq)]
pub enum Confirmation {
    /// It happened again: the fresh verdict stands.
    Confirmed(LatencyVerdict),
    /// It did not: the fresh verdict says `unchanged`, or the opposite.
    Cleared(LatencyVerdict),
    /// The fresh runs can't say it either.
    Unclear(LatencyVerdict),
    /// All cases moved together, and it moved no further than the machine: others that were measured again
    /// beside the reference's own program tell how far that is.
    Explained(Environment),
    /// No fresh runs came back; the first verdict stands.
    NotMeasured,
}

impl Confirmation {
    /// The word for it in every report.
    pub const fn token(&self) -> &'static str {
        match self {
            Self::Confirmed(_) => "confirmed",
            Self::Cleared(_) => "cleared",
            Self::Unclear(_) => "unclear",
            Self::Explained(_) => "explained",
            Self::NotMeasured => "not-measured-again",
        }
    }

    fn of(suspicion: Direction, fresh: LatencyVerdict) -> Self {
        match (suspicion, &fresh) {
            (Direction::Slower, LatencyVerdict::Slower(_)) | (Direction::Faster, LatencyVerdict::Faster(_)) => {
                Self::Confirmed(fresh)
            }
            (_, LatencyVerdict::Unchanged(_) | LatencyVerdict::Slower(_) | LatencyVerdict::Faster(_)) => {
                Self::Cleared(fresh)
            }
            (_, LatencyVerdict::None | LatencyVerdict::Undecided(..) | LatencyVerdict::Implausible(..)) => {
                Self::Unclear(fresh)
            }
        }
    }
}

/// The cases to measure again: those called slower or faster, and those that no test could clear and
/// whose ratio of medians is beyond the suspects' threshold.
///
/// The ratio counts as it stands and relative to the median ratio of all cases: a machine that is faster
/// today would hide a case that became slower.
pub fn suspects(comparison: &Comparison) -> Vec<Suspect> {
    let common = common_ratio(comparison.cases.iter().map(|diff| &diff.latency));
    let suspects = comparison.cases.iter().filter_map(|diff| {
        Some(Suspect {
            case: diff.case.clone(),
            direction: diff.suspicion(common, &comparison.rules)?,
            repeats: comparison.rules.confirm_repeats,
            ratio: diff.latency.ratio()? / common,
        })
    });
    suspects.collect()
}

/// The suspects that are measured before all others, to tell what the machine did: where all cases moved
/// together, the cheapest of those that moved nearly as far as all did. None where there are so few that all may
/// be measured.
///
/// The half of the suspects that is nearest to the common move, and at least [`PROBES`], may be chosen: its own
/// noise aside, any of them tells the same, while one of the far half may be slower by itself. On a machine where
/// nearly every case is a suspect, the nearest few may be the heaviest of all, whose process runs alone take
/// longer than there is time for; so of the near half the [`PROBES`] are taken whose process runs were over
/// soonest in the sweep. Cost is what `run`'s own records say: nobody is started here to learn it, and a name or
/// a size says nothing of it. A suspect whose cost isn't known comes last; of equal ones the nearer, then the
/// first by id.
pub fn probes(comparison: &Comparison, suspects: &[Suspect], run: &Run) -> Vec<CaseId> {
    if comparison.common_mode.is_none() || suspects.len() <= PROBES {
        return Vec::new();
    }
    let distance = |suspect: &Suspect| suspect.ratio.ln().abs();
    let mut near: Vec<&Suspect> = suspects.iter().collect();
    near.sort_by(|a, b| {
        let by_distance = distance(a).total_cmp(&distance(b));
        by_distance.then_with(|| a.case.cmp(&b.case))
    });
    near.truncate(suspects.len().div_ceil(2).max(PROBES));
    let costs = costs(run);
    let cost = |suspect: &Suspect| costs.get(&suspect.case).copied().unwrap_or(f64::INFINITY);
    // A stable sort: who costs the same stays in the order of nearness.
    near.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
    near.into_iter()
        .take(PROBES)
        .map(|suspect| suspect.case.clone())
        .collect()
}

/// What a process run of each case took in the sweep, in the median over its process runs, s.
fn costs(run: &Run) -> BTreeMap<&CaseId, f64> {
    let mut totals: BTreeMap<&CaseId, Vec<f64>> = BTreeMap::new();
    for record in run.terminal() {
        let total = record.phases.total.as_secs_f64();
        totals.entry(&record.case).or_default().push(total);
    }
    let medians = totals.into_iter();
    medians
        .filter_map(|(case, totals)| Some((case, stats::median(&totals)?)))
        .collect()
}

/// What the machine did, where all cases moved together and enough of them were measured again beside the
/// reference's own program.
fn environment(comparison: &Comparison, fresh: &BTreeMap<CaseId, Fresh>) -> Option<Environment> {
    comparison.common_mode?;
    let moved = comparison.cases.iter().filter_map(|diff| {
        let Fresh::Pairs(pairs) = fresh.get(&diff.case)? else {
            return None;
        };
        let ratios: Vec<f64> = pairs.iter().map(|(base, now)| now / base).collect();
        Some(diff.latency.ratio()? / stats::median(&ratios)?)
    });
    let moved: Vec<f64> = moved.filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect();
    (moved.len() >= PROBES).then_some(Environment {
        ratio: stats::median(&moved)?,
        probes: moved.len(),
    })
}

/// Median ratio over cases; 1 where too few have one to speak of a common move.
pub fn common_ratio<'a>(verdicts: impl Iterator<Item = &'a LatencyVerdict>) -> f64 {
    let ratios: Vec<f64> = verdicts.filter_map(LatencyVerdict::ratio).collect();
    if ratios.len() < LEAST_CASES {
        return 1.0;
    }
    stats::median(&ratios).unwrap_or(1.0)
}

/// The factor by which chance may make a run of `now` process runs look faster than it is, one time in ten at
/// most, given the medians of the reference's process runs, ns.
///
/// On a machine whose speed changes by a tenth from one second to the next, a threshold of two percent alone
/// would overlook every third slowdown of five. A reference of one process run doesn't tell how much it changes.
pub fn slack(base: &[f64], now: usize) -> f64 {
    let logs: Vec<f64> = base.iter().map(|ns| ns.ln()).filter(|log| log.is_finite()).collect();
    if logs.len() < 3 || now == 0 {
        return 1.0;
    }
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (logs.len() - 1) as f64;
    // The error of a median is about a quarter more than that of a mean.
    let error = 1.25 * (variance * (1.0 / logs.len() as f64 + 1.0 / now as f64)).sqrt();
    (ONE_IN_TEN * error).min(MOST_SLACK).exp()
}

/// Quantile of the normal distribution.
const ONE_IN_TEN: f64 = 1.28;

/// A machine that is wilder than this can't be helped by suspecting everything.
const MOST_SLACK: f64 = 0.3;

impl CaseDiff {
    fn suspicion(&self, common: f64, rules: &Rules) -> Option<Direction> {
        self.latency.suspicion(common, self.slack(), rules)
    }

    fn slack(&self) -> f64 {
        let now = self.now.as_ref().and_then(|now| now.latency.as_ref());
        slack(&held(self), now.map_or(0, |latency| latency.run_medians_ns.len()))
    }
}

impl LatencyVerdict {
    /// What a case with this verdict is suspected of, where all cases moved by `common`.
    ///
    /// `slack` is a factor by which chance alone may make the case look faster than it is, see [`slack`].
    pub fn suspicion(&self, common: f64, slack: f64, rules: &Rules) -> Option<Direction> {
        let threshold = (1.0 + rules.suspect_threshold) / slack;
        match self {
            Self::Slower(_) => Some(Direction::Slower),
            Self::Faster(_) => Some(Direction::Faster),
            // Only slowness is worth the time: an unproven gain claims nothing.
            Self::Undecided(_, Some(reading)) => {
                let ratio = reading.ratio.max(reading.ratio / common);
                (ratio > threshold).then_some(Direction::Slower)
            }
            // Unchanged beside a machine that became faster may be a slowdown.
            Self::Unchanged(effect) => (effect.ratio / common > threshold).then_some(Direction::Slower),
            Self::None | Self::Undecided(_, None) | Self::Implausible(..) => None,
        }
    }

    /// Whether a suspect moved no further than the machine did.
    fn is_explained(&self, direction: Direction, environment: &Environment, slack: f64, rules: &Rules) -> bool {
        let own = self.ratio().map(|ratio| ratio / environment.ratio);
        let threshold = (1.0 + rules.suspect_threshold) / slack;
        own.is_some_and(|own| match direction {
            Direction::Slower => own <= threshold,
            Direction::Faster => own >= 1.0 / threshold,
        })
    }
}

/// Judges the fresh runs, with a correction over the suspects, and notes how each fared.
///
/// A suspect without fresh runs is `Explained` where it moved as far as the machine did, and `NotMeasured`
/// else: it is not cleared by silence.
pub fn confirm(comparison: &mut Comparison, fresh: &BTreeMap<CaseId, Fresh>) {
    comparison.environment = environment(comparison, fresh);
    let environment = comparison.environment;
    let rules = comparison.rules.clone();
    let common = common_ratio(comparison.cases.iter().map(|diff| &diff.latency));
    let (mut measured, mut sides) = (Vec::new(), Vec::new());
    for (index, diff) in comparison.cases.iter_mut().enumerate() {
        let Some(direction) = diff.suspicion(common, &rules) else {
            continue;
        };
        let remeasured = match fresh.get(&diff.case) {
            Some(Fresh::Pairs(pairs)) => Remeasured::InTurn(pairs.clone()),
            Some(Fresh::Alone(now)) => Remeasured::AgainstHeld {
                base: held(diff),
                now: now.clone(),
                // Against runs of an earlier session, what sessions differ by is no finding.
                noise_floor: diff.noise_floor.unwrap_or(0.0),
            },
            None => Remeasured::InTurn(Vec::new()),
        };
        if remeasured.runs() == 0 {
            let slack = diff.slack();
            let explained = environment.filter(|e| diff.latency.is_explained(direction, e, slack, &rules));
            diff.confirmation = Some(explained.map_or(Confirmation::NotMeasured, Confirmation::Explained));
            continue;
        }
        measured.push((index, direction));
        sides.push(remeasured);
    }
    let verdicts = judge_fresh(&sides, &rules);
    for ((index, direction), verdict) in measured.into_iter().zip(verdicts) {
        comparison.cases[index].confirmation = Some(Confirmation::of(direction, verdict));
    }
    comparison
        .cases
        .sort_by_cached_key(|diff| (diff.severity(), diff.case.clone()));
}

fn held(diff: &CaseDiff) -> Vec<f64> {
    let latency = diff.base.as_ref().and_then(|base| base.latency.as_ref());
    latency
        .map(|latency| latency.run_medians_ns.clone())
        .unwrap_or_default()
}

impl CaseDiff {
    /// What is held of the latency in the end: the fresh verdict where a suspect was measured again.
    pub fn final_latency(&self) -> &LatencyVerdict {
        match &self.confirmation {
            Some(
                Confirmation::Confirmed(verdict) | Confirmation::Cleared(verdict) | Confirmation::Unclear(verdict),
            ) => verdict,
            Some(Confirmation::Explained(_) | Confirmation::NotMeasured) | None => &self.latency,
        }
    }
}
