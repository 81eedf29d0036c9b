//! The verdict of an attempt: exit status, report, log and supervision weighed against each other.
//!
//! Precedence, strongest first:
//! 1. the sweep was interrupted;
//! 2. the ring config in force is not the one that was asked for: whatever else happened, it did
//!    not happen to this case;
//! 3. the first failure of a dispatch that the report tells (runtime code, watchdog, panic): the
//!    abort or the timeout that followed is fallout;
//! 4. a cause that the log's rules find;
//! 5. the supervisor's own doing: a budget, a stopped process, the kernel's out-of-memory killer;
//! 6. outputs that failed their comparison, non-finite before finite;
//! 7. the program's own verdict of failure;
//! 8. exit status: a signal or a code that nothing explains is a crash, whatever was printed;
//! 9. a pass: exit 0, a verdict of `pass`, at least one output compared and none that failed, and
//!    an undamaged report. Everything short of that is `no-verdict`.

mod claim;
mod evidence;
mod quote;
mod trouble;

use std::num::NonZeroI32;

pub use quote::quote_end;

use crate::detector;
use crate::outcome::{CrashCause, NoVerdictCause, OomCause, Outcome, RingReadback};
use crate::process::{Ended, ExitState, SpawnError, Stop};
use crate::protocol::{Damage, Report};
use crate::record::{Evidence, ResourceSizes};
use crate::runner::{LaunchError, Observation};

/// An outcome and what shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The verdict.
    pub outcome: Outcome,
    /// What shows it.
    pub evidence: Evidence,
}

/// Judges an attempt whose process ran: `asked` is what it was to get, `log` its output.
pub fn judge(ended: &Ended, observation: &Observation, asked: &ResourceSizes, log: &[u8]) -> Verdict {
    let empty = (Report::default(), None);
    let (report, damage) = observation.report.as_ref().unwrap_or(&empty);
    let candidates = [
        interrupted(ended),
        rings_not_applied(report, &observation.effective, asked),
        trouble::first(report, &ended.exit, log),
        found_in_log(observation, ended),
        ended_by_supervisor(ended, report, log),
        claim::failed_outputs(report),
        claim::of_failure(report),
        bad_exit(ended, log),
    ];
    let mut reasons = candidates
        .into_iter()
        .flatten()
        .filter(|reason| detector::sees_outcome(&reason.outcome));
    let mut verdict = match reasons.next() {
        Some(first) => first,
        None => pass_or_nothing(observation, report, damage.as_ref(), log),
    };
    for fallout in reasons {
        if is_its_own_echo(&fallout.outcome, report) {
            continue;
        }
        let shown = fallout.outcome.to_string();
        if fallout.outcome != verdict.outcome && !verdict.evidence.fallout.contains(&shown) {
            verdict.evidence.fallout.push(shown);
        }
    }
    evidence::add_supervision(&mut verdict.evidence, ended);
    if let Some(damage) = damage
        && verdict.outcome != Outcome::NoVerdict(NoVerdictCause::Unreadable)
    {
        verdict
            .evidence
            .fallout
            .push(format!("no-verdict/unreadable ({damage})"));
    }
    verdict
}

/// Judges an attempt that could not be prepared.
pub fn not_launched(error: &LaunchError) -> Verdict {
    let evidence = Evidence {
        summary: error.message.clone(),
        source: "plan".into(),
        ..Evidence::default()
    };
    Verdict {
        outcome: if_seen(Outcome::SetupError(error.cause)),
        evidence,
    }
}

/// `outcome`, of an attempt that nothing else can be said of.
fn if_seen(outcome: Outcome) -> Outcome {
    if detector::sees_outcome(&outcome) {
        outcome
    } else {
        Outcome::Missing
    }
}

/// Judges an attempt whose process could not be started.
pub fn not_started(error: &SpawnError) -> Verdict {
    use crate::outcome::SetupCause;
    let source = std::error::Error::source(error)
        .map(|source| format!(": {source}"))
        .unwrap_or_default();
    let evidence = Evidence {
        summary: format!("{error}{source}"),
        source: "supervisor".into(),
        ..Evidence::default()
    };
    let cause = match error {
        SpawnError::NotFound { .. } | SpawnError::Start { .. } => SetupCause::Launch,
        SpawnError::Log { .. } | SpawnError::Watch { .. } => SetupCause::Environment,
    };
    Verdict {
        outcome: if_seen(Outcome::SetupError(cause)),
        evidence,
    }
}

/// Whether a crash is no more than the exit status 1 that goes with a verdict of failure by the protocol.
fn is_its_own_echo(outcome: &Outcome, report: &Report) -> bool {
    let failed = report.verdict.as_ref().is_some_and(|claim| claim.verdict != "pass");
    failed && matches!(outcome, Outcome::Crash(CrashCause::Exit(code)) if code.get() == 1)
}

fn interrupted(ended: &Ended) -> Option<Verdict> {
    // A case that had ended well before the request reached it has its own verdict.
    (ended.stop == Some(Stop::Interrupted) && !ended.exit.is_success()).then(|| {
        let summary = format!("stopped after {:.1?} because the sweep was interrupted", ended.elapsed);
        Verdict {
            outcome: Outcome::Interrupted,
            evidence: Evidence {
                summary,
                source: "supervisor".into(),
                ..Evidence::default()
            },
        }
    })
}

