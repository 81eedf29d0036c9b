//! After the last case: the comparison with the baseline, the gate, the report.

use std::io::Write;
use std::path::Path;

use anyhow::Context as _;

use super::{Args, Context, Failure};
use crate::cmd::{self, comparing};
use crate::compare::{self, Standing};
use crate::exit::Exit;
use crate::gate::GateFile;
use crate::outcome::Outcome;
use crate::record::{Expectation, Run};
use crate::report::{Format, Report};
use crate::summary::Summary;
use crate::ui::{Look, Patient};

/// What judging takes from the files beside the suites.
#[derive(Debug)]
pub(super) struct Rules {
    gates: GateFile,
    compare: compare::Context,
}

impl Rules {
    /// Reads them, and checks that the policy exists: known before hours are spent on a run.
    pub(super) fn load(args: &Args, context: &Context<'_>) -> anyhow::Result<Self> {
        let gates = comparing::gate_file(context)?;
        gates
            .policy(&args.policy)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let compare = comparing::compare_context(context, &gates)?;
        Ok(Self { gates, compare })
    }

    /// What a comparison takes of them.
    pub(super) fn compare(&self) -> &compare::Context {
        &self.compare
    }
}

/// Compares, shows and judges `run`, which stands in the directory `shown`.
pub(super) fn judge(
    args: &Args,
    rules: &Rules,
    run: &Run,
    shown: &str,
    context: &mut Context<'_>,
) -> anyhow::Result<Exit> {
    let mut comparison = comparing::against_accepted(context, run, &rules.compare)?;
    comparing::confirm_from(
        &context.results.join("runs").join(&run.provenance.run_id),
        &mut comparison,
    )?;
    let gate = match comparison.standing {
        Standing::Compared(_) => Some(cmd::gate::verdict(
            rules.gates.policy(&args.policy)?,
            &comparison,
            run,
            &rules.compare,
            context,
        )?),
        // The baseline holds cases that this run was to cover, and the run has none of them: all were renamed, or lost.
        Standing::NothingInCommon if comparison.cases.iter().any(|case| case.base.is_some()) => {
            Some(cmd::gate::verdict(
                rules.gates.policy(&args.policy)?,
                &comparison,
                run,
                &rules.compare,
                context,
            )?)
        }
        // Nobody has accepted anything of what was run: outcomes alone decide, and the note below says so.
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
        directory: shown,
        rerun_options: &options,
    };
    let report = Report::new(run, &comparison, gate.as_ref());

    let mut out = Patient::new(&mut *context.out);
    report.render(Format::Table, &mut out)?;
    writeln!(out)?;
    if args.all_rings {
        summary.write_rings(&mut out)?;
    }
    summary.write_evidence(&mut out, Look::of_stdout().colour)?;
    out.flush()?;
    if let Some(file) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|file| !file.is_empty()) {
        append(&report, Path::new(&file)).context("failed to write the step summary")?;
    }
    let mut err = Patient::new(&mut *context.err);
    if gate.is_none() {
        let platform = &comparison.now.platform;
        writeln!(
            err,
            "note: no baseline for `{platform}` holds these cases, so the exit code is about outcomes only; `cargo xtask baseline accept` makes one"
        )?;
    }
    writeln!(err, "run {shown}")?;
    Ok(gate.map_or_else(|| by_outcomes(run), |gate| gate.exit))
}

fn append(report: &Report<'_>, file: &Path) -> std::io::Result<()> {
    let mut file = fs_err::OpenOptions::new().create(true).append(true).open(file)?;
    report.render(Format::Markdown, &mut file)
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

/// The options of this sweep that change what a case means, so that a rerun repeats them.
fn rerun_options(args: &Args) -> String {
    let platform = args
        .select
        .platform
        .iter()
        .map(|platform| format!(" --platform {platform}"));
    let overrides = args.typed().overrides;
    let overrides = overrides.iter().map(|(name, value)| match value.as_str() {
        "true" => format!(" --{name}"),
        value => format!(" --{name} {value}"),
    });
    platform.chain(overrides).collect()
}
