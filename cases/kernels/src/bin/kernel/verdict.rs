//! The one terminal verdict of a case, and how ends of dispatches and comparisons become one.

use std::borrow::Cow;

use kernels::compare::{Outcome, TensorVerdict};
use kernels::dispatch::RankEnd;
use ring_runtime::{FatalCode, RunEnd, StallClass};

/// Outcome, cause token and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) outcome: &'static str,
    pub(crate) cause: Cow<'static, str>,
    pub(crate) message: String,
}

impl Verdict {
    pub(crate) fn new(outcome: &'static str, cause: &'static str, message: impl Into<String>) -> Self {
        Self {
            outcome,
            cause: Cow::Borrowed(cause),
            message: message.into(),
        }
    }

    pub(crate) fn pass() -> Self {
        Self::new("pass", "", "")
    }

    /// Whether the process exits with 0.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.outcome, "pass" | "no-verdict")
    }

    /// The verdict on a failed rank.
    pub(crate) fn of_failure(end: &RankEnd) -> Self {
        let report = match end {
            RankEnd::Reported(report) => report,
            RankEnd::ProgramPanicked(text) => {
                return Self::new("crash", "panic", format!("the program panicked: {text}"));
            }
        };
        match &report.end {
            RunEnd::Passed => Self::pass(),
            RunEnd::Fatal(fatal) => {
                let (outcome, cause) = of_code(fatal.code);
                Self::new(outcome, cause, fatal.to_string())
            }
            RunEnd::Stalled(stall) => {
                let stuck = stall
                    .stuck_task
                    .map_or_else(String::new, |(id, name)| format!(", stuck task {id} `{name}`"));
                let message = format!(
                    "no progress at {}/{} tasks, running={} ready={} waiting={}{stuck}",
                    stall.completed, stall.total, stall.running, stall.ready, stall.waiting
                );
                Self::new("stall", stall_class(stall.class), message)
            }
            RunEnd::Panicked(panic) => {
                let message = format!(
                    "task {} `{}` block {}: {}",
                    panic.task, panic.name, panic.block, panic.message
                );
                Self::new("crash", "panic", message)
            }
            RunEnd::Stopped => Self::new("crash", "stopped", "the run was stopped from outside"),
            RunEnd::Poisoned => Self::new("crash", "poisoned", "an earlier dispatch left a core behind"),
        }
    }

    /// The verdict on the outputs: a broken golden first, then non-finite outputs, then mismatches.
    pub(crate) fn of_outputs(verdicts: &[TensorVerdict]) -> Self {
        let worst = |outcome| verdicts.iter().find(|v| v.outcome == outcome);
        let names = |outcome| {
            let names: Vec<_> = verdicts
                .iter()
                .filter(|v| v.outcome == outcome)
                .map(|v| v.name.as_str())
                .collect();
            names.join(", ")
        };
        for (outcome, verdict, cause) in [
            (Outcome::GoldenNan, "nan", "golden"),
            (Outcome::Nan, "nan", "output"),
            (Outcome::Mismatch, "mismatch", "output"),
        ] {
            if let Some(first) = worst(outcome) {
                return Self::new(verdict, cause, format!("{}: {}", names(outcome), first.message));
            }
        }
        Self::pass()
    }
}

fn of_code(code: FatalCode) -> (&'static str, &'static str) {
    match code {
        FatalCode::ScopeDeadlock => ("deadlock", "scope"),
        FatalCode::HeapRingDeadlock => ("deadlock", "heap-ring"),
        FatalCode::FlowControlDeadlock => ("deadlock", "flow-control"),
        FatalCode::DepPoolOverflow => ("deadlock", "dep-pool"),
        FatalCode::TensorMapOverflow => ("deadlock", "tensormap"),
        FatalCode::TensorWaitTimeout => ("stall", "tensor-wait"),
        FatalCode::InvalidArgs => ("runtime-error", "invalid-args"),
        FatalCode::RequireSyncStartInvalid => ("runtime-error", "require-sync-start-invalid"),
        FatalCode::ExplicitOrchFatal => ("runtime-error", "explicit-orch-fatal"),
        FatalCode::ScopeTasksOverflow => ("runtime-error", "scope-tasks-overflow"),
    }
}

/// The class as the report spells it.
pub(crate) fn stall_class(class: StallClass) -> &'static str {
    match class {
        StallClass::S1 => "S1",
        StallClass::S3 => "S3",
        StallClass::S4 => "S4",
        StallClass::S5 => "S5",
        StallClass::Unknown => "unknown",
    }
}
