//! Measures suspects of a slowdown again, before any of them may fail a gate.
//!
//! Fresh process runs of the reference's own program (A) and of this tree's (B) are interleaved A/B/B/A,
//! so that whatever the machine does hits both. A is built in a git worktree of the baseline's commit and
//! kept below `target/`; where it can't be had, B alone is measured again. Both are runs of their own
//! below the run's directory, where `gate` and `report` find them later.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use xshell::{Shell, cmd};

use super::judge::Rules;
use super::{Args, Context, Engine, settings};
use crate::cmd::{comparing, planning::Declared};
use crate::compare::{self, Direction};
use crate::dispatch::{self, Ending, Notice};
use crate::kernel_binary::KernelBinary;
use crate::plan::Plan;
use crate::provenance;
use crate::record::{CaseRecord, Run, RunStatus};
use crate::run_dir::RunDir;
use crate::runner;

/// Measures the suspects of `run` again, if there are any.
pub(super) fn confirm(
    args: &Args,
    rules: &Rules,
    plan: &Plan,
    declared: &Declared,
    run: &Run,
    engine: &Engine,
    context: &mut Context<'_>,
) -> anyhow::Result<()> {
    let comparison = comparing::against_accepted(context, run, rules.compare())?;
    let mut suspects = compare::suspects(&comparison);
    suspects.retain(|suspect| suspect.direction == Direction::Slower);
    let mut again = plan.clone();
    again
        .cases
        .retain(|case| suspects.iter().any(|suspect| suspect.case == case.id));
    let Some(repeats) = suspects
        .iter()
        .map(|suspect| suspect.repeats)
        .max()
        .filter(|_| !again.cases.is_empty())
    else {
        return Ok(());
    };
    writeln!(
        context.err,
        "{} suspects of a slowdown are measured again, {repeats} process runs each",
        again.cases.len()
    )?;
    let base = match base_binary(&comparison, context) {
        Ok(binary) => Some(binary),
        Err(why) => {
            writeln!(
                context.err,
                "note: the baseline's own program is not measured beside this one: {why}; the suspects are held against the baseline's numbers"
            )?;
            None
        }
    };
    let mut sides = Vec::new();
    let current = declared.binary.as_ref().map(KernelBinary::path);
    let dir = comparing::confirm_dir(&context.results.join("runs").join(&run.provenance.run_id));
    if let Some(base) = &base {
        let commit = comparison.base.commit.clone();
        sides.push(Side::new(
            "base",
            commit,
            &again,
            &context.cases,
            Some(base.path()),
            run,
            &dir,
        )?);
    }
    sides.push(Side::new(
        "now",
        run.provenance.git_commit.clone(),
        &again,
        &context.cases,
        current,
        run,
        &dir,
    )?);
    for pass in 0..repeats {
        // A/B, B/A, A/B, …: a drift over the passes favours neither.
        let mut order: Vec<usize> = (0..sides.len()).collect();
        if pass % 2 == 1 {
            order.reverse();
        }
        for side in order {
            if sides[side].pass(args, &again, pass, engine, context)? != Ending::Finished {
                // What was measured is not what was announced: the suspects stay unconfirmed.
                return Ok(());
            }
        }
    }
    for side in sides {
        side.directory
            .close(provenance::now(), RunStatus::Complete)
            .context("failed to close the fresh runs")?;
    }
    Ok(())
}

/// One program with its fresh runs.
struct Side {
    runners: runner::Runners,
    directory: RunDir,
    records: Vec<CaseRecord>,
}

impl Side {
    fn new(
        name: &str,
        commit: Option<String>,
        plan: &Plan,
        cases: &Path,
        binary: Option<&Path>,
        run: &Run,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let mut provenance = run.provenance.clone();
        provenance.run_id = name.into();
        provenance.started = provenance::now();
        provenance.git_commit = commit;
        provenance.planned = plan.cases.iter().map(|case| case.id.clone()).collect();
        Ok(Self {
            runners: runner::of_plan(plan, cases, binary)?,
            directory: RunDir::create(dir, provenance).context("failed to create the fresh runs")?,
            records: Vec::new(),
        })
    }

    /// One more process run of every suspect.
    fn pass(
        &mut self,
        args: &Args,
        plan: &Plan,
        pass: usize,
        engine: &Engine,
        context: &Context<'_>,
    ) -> anyhow::Result<Ending> {
        let settings = settings(args, plan, NonZeroUsize::MIN.saturating_add(pass));
        let work = engine.work(plan, &self.runners, &settings, &self.records, &context.root);
        let mut fresh = Vec::new();
        let ending = dispatch::run(&work, &mut self.directory, &mut |notice| {
            if let Notice::Finished { record, again: false } = notice {
                fresh.push(record.clone());
            }
        })?;
        self.records.append(&mut fresh);
        Ok(ending)
    }
}

/// The kernel binary of the baseline's commit, or why it can't be had.
fn base_binary(comparison: &compare::Comparison, context: &Context<'_>) -> Result<KernelBinary, String> {
    let commit = comparison.base.commit.as_ref().ok_or("its commit is not known")?;
    if !comparison.host_differences.is_empty() {
        return Err("it is of another host class".into());
    }
    // With one target directory for both trees, the second build would overwrite the first's program.
    if std::env::var_os("CARGO_TARGET_DIR").is_some() {
        return Err("`CARGO_TARGET_DIR` is set".into());
    }
    let tree: PathBuf = context.root.join("target/ringsweep").join(commit);
    if !tree.join("Cargo.toml").is_file() {
        let shell = Shell::new().map_err(|error| error.to_string())?;
        shell.change_dir(&context.root);
        cmd!(shell, "git worktree prune")
            .quiet()
            .ignore_stderr()
            .run()
            .map_err(|error| error.to_string())?;
        cmd!(shell, "git worktree add --quiet --detach {tree} {commit}")
            .quiet()
            .ignore_stderr()
            .run()
            .map_err(|_| format!("commit `{commit}` can't be checked out"))?;
    }
    KernelBinary::build(&tree).map_err(|error| format!("commit `{commit}` can't be built: {error}"))
}
