//! After the last case: the comparison with the baseline, the gate, the summary.

use std::path::Path;

use anyhow::Context as _;

use super::{Args, Context, Failure};
use crate::baseline::{Reference, find};
use crate::compare::{self, Comparison, Standing};
use crate::exit::Exit;
use crate::gate::{self, Action, GateFile, GateVerdict};
use crate::host_class::HostClass;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::record::{Expectation, Run};
use crate::summary::{RingDetail, Summary, step_summary};
use crate::ui::{Look, Patient};

/// Where baselines are kept, relative to the directory of results.
const BASELINES: &str = "baseline";

/// The policies, and that the one that `args` names is among them: known before hours are spent on a run.
pub(super) fn gates(args: &Args, context: &Context<'_>) -> anyhow::Result<GateFile> {
    let path = context.cases.join("gate.toml");
    let text = fs_err::read_to_string(&path).map_err(|error| Failure::usage(error.to_string()))?;
    let usage = |error| {
        Failure::usage(format!(
            "failed to use `{}`: {:#}",
            path.display(),
            anyhow::Error::from(error)
        ))
    };
    let gates = GateFile::parse(&text).map_err(usage)?;
    gates.policy(&args.policy).map_err(usage)?;
    Ok(gates)
}

/// Compares, shows and judges `run`.
pub(super) fn judge(
    args: &Args,
    gates: &GateFile,
    plan: &Plan,
    run: &Run,
    results: &Path,
    shown: &str,
    context: &mut Context<'_>,
) -> anyhow::Result<Exit> {
    let comparison = compare_with_baseline(plan, run, results, gates)?;
    let gate = match comparison.standing {
        Standing::Compared(_) => Some(gate::decide(gates.policy(&args.policy)?, &comparison, run)),
        // Nothing was compared, so no gate may say that nothing changed; outcomes alone decide.
        Standing::EmptyRun
        | Standing::NoBaseline
        | Standing::NothingInCommon
        | Standing::OtherPlatform
        | Standing::SameRun => None,
    };
    let options = rerun_options(args);
    let summary = Summary {
        run,
        comparison: &comparison,
        gate: gate.as_ref(),
        directory: shown,
        rerun_options: &options,
    };
    let detail = if args.all_rings {
        RingDetail::All
    } else {
        RingDetail::Fullest
    };
    let mut out = Patient::new(&mut *context.out);
    summary.write(&mut out, Look::of_stdout().colour, detail)?;
    std::io::Write::flush(&mut out)?;
    if let Some(file) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|file| !file.is_empty()) {
        step_summary(&summary, Path::new(&file)).context("failed to write the step summary")?;
    }
    tell_reasons(&comparison, gate.as_ref(), context)?;
    Ok(gate.map_or_else(|| by_outcomes(run), |gate| gate.exit))
}

fn compare_with_baseline(plan: &Plan, run: &Run, results: &Path, gates: &GateFile) -> anyhow::Result<Comparison> {
    let mut how = compare::Context::new(gates.rules.clone());
    how.renamed.clone_from(&plan.renamed);
    let host = HostClass::from_facts(&run.provenance.host);
    let found = find(
        &results.join(BASELINES),
        &run.provenance.platform,
        &host,
        Reference::Accepted,
    )?;
    Ok(match found.into_baseline() {
        Some(baseline) => compare::against_baseline(run, &baseline, &how),
        None => compare::without_reference(run, &how),
    })
}

/// Without a reference: every case passes, is skipped, or fails as declared.
fn by_outcomes(run: &Run) -> Exit {
    if !run.missing().is_empty() {
        return Exit::Incomplete;
    }
    let fine = run
        .terminal()
        .iter()
        .all(|record| match (&record.outcome, &record.expectation) {
            (_, Expectation::Met(_)) | (Outcome::Pass | Outcome::Skipped(_), Expectation::None) => true,
            (
                _,
                Expectation::None | Expectation::NotMet(_) | Expectation::UnexpectedPass(_) | Expectation::Expired(_),
            ) => false,
        });
    if fine { Exit::Pass } else { Exit::GateFailed }
}

fn tell_reasons(comparison: &Comparison, gate: Option<&GateVerdict>, context: &mut Context<'_>) -> anyhow::Result<()> {
    let mut err = Patient::new(&mut *context.err);
    let mut tell = |line: String| std::io::Write::write_all(&mut err, format!("{line}\n").as_bytes());
    for note in &comparison.notes {
        tell(format!("note: {note}"))?;
    }
    let Some(gate) = gate else {
        return Ok(tell(format!(
            "note: there is no baseline of these cases on `{}`: the exit code is about outcomes only; `cargo xtask baseline accept` makes one",
            comparison.now.platform
        ))?);
    };
    for reason in &gate.reasons {
        let word = match reason.action {
            Action::Fail => "fail",
            Action::Warn => "warning",
            Action::Ignore => continue,
        };
        let case = reason.case.as_ref().map(|case| format!(" {case}:")).unwrap_or_default();
        tell(format!("{word}: {}{case} {}", reason.kind.token(), reason.message))?;
    }
    let word = if gate.passed() { "passed" } else { "failed" };
    tell(format!(
        "gate `{}` {word}: {} cases compared with {}",
        gate.policy, gate.compared, gate.reference
    ))?;
    Ok(())
}

/// The options of this sweep that change what a case means, so that a rerun repeats them.
fn rerun_options(args: &Args) -> String {
    let typed = args.typed();
    let mut options = String::new();
    if let Some(platform) = &args.select.platform {
        options.push_str(&format!(" --platform {platform}"));
    }
    for (name, value) in &typed.overrides {
        options.push_str(&if value == "true" {
            format!(" --{name}")
        } else {
            format!(" --{name} {value}")
        });
    }
    options
}
