//! A finding for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;

use super::bench::BenchReport;
use super::decide::Finding;
use crate::record::ResourceSizes;

#[derive(Serialize)]
struct FindingWire<'a> {
    file: &'a str,
    outcome: &'static str,
    cause: String,
    ring: Option<u8>,
    code: Option<i64>,
    rule: Option<&'a str>,
    class: Option<&'static str>,
    summary: &'a str,
    evidence: Vec<LineWire<'a>>,
    fallout: &'a [String],
    effective: Vec<RingsWire>,
    benchmarks: Vec<BenchWire<'a>>,
}

#[derive(Serialize)]
struct LineWire<'a> {
    line: u64,
    text: &'a str,
}

#[derive(Serialize)]
struct RingsWire {
    line: u64,
    heap_bytes: [u64; 4],
    task_window: [u64; 4],
    dep_pool: [u64; 4],
}

#[derive(Serialize)]
struct BenchWire<'a> {
    line: u64,
    mode: Option<&'a str>,
    rounds: Option<u64>,
    min_us: Option<f64>,
    median_us: Option<f64>,
    mean_us: Option<f64>,
    max_us: Option<f64>,
    raw_ranks: usize,
    flattened: bool,
    unavailable: Option<&'a str>,
}

/// `finding` as one line of JSON.
pub fn json(file: &str, finding: &Finding) -> String {
    let wire = FindingWire {
        file,
        outcome: finding.outcome.kind().token(),
        cause: finding.outcome.cause(),
        ring: finding.ring,
        code: finding.code,
        rule: finding.rule.as_deref(),
        class: finding.class.map(super::Class::token),
        summary: &finding.evidence.summary,
        evidence: finding
            .evidence
            .lines
            .iter()
            .map(|line| LineWire {
                line: line.line,
                text: &line.text,
            })
            .collect(),
        fallout: &finding.evidence.fallout,
        effective: finding.effective.iter().map(rings).collect(),
        benchmarks: finding.benches.iter().map(bench).collect(),
    };
    serde_json::to_string(&wire).expect("the wire form holds nothing that JSON can't")
}

fn rings((line, sizes): &(u64, ResourceSizes)) -> RingsWire {
    RingsWire {
        line: *line,
        heap_bytes: sizes.heap,
        task_window: sizes.task_window,
        dep_pool: sizes.dep_pool,
    }
}

fn bench(report: &BenchReport) -> BenchWire<'_> {
    // A number that JSON has no word for would become `null`, as if it had not been printed.
    let headline = report.headline.as_ref();
    BenchWire {
        line: report.line,
        mode: report.mode.as_deref(),
        rounds: headline.map(|headline| headline.rounds),
        min_us: headline.map(|headline| headline.min_us),
        median_us: headline.map(|headline| headline.median_us),
        mean_us: headline.map(|headline| headline.mean_us),
        max_us: headline.map(|headline| headline.max_us),
        raw_ranks: report.ranks.len(),
        flattened: report.flattened,
        unavailable: report.unavailable.as_deref(),
    }
}

/// `finding` as a paragraph: outcome, summary, rule, quoted lines.
pub fn explain(file: &str, finding: &Finding) -> String {
    let mut text = format!("{file}: {}\n  {}\n", finding.outcome, finding.evidence.summary);
    // Writing to a string can't fail.
    let _ = match (&finding.rule, finding.class) {
        (Some(rule), Some(class)) => writeln!(text, "  rule {rule}, class {class}"),
        _ => writeln!(text, "  no rule: by the exit status"),
    };
    for line in &finding.evidence.lines {
        let _ = writeln!(text, "  {:>6} | {}", line.line, line.text);
    }
    if !finding.evidence.fallout.is_empty() {
        let _ = writeln!(text, "  fallout: {}", finding.evidence.fallout.join(", "));
    }
    for (line, sizes) in &finding.effective {
        let _ = writeln!(
            text,
            "  {line:>6} | rings: heap {:?}, task window {:?}, dep pool {:?}",
            sizes.heap, sizes.task_window, sizes.dep_pool
        );
    }
    for report in &finding.benches {
        let mode = report
            .mode
            .as_deref()
            .map(|mode| format!(" {mode}"))
            .unwrap_or_default();
        let flat = if report.flattened {
            ", dispatches pooled: not comparable"
        } else {
            ""
        };
        let _ = match (&report.headline, &report.unavailable) {
            (Some(h), _) => writeln!(
                text,
                "  {:>6} | benchmark{mode}: {} rounds, median {} µs, mean {} µs{flat}",
                report.line, h.rounds, h.median_us, h.mean_us
            ),
            (None, Some(reason)) => writeln!(text, "  {:>6} | benchmark{mode}: no time: {reason}", report.line),
            (None, None) => writeln!(text, "  {:>6} | benchmark{mode}: raw rounds only{flat}", report.line),
        };
    }
    text
}
