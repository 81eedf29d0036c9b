//! The table itself.

use std::collections::BTreeMap;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use super::Summary;
use crate::compare::{CaseDiff, Comparison, LatencyVerdict, OutcomeChange};
use crate::outcome::{Outcome, OutcomeKind};
use crate::record::{Nanos, RingUsage};
use crate::size::Bytes;
use crate::ui::Colour;

pub(super) const HEADER: [&str; 6] = ["outcome", "case", "latency", "fullest ring", "change", "time"];

pub(super) fn table(summary: &Summary<'_>, colour: Colour) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    let mut kinds: Vec<(OutcomeKind, String)> = Vec::new();
    for diff in &summary.comparison.cases {
        let [outcome, case, latency, ring, change, time] = row(summary, diff);
        kinds.push((diff.outcome().kind(), outcome.clone()));
        table.add_row([
            Cell::new(outcome),
            Cell::new(case),
            Cell::new(latency).set_alignment(CellAlignment::Right),
            Cell::new(ring),
            Cell::new(change),
            Cell::new(time).set_alignment(CellAlignment::Right),
        ]);
    }
    let mut lines = table.lines().map(|line| line.trim().to_owned());
    let mut text: Vec<String> = lines.by_ref().take(1).collect();
    // Painted after the layout, which counts characters.
    text.extend(
        lines
            .zip(kinds)
            .map(|(line, (kind, word))| match line.strip_prefix(&word) {
                Some(rest) => format!("{}{rest}", colour.outcome(kind, &word)),
                None => line,
            }),
    );
    text.join("\n")
}

/// The cells of a case: outcome, id, latency, fullest ring, change, time.
pub(super) fn row(summary: &Summary<'_>, diff: &CaseDiff) -> [String; 6] {
    let record = summary.worst_record(&diff.case);
    let attempts = record.map_or(1, |record| record.attempt);
    let mut outcome = diff.outcome().to_string();
    if let Outcome::Skipped(_) = diff.outcome() {
        outcome = "skipped".into();
    }
    if attempts > 1 {
        outcome.push_str(&format!(" (attempt {attempts})"));
    }
    let median = diff
        .now
        .as_ref()
        .and_then(|now| now.latency.as_ref())
        .and_then(|latency| latency.median_ns());
    let latency = median.and_then(|ns| Nanos::from_f64(ns).ok()).map(|ns| ns.to_string());
    let ring = record
        .and_then(|record| record.rings.usage)
        .and_then(|usage| fullest(&usage));
    let time = record
        .map(|record| record.phases.total)
        .filter(|total| !total.is_zero());
    [
        outcome,
        diff.case.to_string(),
        latency.unwrap_or_else(|| "-".into()),
        ring.unwrap_or_else(|| "-".into()),
        change(diff),
        time.map_or_else(|| "-".into(), |total| format!("{:.1} s", total.as_secs_f64())),
    ]
}

/// `1: 293 of 512 MiB (57 %)` of the ring that came nearest to its capacity.
fn fullest(usage: &[RingUsage; 4]) -> Option<String> {
    let fills = usage
        .iter()
        .enumerate()
        .filter(|(_, ring)| ring.heap_high_water_bytes > 0);
    let (ring, usage) = fills.max_by(|(_, a), (_, b)| {
        let fill = |ring: &RingUsage| ring.heap_fill().unwrap_or(0.0);
        fill(a).total_cmp(&fill(b))
    })?;
    let percent = 100.0 * usage.heap_fill()?;
    let (high, capacity) = (
        Bytes::new(usage.heap_high_water_bytes),
        Bytes::new(usage.heap_capacity_bytes),
    );
    Some(format!(
        "{ring}: {} of {} ({percent:.0} %)",
        high.human(),
        capacity.human()
    ))
}

/// What changed, in a few words: the outcome's change, else the latency's.
fn change(diff: &CaseDiff) -> String {
    if diff.change != OutcomeChange::Same {
        return diff.change.token().into();
    }
    match &diff.latency {
        LatencyVerdict::None => "same".into(),
        LatencyVerdict::Slower(effect) => format!("slower {:+.1} %", 100.0 * (effect.ratio - 1.0)),
        LatencyVerdict::Faster(effect) => format!("faster {:+.1} %", 100.0 * (effect.ratio - 1.0)),
        LatencyVerdict::Unchanged(_) => "unchanged".into(),
        LatencyVerdict::Undecided(_, None) => "undecided".into(),
        LatencyVerdict::Undecided(_, Some(reading)) => {
            format!("undecided ({:+.1} %, plain)", 100.0 * (reading.ratio - 1.0))
        }
        LatencyVerdict::Implausible(_, reading) => format!("implausible {:+.1} %", 100.0 * (reading.ratio - 1.0)),
    }
}

/// `12 cases: 1 deadlock, 11 pass`.
pub(super) fn counts(comparison: &Comparison) -> String {
    let mut counts: BTreeMap<OutcomeKind, usize> = BTreeMap::new();
    for diff in &comparison.cases {
        *counts.entry(diff.outcome().kind()).or_default() += 1;
    }
    let words: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let total = comparison.cases.len();
    format!(
        "{total} case{}: {}",
        if total == 1 { "" } else { "s" },
        words.join(", ")
    )
}
