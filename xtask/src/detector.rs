//! The detectors: every step that turns evidence into an outcome or a judgement, by name.
//!
//! The fault suite claims that the harness sees every way in which a case can end. A claim like that can be wrong in
//! one way that no green run shows: a detector that has gone blind while its case passes for another reason. So each
//! step asks [`sees`] before it speaks, and a test blinds them one by one and wants the suite red each time.
//!
//! Only [`blind`] switches a detector off, and only `tests/programs/blindfold.rs` calls it (clippy enforces that): a
//! program which is the whole command line and built beside it, never what `cargo xtask` runs. No option, variable or
//! file reaches it. A Cargo feature would have been the other way; it would compile the harness twice for every test
//! run, and the features of a workspace unify, so that one `cargo test --workspace` would have blinded the binary that
//! everybody runs.

use std::fmt;
use std::sync::OnceLock;

use crate::classify::Class;
use crate::device::Health;
use crate::outcome::{Outcome, OutcomeKind};

/// One detector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detector {
    /// All that finds this outcome, by kind and cause. Where causes are no closed list, the cause is empty; for `crash`
    /// it tells signals from exit codes.
    Outcome(OutcomeKind, &'static str),
    /// All that is seen through lines of a log of this class.
    Lines(Class),
    /// What an attempt left behind.
    Leak,
    /// A device that a case has left in doubt.
    SuspectDevice,
    /// An answer of a health check.
    HealthCheck(Health),
    /// Part of a declared expectation.
    Expectation(Part),
}

/// A part of a declared expectation that is compared with what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The kind of the outcome.
    Kind,
    /// Its cause.
    Cause,
    /// The ring of the evidence.
    Ring,
    /// What the evidence must show.
    Shows,
    /// The day.
    Until,
    /// A pass where a failure was declared.
    Pass,
}

impl Part {
    const ALL: [Self; 6] = [
        Self::Kind,
        Self::Cause,
        Self::Ring,
        Self::Shows,
        Self::Until,
        Self::Pass,
    ];

    const fn token(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Cause => "cause",
            Self::Ring => "ring",
            Self::Shows => "shows",
            Self::Until => "until",
            Self::Pass => "pass",
        }
    }
}

/// The two ways to crash, which have endless causes.
const BY_SIGNAL: &str = "signal";
const BY_EXIT: &str = "exit";

impl Detector {
    /// Every detector.
    ///
    /// `pass` is what is left when none speaks. `missing` and `interrupted` are no evidence: they say that the harness
    /// was stopped.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for kind in OutcomeKind::ALL {
            match kind {
                OutcomeKind::Pass | OutcomeKind::Missing | OutcomeKind::Interrupted => {}
                OutcomeKind::Crash => all.extend([Self::Outcome(kind, BY_SIGNAL), Self::Outcome(kind, BY_EXIT)]),
                OutcomeKind::DeviceFault | OutcomeKind::Blocked | OutcomeKind::Skipped => {
                    all.push(Self::Outcome(kind, ""));
                }
                OutcomeKind::Deadlock
                | OutcomeKind::Stall
                | OutcomeKind::Timeout
                | OutcomeKind::Oom
                | OutcomeKind::RuntimeError
                | OutcomeKind::ConfigNotApplied
                | OutcomeKind::Nan
                | OutcomeKind::Mismatch
                | OutcomeKind::CompileError
                | OutcomeKind::SetupError
                | OutcomeKind::NoVerdict => {
                    let causes = kind.cause_tokens().expect("only the kinds above have open causes");
                    all.extend(causes.into_iter().map(|cause| Self::Outcome(kind, cause)));
                }
            }
        }
        // A detail only adds numbers to the failure before it, and a marker only says where the log stands.
        let outcomes = |class: &Class| !matches!(class, Class::Detail | Class::Marker);
        all.extend(Class::ALL.into_iter().filter(outcomes).map(Self::Lines));
        all.extend([
            Self::Leak,
            Self::SuspectDevice,
            Self::HealthCheck(Health::Well),
            Self::HealthCheck(Health::Bad),
        ]);
        all.extend(Part::ALL.map(Self::Expectation));
        all
    }

    /// The detector that [`fmt::Display`] gives this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|detector| detector.to_string() == name)
    }

    /// The detector of `outcome`, unless nothing needs to detect it.
    fn of(outcome: &Outcome) -> Option<Self> {
        use crate::outcome::CrashCause;
        let kind = outcome.kind();
        let cause = match outcome {
            Outcome::Crash(CrashCause::Signal(_)) => BY_SIGNAL,
            Outcome::Crash(CrashCause::Exit(_)) => BY_EXIT,
            other => {
                let cause = other.cause();
                let known = kind.cause_tokens().unwrap_or_default();
                known.into_iter().find(|token| *token == cause).unwrap_or_default()
            }
        };
        Some(Self::Outcome(kind, cause)).filter(|_| {
            !matches!(
                kind,
                OutcomeKind::Pass | OutcomeKind::Missing | OutcomeKind::Interrupted
            )
        })
    }
}

