//! One self-contained page: no scripts, nothing fetched, folding by `<details>` alone.

use std::collections::BTreeMap;
use std::io::{self, Write};

use askama::Template;

use super::{Report, escape::plain, svg, words};
use crate::compare::{CaseDiff, LatencyVerdict, OutcomeChange};
use crate::gate::Action;
use crate::outcome::Outcome;

/// Most cases with a section of their own; the worst come first.
const MOST_SECTIONS: usize = 400;

/// Most cells of the matrix.
const MOST_CELLS: usize = 4000;

/// Most reasons of the gate.
const MOST_REASONS: usize = 400;

#[derive(Template)]
#[template(path = "report.html")]
struct Page {
    headline: String,
    passed: Option<bool>,
    run: Vec<(&'static str, String)>,
    notes: Vec<String>,
    reasons: Vec<ReasonView>,
    matrix: Vec<SuiteView>,
    sections: Vec<Section>,
    left_out: Vec<String>,
}

struct ReasonView {
    action: &'static str,
    kind: &'static str,
    case: String,
    anchor: String,
    message: String,
}

struct SuiteView {
    name: String,
    rows: Vec<(String, Vec<Cell>)>,
}

struct Cell {
    label: String,
    outcome: &'static str,
    class: &'static str,
    words: String,
    anchor: String,
}

struct Section {
    anchor: String,
    case: String,
    open: bool,
    class: &'static str,
    outcome: String,
    change: String,
    before: String,
    /// Beside a pass that is as it was, the reference says nothing new.
    names_reference: bool,
    why: String,
    median: String,
    latency: String,
    strip: String,
    rings: String,
    findings: Vec<String>,
    evidence: Vec<(u64, String)>,
    log: String,
    log_is_link: bool,
}

pub(super) fn render(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut left_out = Vec::new();
    let sections = report
        .cases()
        .iter()
        .take(MOST_SECTIONS)
        .map(|diff| section(report, diff))
        .collect();
    note_left_out(
        &mut left_out,
        report.cases().len(),
        MOST_SECTIONS,
        "cases have no section here",
    );
    note_left_out(
        &mut left_out,
        report.cases().len(),
        MOST_CELLS,
        "cases are not in the matrix",
    );
    let reasons = report.verdict.map_or(&[][..], |verdict| verdict.reasons.as_slice());
    note_left_out(
        &mut left_out,
        reasons.len(),
        MOST_REASONS,
        "reasons of the gate are not listed",
    );
    let page = Page {
        headline: report.headline(),
        passed: report.verdict.map(crate::gate::GateVerdict::passed),
        run: facts(report),
        notes: report.notes().iter().map(|note| plain(note)).collect(),
        reasons: reasons
            .iter()
            .take(MOST_REASONS)
            .map(|reason| ReasonView {
                action: match reason.action {
                    Action::Fail => "fail",
                    Action::Warn | Action::Ignore => "warn",
                },
                kind: reason.kind.token(),
                case: reason.case.as_ref().map(ToString::to_string).unwrap_or_default(),
                anchor: reason
                    .case
                    .as_ref()
                    .map(crate::case_id::CaseId::file_stem)
                    .unwrap_or_default(),
                message: plain(&reason.message),
            })
            .collect(),
        matrix: matrix(report),
        sections,
        left_out,
    };
    page.write_into(&mut io::BufWriter::new(out)).map_err(io::Error::other)
}

fn note_left_out(notes: &mut Vec<String>, count: usize, most: usize, what: &str) {
    if count > most {
        notes.push(format!("{} {what}; the JSON report has everything", count - most));
    }
}

fn facts(report: &Report<'_>) -> Vec<(&'static str, String)> {
    let (provenance, comparison) = (&report.run.provenance, report.comparison);
    let commit = provenance.git_commit.clone().unwrap_or_else(|| "unknown".into());
    let dirty = match provenance.git_dirty {
        Some(true) => " with uncommitted changes",
        Some(false) => "",
        None => " (not known to be clean)",
    };
    vec![
        ("run", provenance.run_id.clone()),
        ("against", comparison.base.label.clone()),
        ("platform", provenance.platform.clone()),
        ("host class", comparison.now.host_class.clone()),
        ("commit", format!("{commit}{dirty}")),
        ("matrix", provenance.matrix_hash.clone()),
        ("started", provenance.started.clone()),
        ("ended", provenance.ended.clone().unwrap_or_else(|| "not closed".into())),
        ("toolchain", provenance.toolchain.clone()),
        ("command", plain(&provenance.command_line.join(" "))),
        ("latency tests", comparison.family.to_string()),
    ]
}

fn matrix(report: &Report<'_>) -> Vec<SuiteView> {
    let mut suites: BTreeMap<&str, BTreeMap<&str, Vec<&CaseDiff>>> = BTreeMap::new();
    for diff in report.cases().iter().take(MOST_CELLS) {
        let suite = suites.entry(diff.case.suite()).or_default();
        suite.entry(diff.case.name()).or_default().push(diff);
    }
    let cells = |mut diffs: Vec<&CaseDiff>| -> Vec<Cell> {
        diffs.sort_by(|a, b| a.case.cmp(&b.case));
        diffs.into_iter().map(cell).collect()
    };
    suites
        .into_iter()
        .map(|(name, rows)| SuiteView {
            name: name.into(),
            rows: rows
                .into_iter()
                .map(|(name, diffs)| (name.to_owned(), cells(diffs)))
                .collect(),
        })
        .collect()
}

fn cell(diff: &CaseDiff) -> Cell {
    let outcome = diff.outcome().kind().token();
    let axes: Vec<String> = diff
        .case
        .axes()
        .map(|(axis, value)| format!("{axis}={value}"))
        .collect();
    Cell {
        label: axes.join(" "),
        outcome,
        class: class(diff),
        words: changes(diff),
        anchor: diff.case.file_stem(),
    }
}

/// What the colour tells stands in words too; an outcome that says it already isn't said twice.
fn changes(diff: &CaseDiff) -> String {
    let outcome = diff.outcome().kind().token();
    let latency = match diff.final_latency() {
        verdict @ (LatencyVerdict::Slower(_) | LatencyVerdict::Faster(_) | LatencyVerdict::Implausible(..)) => {
            verdict.token()
        }
        LatencyVerdict::None | LatencyVerdict::Unchanged(_) | LatencyVerdict::Undecided(..) => "",
    };
    let changes = [words::change(diff), latency].into_iter();
    let changes: Vec<&str> = changes.filter(|word| !word.is_empty() && *word != outcome).collect();
    changes.join(", ")
}

/// Colour class; the word beside it says the same.
fn class(diff: &CaseDiff) -> &'static str {
    let slower = matches!(
        diff.final_latency(),
        LatencyVerdict::Slower(_) | LatencyVerdict::Implausible(..)
    );
    match (diff.change, diff.outcome()) {
        (OutcomeChange::KnownFailure | OutcomeChange::DeclaredFailure, _) => "known",
        (_, Outcome::Skipped(_)) => "skipped",
        (OutcomeChange::UnexpectedPass | OutcomeChange::Expired, _) => "warn",
        (_, Outcome::Pass) if slower => "warn",
        (_, Outcome::Pass) => "good",
        _ => "bad",
    }
}

