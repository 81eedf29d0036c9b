//! Declared expectations, skips and retries.

use jiff::civil::Date;

use crate::detector::{self, Detector, Part};
use crate::outcome::{Outcome, OutcomeKind};
use crate::record::{Detail, Evidence};

/// What a case ends in: a known failure until somebody mends it, or a pass that leaves a trace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expectation {
    /// The outcome that is true today.
    pub outcome: OutcomeKind,
    /// Its cause, or `None` for any cause.
    pub cause: Option<String>,
    /// The ring that the evidence names, or `None` for any.
    pub ring: Option<u8>,
    /// Texts that the evidence shows, each in its summary, a quoted line or its fallout.
    pub shows: Vec<String>,
    /// Where it is tracked.
    pub issue: Option<String>,
    /// The last day on which the expectation holds.
    pub until: Option<Date>,
    /// What the harness is to make of the declaration itself; only suites that test the harness say so.
    pub reported: Option<Reported>,
}

/// A judgement of the harness that a suite may ask for instead of a declaration that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reported {
    /// The declaration is past its day.
    Expired,
    /// The declared failure is gone.
    UnexpectedPass,
    /// Something else happened than was declared.
    NotMet,
}

impl Reported {
    /// Each with its word.
    pub const CHOICES: [(&'static str, Self); 3] = [
        (Self::Expired.token(), Self::Expired),
        (Self::UnexpectedPass.token(), Self::UnexpectedPass),
        (Self::NotMet.token(), Self::NotMet),
    ];
    /// The word in suites.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::UnexpectedPass => "unexpected-pass",
            Self::NotMet => "not-met",
        }
    }
}

impl Expectation {
    /// True when `outcome` with its `evidence` is what was expected.
    pub fn met_by(&self, outcome: &Outcome, evidence: &Evidence) -> bool {
        let holds = |part, fits: bool| fits || !detector::sees(&Detector::Expectation(part));
        let cause = self.cause.as_ref().is_none_or(|cause| *cause == outcome.cause());
        let ring = self.ring.is_none() || self.ring == ring_of(evidence);
        holds(Part::Kind, self.outcome == outcome.kind())
            && holds(Part::Cause, cause)
            && holds(Part::Ring, ring)
            && holds(Part::Shows, self.shows.iter().all(|text| evidence.shows(text)))
    }

    /// True when `today` is after the last day.
    pub fn expired(&self, today: Date) -> bool {
        self.until.is_some_and(|until| today > until) && detector::sees(&Detector::Expectation(Part::Until))
    }
}

/// The ring that `evidence` names.
fn ring_of(evidence: &Evidence) -> Option<u8> {
    match &evidence.detail {
        Some(Detail::Ring(shortage)) => shortage.ring,
        Some(Detail::Stall(_) | Detail::Tensors(_)) | None => None,
    }
}

/// When a case is tried again: by what it ended in only, never by how it feels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Retry {
    /// The outcomes that are tried again.
    pub on: Vec<OutcomeKind>,
    /// The most attempts in all, the first one counted; at least 2.
    pub attempts: u32,
}
