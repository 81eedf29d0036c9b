//! How a case's outcome stands against the reference's.

use super::CaseSummary;
use crate::outcome::OutcomeKind;
use crate::record::Expectation;

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OutcomeChange {
    /// Passed in the reference, doesn't now.
    Regressed,
    /// Declared or in the reference, and without a terminal record.
    Missing,
    /// Failed in the reference and fails in another way now.
    ChangedCause,
    /// Not in the reference, and fails.
    NewFailing,
    /// Its declared failure is past its date.
    Expired,
    /// Passes although a failure is declared.
    UnexpectedPass,
    /// Ran in the reference, is skipped now.
    NewlySkipped,
    /// Fails as its suite declares, though it passed in the reference or is not in it.
    DeclaredFailure,
    /// Fails as it did in the reference.
    KnownFailure,
    /// Not in the reference, and passes or is skipped.
    New,
    /// Failed or was skipped in the reference, passes now.
    Fixed,
    /// Passes, or is skipped, as in the reference.
    Same,
}

impl OutcomeChange {
    /// Every kind, worst first.
    pub const ALL: [Self; 12] = [
        Self::Regressed,
        Self::Missing,
        Self::ChangedCause,
        Self::NewFailing,
        Self::Expired,
        Self::UnexpectedPass,
        Self::NewlySkipped,
        Self::DeclaredFailure,
        Self::KnownFailure,
        Self::New,
        Self::Fixed,
        Self::Same,
    ];

    /// The word for it in every file and report.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Regressed => "regressed",
            Self::Missing => "missing",
            Self::ChangedCause => "changed-cause",
            Self::NewFailing => "new-failing",
            Self::Expired => "expired",
            Self::UnexpectedPass => "unexpected-pass",
            Self::NewlySkipped => "newly-skipped",
            Self::DeclaredFailure => "declared-failure",
            Self::KnownFailure => "known-failure",
            Self::New => "new",
            Self::Fixed => "fixed",
            Self::Same => "same",
        }
    }

    /// The change from `base` to `now`.
    pub fn of(base: Option<&CaseSummary>, now: Option<&CaseSummary>) -> Self {
        let Some(now) = now else {
            return Self::Missing;
        };
        let kind = now.outcome.kind();
        match (kind, &now.expectation) {
            (OutcomeKind::Missing | OutcomeKind::Interrupted, _) => return Self::Missing,
            (_, Expectation::Expired(_)) => return Self::Expired,
            (_, Expectation::UnexpectedPass(_)) => return Self::UnexpectedPass,
            (_, Expectation::None | Expectation::Met(_) | Expectation::NotMet(_)) => {}
        }
        let declared = matches!(now.expectation, Expectation::Met(_));
        let Some(base) = base else {
            return match kind {
                OutcomeKind::Pass | OutcomeKind::Skipped => Self::New,
                _ if declared => Self::DeclaredFailure,
                _ => Self::NewFailing,
            };
        };
        match (base.outcome.kind(), kind) {
            (OutcomeKind::Skipped, OutcomeKind::Skipped) | (OutcomeKind::Pass, OutcomeKind::Pass) => Self::Same,
            (_, OutcomeKind::Skipped) => Self::NewlySkipped,
            (_, OutcomeKind::Pass) => Self::Fixed,
            // The blocked case's own failure is unknown; which earlier case blocked it changes nothing.
            (OutcomeKind::Blocked, OutcomeKind::Blocked) => Self::KnownFailure,
            _ if base.outcome == now.outcome => Self::KnownFailure,
            _ if declared => Self::DeclaredFailure,
            (OutcomeKind::Pass | OutcomeKind::Skipped, _) => Self::Regressed,
            _ => Self::ChangedCause,
        }
    }
}

impl std::fmt::Display for OutcomeChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.token())
    }
}