fn section(report: &Report<'_>, diff: &CaseDiff) -> Section {
    let record = report.evidence(diff);
    let class = class(diff);
    let latency = diff.now.as_ref().and_then(|now| now.latency.as_ref());
    let reference = diff.base.as_ref().and_then(|base| base.latency.as_ref());
    let samples: Vec<Vec<f64>> = samples_of(report, diff);
    let strip = svg::latency_strip(
        reference.map_or(&[], |latency| latency.run_medians_ns.as_slice()),
        latency.map_or(&[], |latency| latency.run_medians_ns.as_slice()),
        &samples,
    );
    let peaks = diff.now.as_ref().and_then(|now| now.rings);
    let log = record.and_then(|record| record.log.clone()).unwrap_or_default();
    Section {
        anchor: diff.case.file_stem(),
        case: diff.case.to_string(),
        open: matches!(class, "bad" | "warn"),
        class,
        outcome: plain(&diff.outcome().to_string()),
        change: changes(diff),
        names_reference: diff.outcome() != Outcome::Pass || diff.change != OutcomeChange::Same,
        before: match &diff.base {
            Some(base) => plain(&base.outcome.to_string()),
            None => "nothing".into(),
        },
        why: plain(report.why(diff)),
        median: words::median(diff),
        latency: plain(&full_latency(diff)),
        strip: strip.unwrap_or_default(),
        rings: peaks.as_ref().and_then(svg::ring_bars).unwrap_or_default(),
        findings: diff.rings.iter().map(ToString::to_string).collect(),
        evidence: record.map_or_else(Vec::new, |record| {
            let lines = record.evidence.lines.iter();
            lines.map(|line| (line.line, plain(&line.text))).collect()
        }),
        log_is_link: is_log_path(&log),
        log,
    }
}

fn full_latency(diff: &CaseDiff) -> String {
    let last = diff.final_latency();
    match (&diff.confirmation, last) {
        (None, LatencyVerdict::None) => String::new(),
        (None, verdict) => verdict.to_string(),
        (Some(confirmation), verdict) => format!("{verdict} ({}; first: {})", confirmation.token(), diff.latency),
    }
}

/// The timed dispatches of every process run, ns.
fn samples_of(report: &Report<'_>, diff: &CaseDiff) -> Vec<Vec<f64>> {
    let latencies = report.records(diff).iter().filter_map(|record| record.latency.as_ref());
    latencies
        .map(|latency| latency.samples().iter().map(|sample| sample.get() as f64).collect())
        .collect()
}

/// Only a file below `logs/` becomes a link: the path comes from a file that anybody may have written.
fn is_log_path(log: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '@' | '=' | ',');
    log.strip_prefix("logs/")
        .is_some_and(|name| !name.is_empty() && !name.starts_with('.') && name.chars().all(safe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_logs_become_links() {
        assert!(is_log_path("logs/pro__rmsnorm@mode=decode.log"));
        for bad in [
            "javascript:alert(1)",
            "logs/../../etc/passwd",
            "/etc/passwd",
            "logs/",
            "logs/a b",
            "logs/.x",
            "https://x/logs/a",
        ] {
            assert!(!is_log_path(bad), "{bad}");
        }
    }
}
