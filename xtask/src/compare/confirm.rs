//! Suspects: cases that must be measured again before they may fail a gate.
//!
//! This is the seam to whoever can start processes: [`suspects`] says which cases need how many fresh
//! process runs per side and look, [`confirm`] takes what came out. Fresh runs of the reference's own
//! program, in turn with the run's, are the best second opinion; without them the fresh runs of the run
//! stand against the medians that the reference holds. Who is not sure and still looks slow
//! ([`LatencyVerdict::asks_for_more`]) is looked at again, up to `confirm_looks` times.

use std::collections::BTreeMap;

use super::{CaseDiff, Comparison, Direction, Fresh, LatencyVerdict, Remeasured, Rules, judge_fresh};
use crate::case_id::CaseId;
use crate::stats;

/// A case to measure again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The case.
    pub case: CaseId,
    /// What it is suspected of.
    pub direction: Direction,
    /// Fresh process runs per side and look.
    pub repeats: usize,
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
            direction: diff.latency.suspicion(common, &comparison.rules)?,
            repeats: comparison.rules.confirm_repeats,
        })
    });
    suspects.collect()
}

/// Median ratio over cases; 1 where too few have one to speak of a common move.
pub fn common_ratio<'a>(verdicts: impl Iterator<Item = &'a LatencyVerdict>) -> f64 {
    let ratios: Vec<f64> = verdicts.filter_map(LatencyVerdict::ratio).collect();
    if ratios.len() < super::common_mode::LEAST_CASES {
        return 1.0;
    }
    stats::median(&ratios).unwrap_or(1.0)
}

impl LatencyVerdict {
    /// What a case with this verdict is suspected of, where all cases moved by `common`.
    pub fn suspicion(&self, common: f64, rules: &Rules) -> Option<Direction> {
        match self {
            Self::Slower(_) => Some(Direction::Slower),
            Self::Faster(_) => Some(Direction::Faster),
            // Only slowness is worth the time: an unproven gain claims nothing.
            Self::Undecided(_, Some(reading)) => {
                let ratio = reading.ratio.max(reading.ratio / common);
                (ratio > 1.0 + rules.suspect_threshold).then_some(Direction::Slower)
            }
            // Unchanged beside a machine that became faster may be a slowdown.
            Self::Unchanged(effect) => {
                (effect.ratio / common > 1.0 + rules.suspect_threshold).then_some(Direction::Slower)
            }
            Self::None | Self::Undecided(_, None) | Self::Implausible(..) => None,
        }
    }
}

/// Judges the fresh runs, with a correction over the suspects, and notes how each fared.
///
/// A suspect without fresh runs is `NotMeasured`: it is not cleared by silence.
pub fn confirm(comparison: &mut Comparison, fresh: &BTreeMap<CaseId, Fresh>) {
    let rules = comparison.rules.clone();
    let common = common_ratio(comparison.cases.iter().map(|diff| &diff.latency));
    let (mut measured, mut sides) = (Vec::new(), Vec::new());
    for (index, diff) in comparison.cases.iter_mut().enumerate() {
        let Some(direction) = diff.latency.suspicion(common, &rules) else {
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
            diff.confirmation = Some(Confirmation::NotMeasured);
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
            Some(Confirmation::NotMeasured) | None => &self.latency,
        }
    }
}
