//! Declared expectations, skips and retries.

use jiff::civil::Date;

use crate::outcome::{Outcome, OutcomeKind};

/// A known failure: what a case ends in until somebody mends it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expectation {
    /// The outcome that is true today.
    pub outcome: OutcomeKind,
    /// Its cause, or `None` for any cause.
    pub cause: Option<String>,
    /// The ring that the evidence names, or `None` for any.
    pub ring: Option<u8>,
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
}

impl Reported {
    /// Both, with their words.
    pub const CHOICES: [(&'static str, Self); 2] =
        [("expired", Self::Expired), ("unexpected-pass", Self::UnexpectedPass)];
}

impl Expectation {
    /// True when `outcome`, with the ring that its evidence names, is what was expected.
    pub fn met_by(&self, outcome: &Outcome, ring: Option<u8>) -> bool {
        self.outcome == outcome.kind()
            && self.cause.as_ref().is_none_or(|cause| *cause == outcome.cause())
            && (self.ring.is_none() || self.ring == ring)
    }

    /// True when `today` is after the last day.
    pub fn expired(&self, today: Date) -> bool {
        self.until.is_some_and(|until| today > until)
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
