//! Precedence, one line a rule.

use std::time::Duration;

use super::*;
use crate::outcome::{Budget, SignalName};
use crate::process::OutputSummary;
use crate::protocol;

const HELLO: &str = r#"{"event":"hello","protocol":{"major":1,"minor":0},"program":"k","pid":1}"#;
const TENSOR: &str = r#"{"event":"tensor","name":"y","verdict":"pass","total":8}"#;
const NAN: &str = r#"{"event":"tensor","name":"y","verdict":"nan","total":8,"nonfinite_actual":2}"#;
const WRONG: &str = r#"{"event":"tensor","name":"z","verdict":"mismatch","total":8,"mismatched":3}"#;
const BROKEN_GOLDEN: &str = r#"{"event":"tensor","name":"w","verdict":"golden-nan","total":8,"nonfinite_expected":1}"#;
const PASS: &str = r#"{"event":"verdict","verdict":"pass"}"#;
const FATAL: &str = r#"{"event":"fatal","dispatch":0,"code":2,"name":"HEAP_RING_DEADLOCK","resource":"heap","ring":1,"requested":4096,"free":64,"capacity":8192}"#;
const STALL: &str = r#"{"event":"stall","dispatch":1,"class":"S4","completed":3,"total":9}"#;
const OTHER_RINGS: &str = r#"{"event":"rings","dispatch":1,"rank":0,"asked":{"heap":[1,1,1,1],"task_window":[4,4,4,4],"dep_pool":[4,4,4,4]},"effective":{"heap":[1,2,1,1],"task_window":[4,4,4,4],"dep_pool":[4,4,4,4]}}"#;

const ASKED: ResourceSizes = ResourceSizes {
    heap: [1; 4],
    task_window: [4; 4],
    dep_pool: [4; 4],
};

fn ended(exit: ExitState, stop: Option<Stop>) -> Ended {
    Ended {
        exit,
        stop,
        needed_kill: false,
        out_of_memory_kill: false,
        elapsed: Duration::from_secs(1),
        phases: Vec::new(),
        output: OutputSummary {
            total_bytes: 0,
            omitted: None,
        },
        survivors: Vec::new(),
        output_held: false,
        tree: Vec::new(),
    }
}

fn exit(code: i32) -> Ended {
    ended(ExitState::Code(code), None)
}

fn signal(number: i32) -> Ended {
    ended(ExitState::Signal(SignalName::from_number(number)), None)
}

fn verdict_of(ended: &Ended, lines: &[&str]) -> Verdict {
    let text = format!("{}\n", lines.join("\n"));
    let observation = Observation {
        report: Some(protocol::read(text.as_bytes())),
        ..Observation::default()
    };
    judge(ended, &observation, &ASKED, b"first\nlast\n")
}

#[track_caller]
fn check(ended: &Ended, lines: &[&str], expected: &str) {
    assert_eq!(verdict_of(ended, lines).outcome.to_string(), expected);
}

#[test]
fn a_pass_needs_everything() {
    check(&exit(0), &[HELLO, TENSOR, PASS], "pass");
    check(&exit(0), &[HELLO, PASS], "no-verdict/validation-skipped");
    check(&exit(0), &[HELLO, TENSOR], "no-verdict/no-pass-line");
    check(&exit(0), &[], "no-verdict/no-pass-line");
    check(&exit(0), &[HELLO, "rubbish", TENSOR, PASS], "no-verdict/unreadable");
    check(&exit(0), &[TENSOR, PASS], "no-verdict/unreadable");
}

#[test]
fn a_bad_exit_beats_a_claim_of_success() {
    check(&exit(1), &[HELLO, TENSOR, PASS], "crash/exit-1");
    check(&signal(11), &[HELLO, TENSOR, PASS], "crash/SIGSEGV");
    assert_eq!(
        verdict_of(&signal(6), &[HELLO]).evidence.lines.last().unwrap().text,
        "last"
    );
}

#[test]
fn the_runtimes_cause_beats_what_followed_it() {
    check(&signal(6), &[HELLO, FATAL], "deadlock/heap-ring");
    check(&exit(0), &[HELLO, FATAL, TENSOR, PASS], "deadlock/heap-ring");
    let timeout = Stop::Budget {
        budget: Budget::Run,
        limit: Duration::from_secs(1),
    };
    check(
        &ended(ExitState::Signal(SignalName::from_number(15)), Some(timeout)),
        &[HELLO, STALL],
        "stall/S4",
    );
    let verdict = verdict_of(&signal(6), &[HELLO, FATAL, STALL, NAN]);
    assert_eq!(
        verdict.evidence.fallout,
        ["stall/S4 in dispatch 1", "nan/output", "crash/SIGABRT"]
    );
    assert_eq!(
        verdict.evidence.summary,
        "code 2 HEAP_RING_DEADLOCK, ring 1, requested 4096, free 64, capacity 8192"
    );
}