impl fmt::Display for Detector {
    /// `deadlock/heap-ring`, `crash/signal`, `lines/root`, `health-check/bad`, …
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outcome(kind, "") => f.pad(kind.token()),
            Self::Outcome(kind, cause) => f.pad(&format!("{kind}/{cause}")),
            Self::Lines(class) => f.pad(&format!("lines/{class}")),
            Self::Leak => f.pad("leak"),
            Self::SuspectDevice => f.pad("suspect-device"),
            Self::HealthCheck(Health::Well) => f.pad("health-check/well"),
            Self::HealthCheck(Health::Bad) => f.pad("health-check/bad"),
            Self::Expectation(part) => f.pad(&format!("expectation/{}", part.token())),
        }
    }
}

/// Set once, by a test's program, before anything is detected.
static BLIND: OnceLock<Detector> = OnceLock::new();

/// Switches `detector` off for the rest of this process. Of the first call only; later ones do nothing.
pub fn blind(detector: Detector) {
    // A second detector would only blur what the first one is blamed for.
    let _ = BLIND.set(detector);
}

/// Whether `detector` may speak: always, but in a test of what happens when it doesn't.
pub fn sees(detector: &Detector) -> bool {
    BLIND.get() != Some(detector)
}

/// Whether `outcome` may be found.
pub fn sees_outcome(outcome: &Outcome) -> bool {
    BLIND
        .get()
        .is_none_or(|blind| Detector::of(outcome).as_ref() != Some(blind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_detector_has_a_name_of_its_own() {
        let all = Detector::all();
        for detector in &all {
            assert_eq!(Detector::from_name(&detector.to_string()).as_ref(), Some(detector));
        }
        assert_eq!(Detector::from_name("pass"), None);
    }

    #[test]
    fn every_outcome_that_evidence_shows_has_its_detector() {
        let named = |kind: &str, cause: &str| {
            Detector::of(&Outcome::from_tokens(kind, cause).unwrap()).map(|detector| detector.to_string())
        };
        assert_eq!(named("deadlock", "heap-ring").unwrap(), "deadlock/heap-ring");
        assert_eq!(named("crash", "SIGSEGV").unwrap(), "crash/signal");
        assert_eq!(named("crash", "exit-3").unwrap(), "crash/exit");
        assert_eq!(named("device-fault", "507018").unwrap(), "device-fault");
        assert_eq!(named("pass", ""), None);
        for detector in Detector::all() {
            if let Detector::Outcome(kind, cause) = &detector
                && kind.cause_tokens().is_some()
            {
                let outcome = Outcome::from_tokens(kind.token(), cause).unwrap();
                assert_eq!(Detector::of(&outcome), Some(detector));
            }
        }
    }
}
