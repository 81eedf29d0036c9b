//! What is to be known of one case that needs attention.

use std::fmt::Write;

use super::Summary;
use crate::compare::{CaseDiff, OutcomeChange};
use crate::outcome::Outcome;
use crate::record::{AskedValue, CaseRecord, Detail, Expectation};
use crate::report::plain;
use crate::ui::Colour;

/// A block of lines for a case that failed or changed for the worse; `None` for the others.
pub(super) fn of_case(summary: &Summary<'_>, diff: &CaseDiff, colour: Colour) -> Option<String> {
    let outcome = diff.outcome();
    let fine = match diff.change {
        OutcomeChange::Same | OutcomeChange::New | OutcomeChange::Fixed => {
            matches!(outcome, Outcome::Pass | Outcome::Skipped(_))
        }
        OutcomeChange::DeclaredFailure | OutcomeChange::KnownFailure => true,
        OutcomeChange::Regressed
        | OutcomeChange::Missing
        | OutcomeChange::ChangedCause
        | OutcomeChange::NewFailing
        | OutcomeChange::Expired
        | OutcomeChange::UnexpectedPass
        | OutcomeChange::NewlySkipped => false,
    };
    if fine {
        return None;
    }
    let mut text = format!(
        "{} {}",
        colour.outcome(outcome.kind(), &outcome.to_string()),
        colour.bold(diff.case.as_str())
    );
    let before = diff.base.as_ref().map(|base| format!(" (was {})", base.outcome));
    // Writing to a string can't fail, here and below.
    let _ = write!(text, ": {}{}", diff.change.token(), before.unwrap_or_default());
    if let Some(record) = summary.worst_record(&diff.case) {
        add_record(&mut text, summary, record);
    }
    let quoted = if diff.case.as_str().contains([' ', '*', '[']) {
        format!("'{}'", diff.case)
    } else {
        diff.case.to_string()
    };
    let _ = write!(text, "\n  rerun: cargo xtask sweep {quoted}{}", summary.rerun_options);
    Some(text)
}

fn add_record(text: &mut String, summary: &Summary<'_>, record: &CaseRecord) {
    let evidence = &record.evidence;
    if !evidence.summary.is_empty() {
        let _ = write!(text, "\n  {}", plain(&evidence.summary));
    }
    if let Some(Detail::Ring(shortage)) = &evidence.detail
        && let Some(asked) = &record.rings.asked
    {
        let values: Vec<String> = asked.heap.iter().map(asked_value).collect();
        let _ = write!(text, "\n  ring heaps asked for: {}", values.join(", "));
        if let Some(head) = &shortage.head_task {
            let _ = write!(text, "\n  oldest live task: {}", plain(head));
        }
    }
    if let Some(Detail::Tensors(tensors)) = &evidence.detail {
        for tensor in tensors {
            let _ = write!(
                text,
                "\n  `{}`: {} of {} ({})",
                tensor.name, tensor.mismatched, tensor.total, tensor.rule
            );
            if let (Some(actual), Some(expected)) = (&tensor.actual, &tensor.expected) {
                let _ = write!(text, ", at {:?} {actual} instead of {expected}", tensor.first_index);
            }
        }
    }
    match &record.expectation {
        Expectation::None | Expectation::Met(_) => {}
        Expectation::NotMet(expected) | Expectation::UnexpectedPass(expected) | Expectation::Expired(expected) => {
            let cause = expected
                .cause
                .as_ref()
                .map(|cause| format!("/{cause}"))
                .unwrap_or_default();
            let until = expected
                .until
                .as_ref()
                .map(|until| format!(" until {until}"))
                .unwrap_or_default();
            let issue = expected
                .issue
                .as_ref()
                .map(|issue| format!(" ({issue})"))
                .unwrap_or_default();
            let ring = expected.ring.map(|ring| format!(" on ring {ring}")).unwrap_or_default();
            let shows: Vec<String> = expected
                .shows
                .iter()
                .map(|shown| format!(", showing `{shown}`"))
                .collect();
            let _ = write!(
                text,
                "\n  declared: {}{cause}{ring}{}{until}{issue}",
                expected.outcome,
                plain(&shows.concat())
            );
        }
    }
    for line in &evidence.lines {
        let _ = write!(text, "\n  {:>6} | {}", line.line, plain(&line.text));
    }
    if !evidence.fallout.is_empty() {
        let _ = write!(text, "\n  also: {}", plain(&evidence.fallout.join("; ")));
    }
    if let Some(log) = &record.log {
        let _ = write!(text, "\n  log: {}/{log}", summary.directory);
    }
}

fn asked_value(value: &AskedValue) -> String {
    format!("{} ({})", crate::size::Bytes::new(value.value).human(), value.tier)
}
