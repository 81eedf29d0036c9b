//! JUnit XML for CI servers: one test a case, one suite a suite.
//!
//! A test fails where the gate fails (or, without a gate, where the comparison found something worse),
//! so that a known failure doesn't turn a server red that the gate leaves green. A finding of the gate
//! about the run as a whole is a test of its own: no viewer may show a red gate as all green.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rayon::prelude::*;

use quick_junit::{NonSuccessKind, Property, Report as Document, TestCase, TestCaseStatus, TestSuite};

use super::{Report, escape::plain, words};
use crate::case_id::CaseId;
use crate::compare::{CaseDiff, LatencyVerdict, OutcomeChange};
use crate::gate::{Action, Reason};
use crate::outcome::OutcomeKind;
use crate::record::CaseRecord;

pub(super) fn render(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut document = Document::new("ringsweep");
    let mut failing: Failing<'_> = BTreeMap::new();
    let mut of_run = TestSuite::new("gate");
    if let Some(verdict) = report.verdict {
        for reason in verdict.reasons.iter().filter(|reason| reason.action == Action::Fail) {
            if let Some(case) = &reason.case {
                failing.entry(case).or_default().push(reason);
            } else {
                let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
                status.set_message(plain(&reason.message)).set_type(reason.kind.token());
                of_run.add_test_case(TestCase::new(reason.kind.token(), status));
            }
        }
    } else if report.cases().is_empty() {
        let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
        status
            .set_message("no case was compared")
            .set_type(report.comparison.standing.token());
        of_run.add_test_case(TestCase::new("nothing-compared", status));
    }
    if of_run.tests > 0 {
        document.add_test_suite(of_run);
    }
    let gate_suites = document.test_suites.len();
    let mut suites: BTreeMap<&str, Vec<&CaseDiff>> = BTreeMap::new();
    for diff in report.cases() {
        suites.entry(diff.case.suite()).or_default().push(diff);
    }
    for (name, cases) in &suites {
        document.add_test_suite(frame(report, name, cases, &failing));
    }
    // The document with suites that know their counts and hold no case yet: a large sweep's cases
    // would take hundreds of megabytes at once, so they are made in waves and written in between.
    let framed = document.to_string().map_err(io::Error::other)?;
    let mut ends = framed.split_inclusive(SUITE_END);
    let mut out = io::BufWriter::new(out);
    for end in ends.by_ref().take(gate_suites) {
        out.write_all(end.as_bytes())?;
    }
    for cases in suites.values() {
        let end = ends.next().unwrap_or_default();
        out.write_all(end.trim_end_matches(SUITE_END).as_bytes())?;
        for wave in cases.chunks(WAVE) {
            let blocks: Vec<io::Result<String>> = wave
                .par_chunks(BLOCK)
                .map(|cases| block(report, cases, &failing))
                .collect();
            for block in blocks {
                out.write_all(block?.as_bytes())?;
            }
        }
        out.write_all(SUITE_END.as_bytes())?;
    }
    for rest in ends {
        out.write_all(rest.as_bytes())?;
    }
    out.flush()
}

/// How a suite ends in the serialised document. No text of a case can look like it: `<` is escaped.
const SUITE_END: &str = "    </testsuite>\n";

/// Cases that are made by one thread at a time.
const BLOCK: usize = 1024;

/// Cases that are held at once.
const WAVE: usize = 16 * BLOCK;

/// Reasons of the gate that fail a case.
type Failing<'a> = BTreeMap<&'a CaseId, Vec<&'a Reason>>;

/// A suite with its properties and counts, and no case yet.
fn frame(report: &Report<'_>, name: &str, cases: &[&CaseDiff], failing: &Failing<'_>) -> TestSuite {
    let mut suite = TestSuite::new(name);
    suite.add_property(Property::new("run_id", report.run.provenance.run_id.as_str()));
    suite.add_property(Property::new("platform", report.run.provenance.platform.as_str()));
    suite.add_property(Property::new("reference", plain(&report.comparison.base.label)));
    suite.tests = cases.len();
    for diff in cases {
        match Ending::of(report, diff, failing.get(&diff.case)) {
            Ending::Success => {}
            Ending::Skipped => suite.skipped += 1,
            Ending::Failure => suite.failures += 1,
            Ending::Error => suite.errors += 1,
        }
    }
    suite
}

