//! Suspects: cases that must be measured again before they may fail a gate.
//!
//! This is the seam to whoever can start processes: [`suspects`] says which cases need how many fresh
//! process runs per side, [`confirm`] takes what came out. Fresh runs of the reference's own program,
//! interleaved with the run's, are the best second opinion; without them the fresh runs of the run
//! stand against the medians that the reference holds.

use std::collections::BTreeMap;

use super::latency::judge_fresh;
use super::{CaseDiff, Comparison, Direction, LatencyVerdict, Rules};
use crate::case_id::CaseId;

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
    /// It did not: the fresh verdict, which is none of slower or faster.
    Cleared(LatencyVerdict),
    /// No fresh runs came back; the first verdict stands.
    NotMeasured,
}

impl Confirmation {
    /// The word for it in every report.
    pub const fn token(&self) -> &'static str {
        match self {
            Self::Confirmed(_) => "confirmed",
            Self::Cleared(_) => "cleared",
            Self::NotMeasured => "not-measured-again",
        }
    }
}

/// The cases to measure again: those called slower or faster, and those that no test could clear and
/// whose ratio of medians is beyond the suspects' threshold.
pub fn suspects(comparison: &Comparison) -> Vec<Suspect> {
    let rules = &comparison.rules;
    comparison
        .cases
        .iter()
        .filter_map(|diff| {
            let direction = suspicion(diff, rules)?;
            Some(Suspect {
                case: diff.case.clone(),
                direction,
                repeats: rules.confirm_repeats,
            })
        })
        .collect()
}

fn suspicion(diff: &CaseDiff, rules: &Rules) -> Option<Direction> {
    match &diff.latency {
        LatencyVerdict::Slower(_) => Some(Direction::Slower),
        LatencyVerdict::Faster(_) => Some(Direction::Faster),
        // Only slowness is worth the time: an unproven gain claims nothing.
        LatencyVerdict::Undecided(_, Some(reading)) => {
            (reading.ratio > 1.0 + rules.suspect_threshold).then_some(Direction::Slower)
        }
        LatencyVerdict::None
        | LatencyVerdict::Unchanged(_)
        | LatencyVerdict::Undecided(_, None)
        | LatencyVerdict::Implausible(..) => None,
    }
}

/// Judges the fresh runs, with a correction over the suspects, and notes how each fared.
///
/// A suspect without fresh runs is `NotMeasured`: it is not cleared by silence.
pub fn confirm(comparison: &mut Comparison, fresh: &BTreeMap<CaseId, Fresh>) {
    let rules = comparison.rules.clone();
    let mut indices = Vec::new();
    let mut sides: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
    for (index, diff) in comparison.cases.iter_mut().enumerate() {
        if suspicion(diff, &rules).is_none() {
            continue;
        }
        let Some(fresh) = fresh.get(&diff.case).filter(|fresh| !fresh.now_medians_ns.is_empty()) else {
            diff.confirmation = Some(Confirmation::NotMeasured);
            continue;
        };
        let base = if fresh.base_medians_ns.is_empty() {
            let held = diff.base.as_ref().and_then(|base| base.latency.as_ref());
            held.map(|held| held.run_medians_ns.clone()).unwrap_or_default()
        } else {
            fresh.base_medians_ns.clone()
        };
        indices.push(index);
        sides.push((base, fresh.now_medians_ns.clone()));
    }
    let borrowed: Vec<(&[f64], &[f64])> = sides.iter().map(|(a, b)| (a.as_slice(), b.as_slice())).collect();
    let judged = judge_fresh(&borrowed, &rules);
    for (index, verdict) in indices.into_iter().zip(judged.verdicts) {
        let diff = &mut comparison.cases[index];
        let again = match (&verdict, suspicion(diff, &rules)) {
            (LatencyVerdict::Slower(_), Some(Direction::Slower))
            | (LatencyVerdict::Faster(_), Some(Direction::Faster)) => true,
            (
                LatencyVerdict::None
                | LatencyVerdict::Slower(_)
                | LatencyVerdict::Faster(_)
                | LatencyVerdict::Unchanged(_)
                | LatencyVerdict::Undecided(..)
                | LatencyVerdict::Implausible(..),
                _,
            ) => false,
        };
        diff.confirmation = Some(if again {
            Confirmation::Confirmed(verdict)
        } else {
            Confirmation::Cleared(verdict)
        });
    }
    comparison
        .cases
        .sort_by_cached_key(|diff| (diff.severity(), diff.case.clone()));
}

impl CaseDiff {
    /// What is held of the latency in the end: the fresh verdict where a suspect was measured again.
    pub fn final_latency(&self) -> &LatencyVerdict {
        match &self.confirmation {
            Some(Confirmation::Confirmed(verdict) | Confirmation::Cleared(verdict)) => verdict,
            Some(Confirmation::NotMeasured) | None => &self.latency,
        }
    }
}
