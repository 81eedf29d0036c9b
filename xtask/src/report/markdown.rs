//! Markdown for a pull request or a step summary.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::{Report, escape, table::cut, words};
use crate::compare::{CaseDiff, LatencyVerdict, OutcomeChange};
use crate::count::counted;
use crate::gate::Action;

/// GitHub takes 1 MiB per summary; the rest is room for what the workflow adds.
const MOST_BYTES: usize = 900 * 1024;

/// Most rows of cases that are as they were: nobody scrolls through more.
const MOST_QUIET: usize = 200;

pub(super) fn render(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut text = String::new();
    let mut cut_short = Vec::new();
    head(report, &mut text, &mut cut_short);
    let (loud, quiet): (Vec<_>, Vec<_>) = report.cases().iter().partition(|diff| !is_quiet(diff));
    if !loud.is_empty() {
        text.push_str("\n### Changes\n\n");
        let left = rows(report, &loud, usize::MAX, &mut text);
        if left > 0 {
            cut_short.push(counted(left, "changed case"));
        }
    }
    if !quiet.is_empty() {
        let _ = write!(
            text,
            "\n<details><summary>{} without a change</summary>\n\n",
            counted(quiet.len(), "case")
        );
        let left = rows(report, &quiet, MOST_QUIET, &mut text);
        text.push_str("\n</details>\n");
        if left > 0 {
            cut_short.push(format!("{} without a change", counted(left, "case")));
        }
    }
    if !cut_short.is_empty() {
        let _ = write!(
            text,
            "\nLeft out for length: {}. `report.json` has everything.\n",
            cut_short.join(", ")
        );
    }
    out.write_all(text.as_bytes())
}

fn is_quiet(diff: &CaseDiff) -> bool {
    let same = matches!(diff.change, OutcomeChange::Same | OutcomeChange::KnownFailure);
    let latency = match diff.final_latency() {
        LatencyVerdict::None | LatencyVerdict::Unchanged(_) => true,
        LatencyVerdict::Undecided(_, reading) => reading.is_none_or(|reading| reading.beyond.is_none()),
        LatencyVerdict::Slower(_) | LatencyVerdict::Faster(_) | LatencyVerdict::Implausible(..) => false,
    };
    same && latency && diff.confirmation.is_none()
}

fn head(report: &Report<'_>, text: &mut String, cut_short: &mut Vec<String>) {
    let comparison = report.comparison;
    let _ = write!(text, "## ringsweep: {}\n\n", escape::markdown(&report.headline()));
    let _ = writeln!(
        text,
        "{} (platform {}, host class {}, commit {}) against {}.",
        escape::markdown(&comparison.now.label),
        escape::markdown(&comparison.now.platform),
        escape::markdown(&comparison.now.host_class),
        escape::markdown(comparison.now.commit.as_deref().unwrap_or("unknown")),
        escape::markdown(&comparison.base.label)
    );
    for note in report.notes() {
        let _ = write!(text, "\n> {}\n", escape::markdown(&note));
    }
    let Some(verdict) = report.verdict.filter(|verdict| !verdict.reasons.is_empty()) else {
        return;
    };
    text.push_str("\n### Gate\n\n");
    for (index, reason) in verdict.reasons.iter().enumerate() {
        // A third of the room at most: the rows say it again.
        if text.len() > MOST_BYTES / 3 {
            cut_short.push(format!("{} reasons of the gate", verdict.reasons.len() - index));
            break;
        }
        let word = match reason.action {
            Action::Fail => "**fail**",
            Action::Warn | Action::Ignore => "warn",
        };
        let case = reason
            .case
            .as_ref()
            .map(|case| format!(" {}", escape::markdown(case.as_str())));
        let _ = writeln!(
            text,
            "- {word} {}{}: {}",
            reason.kind,
            case.unwrap_or_default(),
            escape::markdown(&reason.message)
        );
    }
}

/// Writes rows while there is room; returns how many were left out.
fn rows(report: &Report<'_>, cases: &[&CaseDiff], most: usize, text: &mut String) -> usize {
    text.push_str("| outcome | change | case | median | latency | fullest ring | what happened |\n");
    text.push_str("| --- | --- | --- | ---: | --- | --- | --- |\n");
    for (index, diff) in cases.iter().enumerate() {
        let row = [
            diff.outcome().to_string(),
            words::change(diff).to_owned(),
            diff.case.to_string(),
            words::median(diff),
            words::latency(diff),
            words::fullest_ring(diff),
            cut(report.why(diff), 200),
        ];
        let row = row.map(|cell| escape::markdown(&cell)).join(" | ");
        if index == most || text.len() + row.len() + 512 > MOST_BYTES {
            return cases.len() - index;
        }
        let _ = writeln!(text, "| {row} |");
    }
    0
}
