//! What happened to a case: the terminal verdict and its cause.
//!
//! The tokens are the vocabulary of the project: records, suites (`expect`), rules, baselines and
//! reports all use the words that [`OutcomeKind::token`] and [`Outcome::cause`] give.

use std::fmt;

mod cause;

pub use cause::{
    Budget, CompilePart, CrashCause, DeadlockCause, NoVerdictCause, OomCause, Origin, RejectCause, RingReadback,
    SetupCause, SignalName, StallCause,
};

/// The one terminal verdict of a case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// Validated against the golden.
    Pass,
    /// A runtime resource could not admit more.
    Deadlock(DeadlockCause),
    /// Nothing progressed.
    Stall(StallCause),
    /// The runtime rejected the program.
    RuntimeError(RejectCause),
    /// Non-finite output.
    Nan(Origin),
    /// Finite but wrong.
    Mismatch,
    /// Memory ran out.
    Oom(OomCause),
    /// The device or its driver failed; the runtime's or driver's own name of the fault.
    DeviceFault(String),
    /// Ended by a signal or an abnormal exit with no better cause.
    Crash(CrashCause),
    /// A budget of the harness ran out.
    Timeout(Budget),
    /// The program or one of its kernels did not compile.
    CompileError(CompilePart),
    /// The case could not be started as declared.
    SetupError(SetupCause),
    /// Ended without a claim that can be believed.
    NoVerdict(NoVerdictCause),
    /// The ring config in force was not the one that was asked for.
    ConfigNotApplied(RingReadback),
    /// The device is quarantined; the case that made it suspect.
    Blocked(String),
    /// Declared so; the reason.
    Skipped(String),
    /// No terminal record.
    Missing,
    /// Stopped by a signal to the harness.
    Interrupted,
}

/// An [`Outcome`] without its cause.
///
/// The order is the order of severity in reports, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(
    missing_docs,
    reason = "each variant is documented at the variant of `Outcome` with the same name"
)]
pub enum OutcomeKind {
    Missing,
    Interrupted,
    Crash,
    DeviceFault,
    Deadlock,
    Stall,
    Timeout,
    Oom,
    RuntimeError,
    ConfigNotApplied,
    Nan,
    Mismatch,
    CompileError,
    SetupError,
    NoVerdict,
    Blocked,
    Skipped,
    Pass,
}

impl OutcomeKind {
    /// Every kind, by severity.
    pub const ALL: [Self; 18] = [
        Self::Missing,
        Self::Interrupted,
        Self::Crash,
        Self::DeviceFault,
        Self::Deadlock,
        Self::Stall,
        Self::Timeout,
        Self::Oom,
        Self::RuntimeError,
        Self::ConfigNotApplied,
        Self::Nan,
        Self::Mismatch,
        Self::CompileError,
        Self::SetupError,
        Self::NoVerdict,
        Self::Blocked,
        Self::Skipped,
        Self::Pass,
    ];

