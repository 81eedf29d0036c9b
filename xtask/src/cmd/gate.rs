//! `cargo xtask gate`: does a run pass for a purpose?

use std::path::PathBuf;

use anyhow::Context as _;
use xshell::{Shell, cmd};

use super::{Context, Failure, comparing};
use crate::{
    baseline::Reference,
    compare::{self, Comparison},
    count::counted,
    exit::Exit,
    gate::{self, Action, Fact, GateVerdict, Policy, Surroundings},
    record::Run,
    report::plain,
};

/// What `gate` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run: id, directory or `latest`.
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
    /// Decide by this policy of `cases/gate.toml`.
    #[arg(long, value_name = "NAME", default_value = "ci")]
    pub policy: String,
    /// Write the verdict as JSON to this file.
    #[arg(long, value_name = "PATH")]
    pub json: Option<PathBuf>,
    /// Refuse any other run than this one.
    #[arg(long, value_name = "ID")]
    pub expect_run: Option<String>,
}

/// Decides, tells every reason in one line, and ends as the verdict says.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let gates = comparing::gate_file(context)?;
    let policy = gates
        .policy(&args.policy)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let with = comparing::compare_context(context, &gates)?;
    let (dir, run) = comparing::read_run(context, &args.run)?;
    super::report::expect_run(args.expect_run.as_deref(), &run)?;
    let mut comparison = comparing::against_accepted(context, &run, &with)?;
    comparing::confirm_from(&dir, &mut comparison)?;
    let verdict = verdict(policy, &comparison, &run, &with, context)?;
    if let Some(path) = &args.json {
        fs_err::write(path, gate::verdict_json(&verdict)).context("failed to write the verdict")?;
    }
    tell(&verdict, context)?;
    Ok(verdict.exit)
}

/// The decision on `run` in this tree: with the last release, the tree's commit and its matrix.
pub fn verdict(
    policy: &Policy,
    comparison: &Comparison,
    run: &Run,
    with: &compare::Context,
    context: &Context<'_>,
) -> anyhow::Result<GateVerdict> {
    let release = comparing::baseline(context, run, Reference::Release)?;
    let release = release.map(|baseline| compare::against_baseline(run, &baseline, with));
    let commit = head(context);
    let matrix = comparing::matrix_hash(context, run)?.map(|hash| hash.to_string());
    let around = Surroundings {
        release: release.as_ref(),
        commit: Fact::sought(commit.as_deref()),
        matrix_hash: Fact::sought(matrix.as_deref()),
    };
    Ok(gate::decide_in(policy, comparison, run, around))
}

/// One line per reason, failures first, and the decision last.
pub fn tell(verdict: &GateVerdict, context: &mut Context<'_>) -> std::io::Result<()> {
    for reason in &verdict.reasons {
        let case = reason.case.as_ref().map(|case| format!("{case}: ")).unwrap_or_default();
        let word = match reason.action {
            Action::Fail => "FAIL",
            Action::Warn | Action::Ignore => "warn",
        };
        writeln!(context.out, "{word} [{}] {case}{}", reason.kind, plain(&reason.message))?;
    }
    let failures = verdict.failures().count();
    let word = if verdict.passed() { "passed" } else { "FAILED" };
    writeln!(
        context.out,
        "gate {} {word}: {} of run {} against {}, {}, {}",
        verdict.policy,
        counted(verdict.compared, "case"),
        verdict.run_id,
        plain(&verdict.reference),
        counted(failures, "failure"),
        counted(verdict.reasons.len() - failures, "warning")
    )
}

/// The commit of this tree; `None` outside of a repository.
fn head(context: &Context<'_>) -> Option<String> {
    let shell = Shell::new().ok()?;
    let _root = shell.push_dir(&context.root);
    cmd!(shell, "git rev-parse HEAD").quiet().ignore_stderr().read().ok()
}