/// The elements of some cases, as they stand within their suite.
fn block(report: &Report<'_>, cases: &[&CaseDiff], failing: &Failing<'_>) -> io::Result<String> {
    let mut suite = TestSuite::new("block");
    for diff in cases {
        suite.add_test_case(test_case(report, diff, failing.get(&diff.case)));
    }
    let mut document = Document::new("block");
    document.add_test_suite(suite);
    let mut text = document.to_string().map_err(io::Error::other)?;
    let start = text
        .find("    <testsuite ")
        .and_then(|at| Some(at + text[at..].find('\n')? + 1));
    let (Some(start), Some(end)) = (start, text.rfind(SUITE_END)) else {
        return Err(io::Error::other("a suite of cases without its tags"));
    };
    text.truncate(end);
    text.drain(..start);
    Ok(text)
}

/// How a test ends for a CI server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Success,
    Skipped,
    Failure,
    Error,
}

impl Ending {
    fn of(report: &Report<'_>, diff: &CaseDiff, reasons: Option<&Vec<&Reason>>) -> Self {
        let kind = diff.outcome().kind();
        if fails(report, diff, reasons) {
            return match kind {
                OutcomeKind::Missing | OutcomeKind::Interrupted | OutcomeKind::SetupError | OutcomeKind::Blocked => {
                    Self::Error
                }
                _ => Self::Failure,
            };
        }
        if kind == OutcomeKind::Pass {
            Self::Success
        } else {
            Self::Skipped
        }
    }

    fn status(self) -> TestCaseStatus {
        match self {
            Self::Success => TestCaseStatus::success(),
            Self::Skipped => TestCaseStatus::skipped(),
            Self::Failure => TestCaseStatus::non_success(NonSuccessKind::Failure),
            Self::Error => TestCaseStatus::non_success(NonSuccessKind::Error),
        }
    }
}

fn test_case(report: &Report<'_>, diff: &CaseDiff, reasons: Option<&Vec<&Reason>>) -> TestCase {
    let outcome = diff.outcome();
    let evidence = report.evidence(diff);
    let ending = Ending::of(report, diff, reasons);
    let mut status = ending.status();
    if ending != Ending::Success {
        let reasons: Vec<String> = match reasons {
            Some(reasons) => reasons.iter().map(|reason| plain(&reason.message)).collect(),
            None => vec![format!("{}: {}", diff.change, plain(&outcome.to_string()))],
        };
        status
            .set_message(reasons.join("; "))
            .set_type(plain(&outcome.to_string()));
        status.set_description(description(evidence));
    }
    let mut case = TestCase::new(diff.case.local(), status);
    case.set_classname(diff.case.suite());
    if let Some(record) = evidence {
        case.set_time(record.phases.total);
    }
    let latency = words::latency(diff);
    for (name, value) in [
        ("outcome", outcome.to_string()),
        ("change", diff.change.token().to_owned()),
        ("latency", latency),
        ("fullest_ring", words::fullest_ring(diff)),
        (
            "log",
            evidence.and_then(|record| record.log.clone()).unwrap_or_default(),
        ),
    ] {
        if !value.is_empty() {
            case.add_property(Property::new(name, plain(&value)));
        }
    }
    case
}

fn fails(report: &Report<'_>, diff: &CaseDiff, reasons: Option<&Vec<&Reason>>) -> bool {
    if report.verdict.is_some() {
        return reasons.is_some();
    }
    let slower = matches!(diff.final_latency(), LatencyVerdict::Slower(_));
    slower
        || match diff.change {
            OutcomeChange::Regressed
            | OutcomeChange::Missing
            | OutcomeChange::ChangedCause
            | OutcomeChange::NewFailing
            | OutcomeChange::Expired
            | OutcomeChange::UnexpectedPass
            | OutcomeChange::NewlySkipped => true,
            OutcomeChange::DeclaredFailure
            | OutcomeChange::KnownFailure
            | OutcomeChange::New
            | OutcomeChange::Fixed
            | OutcomeChange::Same => false,
        }
}

fn description(evidence: Option<&CaseRecord>) -> String {
    let mut lines = vec![plain(super::why(evidence))];
    if let Some(record) = evidence {
        let quoted = record.evidence.lines.iter();
        lines.extend(quoted.map(|line| format!("{}: {}", line.line, plain(&line.text))));
    }
    lines.join("\n")
}
