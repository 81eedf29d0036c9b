//! The table for a terminal.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table, presets};

use super::{Report, escape, words};
use crate::gate::Action;

/// Most rows: more scrolls off any screen. The worst come first, so what is left out is better than what is shown.
const MOST_ROWS: usize = 1000;

/// Most reasons of the gate that are listed.
const MOST_REASONS: usize = 200;

/// Most characters of the explanation of a case.
const MOST_WHY: usize = 72;

pub(super) fn render(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // One line per case, whatever the width: a wrapped cell would put a case's text at the start of a line.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "outcome",
        "change",
        "case",
        "median",
        "latency",
        "fullest ring",
        "what happened",
    ]);
    for diff in report.cases().iter().take(MOST_ROWS) {
        table.add_row([
            escape::plain(&diff.outcome().to_string()),
            words::change(diff).to_owned(),
            diff.case.to_string(),
            words::median(diff),
            words::latency(diff),
            words::fullest_ring(diff),
            cut(&escape::plain(report.why(diff)), MOST_WHY),
        ]);
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    let left_out = report.cases().len().saturating_sub(MOST_ROWS);
    if left_out > 0 {
        writeln!(
            out,
            "… {left_out} more cases, none of them worse; all are in the other formats"
        )?;
    }
    writeln!(out)?;
    for note in report.notes() {
        writeln!(out, "note: {}", escape::plain(&note))?;
    }
    if let Some(verdict) = report.verdict {
        for reason in verdict.reasons.iter().take(MOST_REASONS) {
            let case = reason.case.as_ref().map(|case| format!("{case}: ")).unwrap_or_default();
            let word = match reason.action {
                Action::Fail => "FAIL",
                Action::Warn | Action::Ignore => "warn",
            };
            writeln!(out, "{word} [{}] {case}{}", reason.kind, escape::plain(&reason.message))?;
        }
        let left_out = verdict.reasons.len().saturating_sub(MOST_REASONS);
        if left_out > 0 {
            writeln!(out, "… {left_out} more reasons")?;
        }
    }
    writeln!(
        out,
        "{} against {}",
        report.comparison.now.label, report.comparison.base.label
    )?;
    writeln!(out, "{}", report.headline())
}

/// At most `most` characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
