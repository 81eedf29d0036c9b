//! The order of cases in every report.

use super::{CaseDiff, Confirmation, LatencyVerdict, OutcomeChange};
use crate::outcome::OutcomeKind;

/// How bad a case is: smaller is worse, so that sorting puts it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Severity {
    change: OutcomeChange,
    latency: u8,
    outcome: OutcomeKind,
}

impl Severity {
    pub(super) fn of(diff: &CaseDiff) -> Self {
        let latency = match (&diff.latency, &diff.confirmation) {
            (_, Some(Confirmation::Cleared(_) | Confirmation::Explained(_))) => 4,
            (_, Some(Confirmation::Unclear(_))) => 2,
            (LatencyVerdict::Slower(_), _) => 0,
            (LatencyVerdict::Implausible(..), _) => 1,
            (LatencyVerdict::Undecided(_, Some(reading)), _) if reading.beyond.is_some() => 2,
            (LatencyVerdict::Undecided(..), _) => 3,
            (LatencyVerdict::Faster(_), _) => 5,
            (LatencyVerdict::Unchanged(_), _) => 6,
            (LatencyVerdict::None, _) => 7,
        };
        let change = match diff.change {
            // A slower case stands above what merely is news.
            OutcomeChange::New | OutcomeChange::Fixed | OutcomeChange::Same if latency > 1 => diff.change,
            OutcomeChange::New | OutcomeChange::Fixed | OutcomeChange::Same => OutcomeChange::NewFailing,
            other => other,
        };
        Self {
            change,
            latency,
            outcome: diff.outcome().kind(),
        }
    }
}
