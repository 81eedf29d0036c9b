//! The first failure of a dispatch that a report tells.

use std::num::NonZeroI32;

use super::{Verdict, quote};
use crate::outcome::{CrashCause, DeadlockCause, Outcome, RejectCause, SignalName, StallCause};
use crate::process::ExitState;
use crate::protocol::{FatalFacts, Report, Trouble};
use crate::record::{Detail, Evidence};

/// The verdict that the first trouble of `report` makes.
pub(super) fn first(report: &Report, exit: &ExitState, log: &[u8]) -> Option<Verdict> {
    let trouble = report.troubles.first()?;
    let mut evidence = Evidence {
        source: "report".into(),
        ..Evidence::default()
    };
    let outcome = match trouble {
        Trouble::Fatal(fatal) => {
            let mut shortage = fatal.shortage.clone();
            shortage.launched = report.launched(fatal.dispatch);
            evidence.summary = fatal_summary(fatal, shortage.launched);
            evidence.lines = quote::quote_from(log, "FATAL");
            evidence.detail = Some(Detail::Ring(shortage));
            outcome_of_code(fatal.code).unwrap_or_else(|| Outcome::DeviceFault(named(fatal)))
        }
        Trouble::Stall { dispatch, class, facts } => {
            let stuck = facts
                .stuck_task
                .as_ref()
                .map(|task| format!(", stuck on {task}"))
                .unwrap_or_default();
            let done = match (facts.completed, facts.total) {
                (Some(completed), Some(total)) => format!(", {completed} of {total} tasks done"),
                _ => String::new(),
            };
            evidence.summary = format!("{}no progress ({class}){done}{stuck}", place(*dispatch));
            evidence.lines = quote::quote_from(log, "STALL");
            evidence.detail = Some(Detail::Stall(facts.clone()));
            Outcome::Stall(StallCause::from_token(class).unwrap_or(StallCause::Unknown))
        }
        Trouble::Panic {
            dispatch,
            task,
            message,
        } => {
            let task = task.as_ref().map(|task| format!(" in task {task}")).unwrap_or_default();
            evidence.summary = format!("{}panic{task}: {message}", place(*dispatch));
            evidence.lines = quote::quote_end(log);
            Outcome::Crash(crash_after_panic(exit))
        }
    };
    if evidence.lines.is_empty() {
        evidence.lines = quote::quote_end(log);
    }
    let later = report.troubles.iter().skip(1);
    evidence.fallout.extend(later.map(|trouble| match trouble {
        Trouble::Fatal(fatal) => format!("{} in dispatch {}", named(fatal), fatal.dispatch),
        Trouble::Stall { dispatch, class, .. } => format!("stall/{class} in dispatch {dispatch}"),
        Trouble::Panic { dispatch, .. } => format!("panic in dispatch {dispatch}"),
    }));
    Some(Verdict { outcome, evidence })
}

/// How a process ended that reported a panic; one that claims success afterwards is taken for an abort.
fn crash_after_panic(exit: &ExitState) -> CrashCause {
    match exit {
        ExitState::Signal(signal) => CrashCause::Signal(signal.clone()),
        ExitState::Code(code) => {
            NonZeroI32::new(*code).map_or_else(|| CrashCause::Signal(SignalName::from_number(6)), CrashCause::Exit)
        }
    }
}

fn named(fatal: &FatalFacts) -> String {
    if fatal.name.is_empty() {
        format!("code {}", fatal.code)
    } else {
        fatal.name.clone()
    }
}

/// Which dispatch, where it is not the first one.
fn place(dispatch: u32) -> String {
    if dispatch == 0 {
        String::new()
    } else {
        format!("benchmark dispatch {dispatch}: ")
    }
}

fn fatal_summary(fatal: &FatalFacts, launched: Option<bool>) -> String {
    use std::fmt::Write;
    let mut text = format!("{}code {} {}", place(fatal.dispatch), fatal.code, named(fatal));
    let shortage = &fatal.shortage;
    // Writing to a string can't fail.
    if let Some(ring) = shortage.ring {
        let _ = write!(text, ", ring {ring}");
    }
    for (name, value) in [
        ("requested", shortage.requested),
        ("free", shortage.free),
        ("capacity", shortage.capacity),
    ] {
        if let Some(value) = value {
            let _ = write!(text, ", {name} {value}");
        }
    }
    if launched == Some(false) {
        text.push_str(", before the first kernel launch");
    }
    if shortage.requested.is_none() && !fatal.message.is_empty() {
        let _ = write!(text, ": {}", fatal.message);
    }
    text
}

/// The outcome of the runtime's codes: 1 to 99 from the orchestrator, 100 and more from the scheduler.
fn outcome_of_code(code: i64) -> Option<Outcome> {
    Some(match code {
        1 => Outcome::Deadlock(DeadlockCause::Scope),
        2 => Outcome::Deadlock(DeadlockCause::HeapRing),
        3 => Outcome::Deadlock(DeadlockCause::FlowControl),
        4 => Outcome::Deadlock(DeadlockCause::DepPool),
        5 => Outcome::RuntimeError(RejectCause::InvalidArgs),
        7 => Outcome::RuntimeError(RejectCause::RequireSyncStartInvalid),
        8 => Outcome::Stall(StallCause::TensorWait),
        9 => Outcome::RuntimeError(RejectCause::ExplicitOrchFatal),
        10 => Outcome::RuntimeError(RejectCause::ScopeTasksOverflow),
        11 => Outcome::Deadlock(DeadlockCause::TensorMap),
        100 => Outcome::Stall(StallCause::Unknown),
        101 => Outcome::RuntimeError(RejectCause::AsyncCompletionInvalid),
        102 => Outcome::RuntimeError(RejectCause::AsyncWaitOverflow),
        103 => Outcome::RuntimeError(RejectCause::AsyncRegistrationFailed),
        104 => Outcome::RuntimeError(RejectCause::ReadyQueueOverflow),
        _ => return None,
    })
}