fn rings_not_applied(report: &Report, read_back: &[ResourceSizes], asked: &ResourceSizes) -> Option<Verdict> {
    let (place, effective) = match report.differing_rings(asked) {
        Some(rings) => (
            format!("dispatch {} rank {}", rings.dispatch, rings.rank),
            rings.effective.filter(|sizes| sizes != asked).unwrap_or(rings.asked),
        ),
        None => ("the log".into(), *read_back.iter().find(|sizes| *sizes != asked)?),
    };
    let (resource, ring, want, got) = evidence::first_difference(asked, &effective)?;
    let summary = format!("{place}: {resource} of ring {ring} is {got}, asked for was {want}");
    Some(Verdict {
        outcome: Outcome::ConfigNotApplied(RingReadback::RingDiffers),
        evidence: Evidence {
            summary,
            source: "read-back".into(),
            ..Evidence::default()
        },
    })
}

/// What the rules found, unless it is only the exit status, which is weighed later.
fn found_in_log(observation: &Observation, ended: &Ended) -> Option<Verdict> {
    let (outcome, evidence) = observation.finding.as_ref()?;
    let generic = matches!(
        outcome,
        Outcome::Crash(_) | Outcome::Timeout(_) | Outcome::NoVerdict(_) | Outcome::Pass
    );
    if generic && ended.stop.is_some() {
        return None;
    }
    // A claim of success is weighed last, against everything else.
    (*outcome != Outcome::Pass).then(|| Verdict {
        outcome: outcome.clone(),
        evidence: evidence.clone(),
    })
}

fn ended_by_supervisor(ended: &Ended, report: &Report, log: &[u8]) -> Option<Verdict> {
    let (outcome, summary) = match &ended.stop {
        Some(Stop::Budget { budget, limit }) => {
            let stage = report
                .open_stage
                .as_ref()
                .map(|stage| format!(" in stage `{stage}`"))
                .unwrap_or_default();
            (
                Outcome::Timeout(*budget),
                format!("the {budget} budget of {limit:?} ran out{stage}"),
            )
        }
        Some(Stop::Suspended(signal)) => {
            let summary = format!("{} stopped the process and nobody continued it", signal.as_str());
            (Outcome::Crash(CrashCause::Signal(signal.clone())), summary)
        }
        None if ended.out_of_memory_kill => (
            Outcome::Oom(OomCause::Host),
            "the kernel's out-of-memory killer ended the process".into(),
        ),
        Some(Stop::Interrupted) | None => return None,
    };
    let mut evidence = Evidence {
        summary,
        source: "supervisor".into(),
        lines: quote_end(log),
        ..Evidence::default()
    };
    evidence::add_tree(&mut evidence, ended);
    Some(Verdict { outcome, evidence })
}

fn bad_exit(ended: &Ended, log: &[u8]) -> Option<Verdict> {
    let (cause, summary) = match &ended.exit {
        ExitState::Code(code) => {
            let code = NonZeroI32::new(*code)?;
            (CrashCause::Exit(code), format!("exit status {code} without a cause"))
        }
        ExitState::Signal(signal) => (
            CrashCause::Signal(signal.clone()),
            format!("ended by {}", signal.as_str()),
        ),
    };
    // The launcher's own failure is no crash of the program, which never ran.
    if let Some(verdict) = claim::launcher_failure(&ended.exit, log) {
        return Some(verdict);
    }
    let evidence = Evidence {
        summary,
        source: "exit-status".into(),
        lines: quote_end(log),
        ..Evidence::default()
    };
    Some(Verdict {
        outcome: Outcome::Crash(cause),
        evidence,
    })
}

/// Exit 0 and nothing that failed: a pass if everything that makes one is there.
fn pass_or_nothing(observation: &Observation, report: &Report, damage: Option<&Damage>, log: &[u8]) -> Verdict {
    let nothing = |cause, summary: String| Verdict {
        outcome: Outcome::NoVerdict(cause),
        evidence: Evidence {
            summary,
            source: "exit-status".into(),
            lines: quote_end(log),
            ..Evidence::default()
        },
    };
    let claims_pass = report.verdict.as_ref().is_some_and(|claim| claim.verdict == "pass");
    let claimed_in_log = matches!(observation.finding, Some((Outcome::Pass, _)));
    let doubts = [
        damage.map(|damage| nothing(NoVerdictCause::Unreadable, damage.to_string())),
        (claims_pass && report.tensors.is_empty()).then(|| {
            let summary = "the report says `pass`, but no output was compared";
            nothing(NoVerdictCause::ValidationSkipped, summary.into())
        }),
        (claims_pass && report.bad_samples > 0).then(|| {
            let summary = format!("{} samples are no durations", report.bad_samples);
            nothing(NoVerdictCause::Unreadable, summary)
        }),
        (!claims_pass && !claimed_in_log).then(|| {
            let summary = "exit status 0, but nothing says that it passed";
            nothing(NoVerdictCause::NoPassLine, summary.into())
        }),
    ];
    let seen = |doubt: &Verdict| detector::sees_outcome(&doubt.outcome);
    if let Some(doubt) = doubts.into_iter().flatten().find(seen) {
        return doubt;
    }
    let evidence = match &observation.finding {
        Some((Outcome::Pass, evidence)) if !claims_pass => evidence.clone(),
        _ => claim::pass_evidence(report),
    };
    Verdict {
        outcome: Outcome::Pass,
        evidence,
    }
}

#[cfg(test)]
mod tests;
