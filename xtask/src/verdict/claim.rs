//! What a program claims: comparisons of its outputs, its own verdict.

use super::{Verdict, quote};
use crate::outcome::{Origin, Outcome, SetupCause};
use crate::process::{ExitState, launcher};
use crate::protocol::{Report, Validation};
use crate::record::{Detail, Evidence};

/// Non-finite or wrong outputs.
///
/// A golden that isn't finite comes first: next to it nothing can be said of the kernel.
pub(super) fn failed_outputs(report: &Report) -> Option<Verdict> {
    let failed: Vec<&Validation> = report.tensors.iter().filter(|tensor| !tensor.passed()).collect();
    let first = |of: fn(&Validation) -> bool| failed.iter().copied().find(|tensor| of(tensor));
    let (outcome, worst) = if let Some(tensor) = first(golden_is_broken) {
        (Outcome::Nan(Origin::Golden), tensor)
    } else if let Some(tensor) = first(output_is_not_finite) {
        (Outcome::Nan(Origin::Output), tensor)
    } else {
        (Outcome::Mismatch, *failed.first()?)
    };
    let evidence = Evidence {
        summary: tensor_summary(&outcome, worst),
        source: "report".into(),
        detail: Some(Detail::Tensors(
            failed.iter().map(|tensor| tensor.facts.clone()).collect(),
        )),
        ..Evidence::default()
    };
    Some(Verdict { outcome, evidence })
}

fn golden_is_broken(tensor: &Validation) -> bool {
    tensor.facts.verdict == "golden-nan" || tensor.nonfinite_expected > 0
}

fn output_is_not_finite(tensor: &Validation) -> bool {
    tensor.facts.verdict == "nan" || tensor.nonfinite_actual > 0
}

fn tensor_summary(outcome: &Outcome, tensor: &Validation) -> String {
    let facts = &tensor.facts;
    match outcome {
        Outcome::Nan(Origin::Golden) => {
            format!(
                "the golden of `{}` holds {} non-finite values",
                facts.name, tensor.nonfinite_expected
            )
        }
        Outcome::Nan(Origin::Output) => {
            let row = facts
                .first_row
                .map(|row| format!(", first in row {row}"))
                .unwrap_or_default();
            let rows = facts
                .all_nan_rows
                .map(|rows| format!(", {rows} rows of nothing else"))
                .unwrap_or_default();
            format!(
                "`{}` holds {} non-finite values{row}{rows}",
                facts.name, tensor.nonfinite_actual
            )
        }
        _ => {
            let error = facts
                .max_abs_err
                .as_ref()
                .map(|error| format!(", largest error {error}"))
                .unwrap_or_default();
            let allowed = facts.allowed;
            format!(
                "`{}`: {} of {} differ ({allowed} allowed){error}",
                facts.name, facts.mismatched, facts.total
            )
        }
    }
}

/// The program's own verdict, unless it is `pass` or none.
pub(super) fn of_failure(report: &Report) -> Option<Verdict> {
    let claim = report.verdict.as_ref().filter(|claim| claim.verdict != "pass")?;
    // A program of a later minor version may have causes that this harness doesn't know; its kind still counts.
    let outcome = Outcome::from_tokens(&claim.verdict, &claim.cause)
        .or_else(|_| Outcome::from_tokens(&claim.verdict, default_cause(&claim.verdict)))
        .ok()?;
    let evidence = Evidence {
        summary: claim.message.clone(),
        source: "report".into(),
        ..Evidence::default()
    };
    Some(Verdict { outcome, evidence })
}

fn default_cause(kind: &str) -> &'static str {
    match kind {
        "mismatch" | "nan" => "output",
        "stall" => "unknown",
        "setup-error" => "exception",
        "no-verdict" => "validation-skipped",
        "config-not-applied" => "ring-differs",
        "oom" => "host",
        "crash" => "exit-1",
        _ => "",
    }
}

/// What shows a pass.
pub(super) fn pass_evidence(report: &Report) -> Evidence {
    let names: Vec<&str> = report.tensors.iter().map(|tensor| tensor.facts.name.as_str()).collect();
    let summary = match names.as_slice() {
        [one] => format!("`{one}` matches the golden"),
        many => format!("{} outputs match the golden", many.len()),
    };
    Evidence {
        summary,
        source: "report".into(),
        ..Evidence::default()
    }
}

/// The program was never started, says the launcher.
pub(super) fn launcher_failure(exit: &ExitState, log: &[u8]) -> Option<Verdict> {
    let code = i32::from(launcher::FAILED_CODE);
    if *exit != ExitState::Code(code) {
        return None;
    }
    let line = quote::quote_end(log)
        .into_iter()
        .find(|line| line.text.starts_with(launcher::FAILED))?;
    let evidence = Evidence {
        summary: line.text.trim_start_matches("ringsweep-launcher: ").to_owned(),
        source: "supervisor".into(),
        lines: vec![line],
        ..Evidence::default()
    };
    Some(Verdict {
        outcome: Outcome::SetupError(SetupCause::Launch),
        evidence,
    })
}