#[test]
fn the_exit_status_that_goes_with_a_verdict_is_no_fallout() {
    let verdict = r#"{"event":"verdict","verdict":"deadlock","cause":"heap-ring"}"#;
    assert!(
        verdict_of(&exit(1), &[HELLO, FATAL, verdict])
            .evidence
            .fallout
            .is_empty()
    );
    assert_eq!(
        verdict_of(&signal(6), &[HELLO, FATAL, verdict]).evidence.fallout,
        ["crash/SIGABRT"]
    );
}

#[test]
fn a_panic_is_a_crash_by_what_followed_it() {
    let panic = r#"{"event":"panic","dispatch":0,"task":"t","message":"index out of bounds"}"#;
    check(&signal(6), &[HELLO, panic], "crash/SIGABRT");
    check(&exit(101), &[HELLO, panic, TENSOR, PASS], "crash/exit-101");
}

#[test]
fn non_finite_beats_wrong_and_a_broken_golden_beats_both() {
    check(&exit(1), &[HELLO, WRONG], "mismatch/output");
    check(&exit(1), &[HELLO, WRONG, NAN], "nan/output");
    check(&exit(1), &[HELLO, WRONG, NAN, BROKEN_GOLDEN], "nan/golden");
    // A program that calls a non-finite output a pass is not believed.
    let lying = NAN.replace("\"nan\"", "\"pass\"");
    check(&exit(0), &[HELLO, &lying, PASS], "nan/output");
}

#[test]
fn rings_that_were_not_applied_beat_all_but_an_interrupt() {
    let verdict = verdict_of(&signal(6), &[HELLO, OTHER_RINGS, FATAL]);
    assert_eq!(verdict.outcome.to_string(), "config-not-applied/ring-differs");
    assert_eq!(
        verdict.evidence.summary,
        "dispatch 1 rank 0: heap of ring 1 is 2, asked for was 1"
    );
    let stopped = ended(ExitState::Signal(SignalName::from_number(15)), Some(Stop::Interrupted));
    check(&stopped, &[HELLO, OTHER_RINGS], "interrupted");
    check(
        &ended(ExitState::Code(0), Some(Stop::Interrupted)),
        &[HELLO, TENSOR, PASS],
        "pass",
    );
}

#[test]
fn supervision_says_why_it_ended_a_process() {
    let term = ExitState::Signal(SignalName::from_number(15));
    let silence = Stop::Budget {
        budget: Budget::Silence,
        limit: Duration::from_secs(3),
    };
    check(&ended(term.clone(), Some(silence)), &[HELLO], "timeout/silence");
    check(
        &ended(term, Some(Stop::Suspended(SignalName::from_number(21)))),
        &[],
        "crash/SIGTTIN",
    );
    let oom = Ended {
        out_of_memory_kill: true,
        ..signal(9)
    };
    check(&oom, &[HELLO], "oom/host");
}

#[test]
fn a_claim_of_failure_with_an_unknown_cause_keeps_its_kind() {
    check(
        &exit(1),
        &[
            HELLO,
            r#"{"event":"verdict","verdict":"setup-error","cause":"brand-new"}"#,
        ],
        "setup-error/exception",
    );
    check(
        &exit(1),
        &[HELLO, r#"{"event":"verdict","verdict":"sunny"}"#],
        "crash/exit-1",
    );
    check(
        &exit(0),
        &[
            HELLO,
            r#"{"event":"verdict","verdict":"no-verdict","cause":"validation-skipped"}"#,
        ],
        "no-verdict/validation-skipped",
    );
}

#[test]
fn the_logs_finding_is_weighed_against_supervision() {
    use crate::outcome::StallCause;
    let finding = |outcome| Observation {
        finding: Some((outcome, Evidence::default())),
        ..Observation::default()
    };
    let judged = |ended: &Ended, outcome| judge(ended, &finding(outcome), &ASKED, b"").outcome.to_string();
    let timeout = ended(
        ExitState::Signal(SignalName::from_number(15)),
        Some(Stop::Budget {
            budget: Budget::Run,
            limit: Duration::ZERO,
        }),
    );
    assert_eq!(judged(&timeout, Outcome::Stall(StallCause::S1)), "stall/S1");
    assert_eq!(
        judged(
            &timeout,
            Outcome::Crash(CrashCause::Signal(SignalName::from_number(15)))
        ),
        "timeout/run"
    );
    assert_eq!(judged(&exit(0), Outcome::Pass), "pass");
    assert_eq!(judged(&exit(3), Outcome::Pass), "crash/exit-3");
    let mut differing = finding(Outcome::Pass);
    differing.effective = vec![
        ASKED,
        ResourceSizes {
            dep_pool: [4, 4, 8, 4],
            ..ASKED
        },
    ];
    let verdict = judge(&exit(0), &differing, &ASKED, b"");
    assert_eq!(
        verdict.evidence.summary,
        "the log: dep_pool of ring 2 is 8, asked for was 4"
    );
}
