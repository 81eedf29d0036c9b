//! JSON for programs: everything, one object.
//!
//! Changelog of the format: 1.0: first.

use std::io::{self, Write};

use serde::{Serialize, Serializer};

use super::{Report, Tally};
use crate::case_id::CaseId;
use crate::compare::{CaseDiff, CaseSummary, Confirmation, LatencyVerdict};

#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    major: u32,
    minor: u32,
    run_id: &'a str,
    platform: &'a str,
    host_class: &'a str,
    commit: Option<&'a str>,
    matrix_hash: &'a str,
    complete: bool,
    reference: &'a str,
    standing: &'static str,
    compared: usize,
    not_selected: usize,
    latency_tests: usize,
    common_mode_ratio: Option<f64>,
    environment_ratio: Option<f64>,
    notes: Vec<String>,
    outcomes: std::collections::BTreeMap<&'static str, usize>,
    changes: std::collections::BTreeMap<&'static str, usize>,
    latencies: std::collections::BTreeMap<&'static str, usize>,
    gate: Option<serde_json::Value>,
    cases: Cases<'a>,
}

#[derive(Serialize)]
struct Case<'a> {
    #[serde(rename = "case")]
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    renamed_from: Option<&'a str>,
    outcome: &'static str,
    cause: String,
    change: &'static str,
    reference_outcome: Option<String>,
    latency: Latency,
    confirmation: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_latency: Option<Latency>,
    run_medians_ns: &'a [f64],
    /// `null` in place of a number that is none.
    reference_run_medians_ns: &'a [f64],
    rings: Vec<String>,
    summary: &'a str,
    evidence: Vec<Line<'a>>,
    tags: &'a [String],
    log: Option<&'a str>,
}

#[derive(Serialize)]
struct Line<'a> {
    line: u64,
    text: &'a str,
}

#[derive(Serialize)]
struct Latency {
    verdict: &'static str,
    text: String,
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio_high: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p_raw: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p_adjusted: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    floor: Option<f64>,
}

pub(super) fn render(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let (comparison, provenance) = (report.comparison, &report.run.provenance);
    let tally = Tally::of(comparison);
    let gate = report.verdict.map(crate::gate::verdict_json);
    let document = Document {
        format: "ringsweep-report",
        major: 1,
        minor: 0,
        run_id: &provenance.run_id,
        platform: &provenance.platform,
        host_class: &comparison.now.host_class,
        commit: provenance.git_commit.as_deref(),
        matrix_hash: &provenance.matrix_hash,
        complete: provenance.status == crate::record::RunStatus::Complete,
        reference: &comparison.base.label,
        standing: comparison.standing.token(),
        compared: match comparison.standing {
            crate::compare::Standing::Compared(cases) => cases,
            _ => 0,
        },
        not_selected: comparison.not_selected,
        latency_tests: comparison.family,
        common_mode_ratio: comparison.common_mode.map(|common| common.ratio),
        environment_ratio: comparison.environment.map(|environment| environment.ratio),
        notes: report.notes(),
        outcomes: tally.outcomes,
        changes: tally.changes.into_iter().collect(),
        latencies: tally.latencies,
        gate: gate.map(|text| serde_json::from_str(&text)).transpose()?,
        cases: Cases(report),
    };
    let mut out = io::BufWriter::new(out);
    serde_json::to_writer(&mut out, &document)?;
    writeln!(out)?;
    out.flush()
}

/// The cases, made one by one as they are written: the document never stands in memory as a whole.
struct Cases<'a>(&'a Report<'a>);

impl Serialize for Cases<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.cases().iter().map(|diff| case(self.0, diff)))
    }
}

fn case<'a>(report: &'a Report<'_>, diff: &'a CaseDiff) -> Case<'a> {
    let outcome = diff.outcome();
    let evidence = report.evidence(diff);
    let medians = |side: Option<&'a CaseSummary>| {
        let latency = side.and_then(|side| side.latency.as_ref());
        latency.map_or(&[][..], |latency| latency.run_medians_ns.as_slice())
    };
    let final_latency = diff.final_latency();
    Case {
        id: diff.case.as_str(),
        renamed_from: diff.renamed_from.as_ref().map(CaseId::as_str),
        outcome: outcome.kind().token(),
        cause: outcome.cause(),
        change: diff.change.token(),
        reference_outcome: diff.base.as_ref().map(|base| base.outcome.to_string()),
        latency: latency(final_latency),
        confirmation: diff.confirmation.as_ref().map(Confirmation::token),
        first_latency: diff.confirmation.as_ref().map(|_| latency(&diff.latency)),
        run_medians_ns: medians(diff.now.as_deref()),
        reference_run_medians_ns: medians(diff.base.as_deref()),
        rings: diff.rings.iter().map(ToString::to_string).collect(),
        summary: super::why(evidence),
        evidence: evidence.map_or_else(Vec::new, |record| {
            let lines = record.evidence.lines.iter();
            lines
                .map(|line| Line {
                    line: line.line,
                    text: &line.text,
                })
                .collect()
        }),
        tags: diff.tags(),
        log: evidence.and_then(|record| record.log.as_deref()),
    }
}

fn latency(verdict: &LatencyVerdict) -> Latency {
    let effect = match verdict {
        LatencyVerdict::Slower(effect) | LatencyVerdict::Faster(effect) | LatencyVerdict::Unchanged(effect) => {
            Some(effect)
        }
        LatencyVerdict::None | LatencyVerdict::Undecided(..) | LatencyVerdict::Implausible(..) => None,
    };
    Latency {
        verdict: verdict.token(),
        text: verdict.to_string(),
        ratio: verdict.ratio(),
        ratio_low: effect.map(|effect| effect.low),
        ratio_high: effect.map(|effect| effect.high),
        p_raw: effect.map(|effect| effect.p_raw),
        p_adjusted: effect.map(|effect| effect.p_adjusted),
        floor: effect.map(|effect| effect.floor),
    }
}
