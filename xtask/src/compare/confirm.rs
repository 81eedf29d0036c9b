//! Suspects: cases that must be measured again before they may fail a gate.
//!
//! This is the seam to whoever can start processes: [`suspects`] says which cases need how many fresh
//! process runs per side, [`confirm`] takes what came out. Fresh runs of the reference's own program,
//! interleaved with the run's, are the best second opinion; without them the fresh runs of the run
//! stand against the medians that the reference holds.

use std::collections::BTreeMap;

use super::latency::judge_medians;
use super::{CaseDiff, Comparison, Direction, LatencyVerdict, Rules};
use crate::case_id::CaseId;
use crate::stats;

/// A case to measure again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The case.
    pub case: CaseId,
    /// What it is suspected of.
    pub direction: Direction,
    /// Fresh process runs per side.
    pub repeats: usize,
}

/// Fresh process runs of one suspect, interleaved A/B/B/A where both programs exist.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Fresh {
    /// Medians of the reference's own program, ns; empty where it could not be built.
    pub base_medians_ns: Vec<f64>,
    /// Medians of the run's program, ns.
    pub now_medians_ns: Vec<f64>,
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
    let mut measured = Vec::new();
    for (index, diff) in comparison.cases.iter_mut().enumerate() {
        let Some(direction) = diff.latency.suspicion(common, &rules) else {
            continue;
        };
        let Some(fresh) = fresh.get(&diff.case).filter(|fresh| !fresh.now_medians_ns.is_empty()) else {
            diff.confirmation = Some(Confirmation::NotMeasured);
            continue;
        };
        // Against runs of an earlier session, what sessions differ by is no finding.
        let (base, floor) = if fresh.base_medians_ns.is_empty() {
            let held = diff.base.as_ref().and_then(|base| base.latency.as_ref());
            let held = held.map(|held| held.run_medians_ns.clone()).unwrap_or_default();
            (held, diff.noise_floor.unwrap_or(0.0))
        } else {
            (fresh.base_medians_ns.clone(), 0.0)
        };
        measured.push((index, direction, base, fresh.now_medians_ns.clone(), floor));
    }
    let sides: Vec<_> = measured
        .iter()
        .map(|(_, _, base, now, floor)| (base.as_slice(), now.as_slice(), *floor))
        .collect();
    let verdicts = judge_medians(&sides, &rules);
    for ((index, direction, ..), verdict) in measured.into_iter().zip(verdicts) {
        comparison.cases[index].confirmation = Some(Confirmation::of(direction, verdict));
    }
    comparison
        .cases
        .sort_by_cached_key(|diff| (diff.severity(), diff.case.clone()));
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