    /// The word for it in every file and report.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Interrupted => "interrupted",
            Self::Crash => "crash",
            Self::DeviceFault => "device-fault",
            Self::Deadlock => "deadlock",
            Self::Stall => "stall",
            Self::Timeout => "timeout",
            Self::Oom => "oom",
            Self::RuntimeError => "runtime-error",
            Self::ConfigNotApplied => "config-not-applied",
            Self::Nan => "nan",
            Self::Mismatch => "mismatch",
            Self::CompileError => "compile-error",
            Self::SetupError => "setup-error",
            Self::NoVerdict => "no-verdict",
            Self::Blocked => "blocked",
            Self::Skipped => "skipped",
            Self::Pass => "pass",
        }
    }

    /// The kind that `token` names.
    pub fn from_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.token() == token)
    }

    /// Cause tokens that may follow this kind, or `None` where the cause is free text.
    pub fn cause_tokens(self) -> Option<Vec<&'static str>> {
        match self {
            Self::Pass | Self::Missing | Self::Interrupted => Some(vec![]),
            Self::Deadlock => Some(DeadlockCause::ALL.iter().map(|c| c.token()).collect()),
            Self::Stall => Some(StallCause::ALL.iter().map(|c| c.token()).collect()),
            Self::RuntimeError => Some(RejectCause::ALL.iter().map(|c| c.token()).collect()),
            Self::Nan => Some(Origin::ALL.iter().map(|c| c.token()).collect()),
            Self::Mismatch => Some(vec![MISMATCH_CAUSE]),
            Self::Oom => Some(OomCause::ALL.iter().map(|c| c.token()).collect()),
            Self::Timeout => Some(Budget::ALL.iter().map(|c| c.token()).collect()),
            Self::CompileError => Some(CompilePart::ALL.iter().map(|c| c.token()).collect()),
            Self::SetupError => Some(SetupCause::ALL.iter().map(|c| c.token()).collect()),
            Self::NoVerdict => Some(NoVerdictCause::ALL.iter().map(|c| c.token()).collect()),
            Self::ConfigNotApplied => Some(RingReadback::ALL.iter().map(|c| c.token()).collect()),
            Self::Crash | Self::DeviceFault | Self::Blocked | Self::Skipped => None,
        }
    }
}

impl fmt::Display for OutcomeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.token())
    }
}

/// The only cause of a mismatch: the case's output.
const MISMATCH_CAUSE: &str = "output";

/// Why a pair of tokens is no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutcomeError {
    /// The first token is no kind.
    #[error("unknown outcome `{0}`; outcomes are {list}", list = OutcomeKind::ALL.map(OutcomeKind::token).join(", "))]
    Kind(String),
    /// The second token is no cause of that kind.
    #[error("unknown cause `{cause}` of outcome `{kind}`; causes are {valid}")]
    Cause {
        /// The kind that was named.
        kind: OutcomeKind,
        /// The cause that it doesn't have.
        cause: String,
        /// The causes that it has.
        valid: String,
    },
}

