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
    let mut failing: BTreeMap<&CaseId, Vec<&Reason>> = BTreeMap::new();
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
    let mut suites: BTreeMap<&str, TestSuite> = BTreeMap::new();
    let cases: Vec<TestCase> = report
        .cases()
        .par_iter()
        .map(|diff| test_case(report, diff, failing.get(&diff.case)))
        .collect();
    for (diff, case) in report.cases().iter().zip(cases) {
        let suite = suites.entry(diff.case.suite()).or_insert_with(|| {
            let mut suite = TestSuite::new(diff.case.suite());
            suite.add_property(Property::new("run_id", report.run.provenance.run_id.as_str()));
            suite.add_property(Property::new("platform", report.run.provenance.platform.as_str()));
            suite.add_property(Property::new("reference", plain(&report.comparison.base.label)));
            suite
        });
        suite.add_test_case(case);
    }
    document.add_test_suites(suites.into_values());
    let mut out = io::BufWriter::new(out);
    document.serialize(&mut out).map_err(io::Error::other)?;
    out.flush()
}

fn test_case(report: &Report<'_>, diff: &CaseDiff, reasons: Option<&Vec<&Reason>>) -> TestCase {
    let outcome = diff.outcome();
    let evidence = report.evidence(diff);
    let mut status = if fails(report, diff, reasons) {
        let kind = match outcome.kind() {
            OutcomeKind::Missing | OutcomeKind::Interrupted | OutcomeKind::SetupError | OutcomeKind::Blocked => {
                NonSuccessKind::Error
            }
            _ => NonSuccessKind::Failure,
        };
        TestCaseStatus::non_success(kind)
    } else if matches!(outcome.kind(), OutcomeKind::Pass) {
        TestCaseStatus::success()
    } else {
        TestCaseStatus::skipped()
    };
    if !matches!(status, TestCaseStatus::Success { .. }) {
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
