//! What foreign runners read from an attempt: the log by rules, and the report if one was written.

use std::path::{Path, PathBuf};

use super::{Assignment, Observation};
use crate::classify::{self, Context, EndStatus, Finding, LoadError, RuleSet};
use crate::process::{Ended, ExitState, Stop};
use crate::protocol;

/// The status of `ended` as rules see it.
pub(super) fn status(ended: &Ended) -> EndStatus {
    match (&ended.stop, &ended.exit) {
        (Some(Stop::Budget { budget, .. }), _) => EndStatus::TimedOut(*budget),
        (_, ExitState::Code(code)) => EndStatus::Exited(*code),
        (_, ExitState::Signal(signal)) => EndStatus::Signaled(signal.clone()),
    }
}

/// Rule sets by name, looked up where suites stand.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    cases: PathBuf,
}

impl Rules {
    pub(super) fn of(cases: &Path) -> Self {
        Self { cases: cases.into() }
    }

    pub(super) fn load(&self, name: &str) -> Result<RuleSet, LoadError> {
        classify::load(name, &self.cases)
    }
}

/// Log and report of an attempt, read.
pub(super) fn observe(
    assignment: &Assignment<'_>,
    rules: &RuleSet,
    context: &Context,
    log: &[u8],
) -> (Observation, Finding) {
    // A report that can't be read back is as good as one that was never written.
    let bytes = std::fs::read(&assignment.paths.report).unwrap_or_default();
    let report = (!bytes.is_empty()).then(|| protocol::read(&bytes));
    let finding = rules.classify(log, context);
    let claims = report.as_ref().is_some_and(|(report, _)| report.verdict.is_some());
    // Where the report has a verdict, a log in which no rule matches says nothing beside it.
    let says_nothing = finding.rule.is_none() && claims;
    let observation = Observation {
        report,
        finding: (!says_nothing).then(|| (finding.outcome.clone(), finding.evidence.clone())),
        ..Observation::default()
    };
    (observation, finding)
}