impl Outcome {
    /// The verdict without its cause.
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Pass => OutcomeKind::Pass,
            Self::Deadlock(_) => OutcomeKind::Deadlock,
            Self::Stall(_) => OutcomeKind::Stall,
            Self::RuntimeError(_) => OutcomeKind::RuntimeError,
            Self::Nan(_) => OutcomeKind::Nan,
            Self::Mismatch => OutcomeKind::Mismatch,
            Self::Oom(_) => OutcomeKind::Oom,
            Self::DeviceFault(_) => OutcomeKind::DeviceFault,
            Self::Crash(_) => OutcomeKind::Crash,
            Self::Timeout(_) => OutcomeKind::Timeout,
            Self::CompileError(_) => OutcomeKind::CompileError,
            Self::SetupError(_) => OutcomeKind::SetupError,
            Self::NoVerdict(_) => OutcomeKind::NoVerdict,
            Self::ConfigNotApplied(_) => OutcomeKind::ConfigNotApplied,
            Self::Blocked(_) => OutcomeKind::Blocked,
            Self::Skipped(_) => OutcomeKind::Skipped,
            Self::Missing => OutcomeKind::Missing,
            Self::Interrupted => OutcomeKind::Interrupted,
        }
    }

    /// The cause token; empty where the kind has none.
    pub fn cause(&self) -> String {
        match self {
            Self::Pass | Self::Missing | Self::Interrupted => String::new(),
            Self::Deadlock(cause) => cause.token().into(),
            Self::Stall(cause) => cause.token().into(),
            Self::RuntimeError(cause) => cause.token().into(),
            Self::Nan(origin) => origin.token().into(),
            Self::Mismatch => MISMATCH_CAUSE.into(),
            Self::Oom(cause) => cause.token().into(),
            Self::DeviceFault(name) => name.clone(),
            Self::Crash(cause) => cause.to_string(),
            Self::Timeout(budget) => budget.token().into(),
            Self::CompileError(part) => part.token().into(),
            Self::SetupError(cause) => cause.token().into(),
            Self::NoVerdict(cause) => cause.token().into(),
            Self::ConfigNotApplied(what) => what.token().into(),
            Self::Blocked(case) => case.clone(),
            Self::Skipped(reason) => reason.clone(),
        }
    }

    /// The outcome that a kind token and a cause token name.
    pub fn from_tokens(kind: &str, cause: &str) -> Result<Self, OutcomeError> {
        let kind = OutcomeKind::from_token(kind).ok_or_else(|| OutcomeError::Kind(kind.into()))?;
        let found = match kind {
            OutcomeKind::Pass => cause.is_empty().then_some(Self::Pass),
            OutcomeKind::Missing => cause.is_empty().then_some(Self::Missing),
            OutcomeKind::Interrupted => cause.is_empty().then_some(Self::Interrupted),
            OutcomeKind::Deadlock => DeadlockCause::from_token(cause).map(Self::Deadlock),
            OutcomeKind::Stall => StallCause::from_token(cause).map(Self::Stall),
            OutcomeKind::RuntimeError => RejectCause::from_token(cause).map(Self::RuntimeError),
            OutcomeKind::Nan => Origin::from_token(cause).map(Self::Nan),
            OutcomeKind::Mismatch => (cause == MISMATCH_CAUSE).then_some(Self::Mismatch),
            OutcomeKind::Oom => OomCause::from_token(cause).map(Self::Oom),
            OutcomeKind::DeviceFault => Some(Self::DeviceFault(cause.into())),
            OutcomeKind::Crash => CrashCause::from_token(cause).map(Self::Crash),
            OutcomeKind::Timeout => Budget::from_token(cause).map(Self::Timeout),
            OutcomeKind::CompileError => CompilePart::from_token(cause).map(Self::CompileError),
            OutcomeKind::SetupError => SetupCause::from_token(cause).map(Self::SetupError),
            OutcomeKind::NoVerdict => NoVerdictCause::from_token(cause).map(Self::NoVerdict),
            OutcomeKind::ConfigNotApplied => RingReadback::from_token(cause).map(Self::ConfigNotApplied),
            OutcomeKind::Blocked => Some(Self::Blocked(cause.into())),
            OutcomeKind::Skipped => Some(Self::Skipped(cause.into())),
        };
        found.ok_or_else(|| OutcomeError::Cause {
            kind,
            cause: cause.into(),
            valid: match kind.cause_tokens() {
                Some(tokens) if tokens.is_empty() => "none: leave it out".into(),
                Some(tokens) => tokens.join(", "),
                None => "a signal name such as `SIGSEGV`, or `exit-N`".into(),
            },
        })
    }
}

impl fmt::Display for Outcome {
    /// `pass`, `deadlock/heap-ring`, `timeout/silence`, …
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause().as_str() {
            "" => f.pad(self.kind().token()),
            cause => f.pad(&format!("{}/{cause}", self.kind().token())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_pair_reads_back() {
        for kind in OutcomeKind::ALL {
            let causes = match kind.cause_tokens() {
                Some(tokens) if tokens.is_empty() => vec![""],
                Some(tokens) => tokens,
                None if kind == OutcomeKind::Crash => vec!["SIGSEGV", "SIGABRT", "exit-3", "exit-134"],
                None => vec!["507018", "suite/other case"],
            };
            for cause in causes {
                let outcome = Outcome::from_tokens(kind.token(), cause).unwrap();
                assert_eq!((outcome.kind(), outcome.cause().as_str()), (kind, cause));
            }
        }
    }

    #[test]
    fn an_unknown_cause_names_the_valid_ones() {
        let error = Outcome::from_tokens("deadlock", "heap").unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown cause `heap` of outcome `deadlock`; causes are scope, heap-ring, flow-control, dep-pool, tensormap"
        );
        assert!(Outcome::from_tokens("crash", "exit-0").is_err());
        assert!(Outcome::from_tokens("pass", "output").is_err());
        assert!(
            Outcome::from_tokens("passed", "")
                .unwrap_err()
                .to_string()
                .contains("config-not-applied")
        );
    }
}
