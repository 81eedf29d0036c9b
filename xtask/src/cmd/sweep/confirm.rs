//! Measures suspects of a slowdown again, before any of them may fail a gate.
//!
//! Fresh process runs of the reference's own program (A) and of this tree's (B) are interleaved A/B/B/A,
//! case by case, so that whatever the machine does hits both; a suspect that is not clear after one look
//! is measured on. A is built in a git worktree of the baseline's commit and
//! kept below `target/`; where it can't be had, B alone is measured again. Both are runs of their own
//! below the run's directory, where `gate` and `report` find them later.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use xshell::{Shell, cmd};

use super::judge::Rules;
use super::{Args, Context, Engine, settings};
use crate::case_id::CaseId;
use crate::cmd::{comparing, planning::Declared};
use crate::compare::{self, Direction, Fresh};
use crate::dispatch::{self, Ending, Notice};
use crate::kernel_binary::KernelBinary;
use crate::plan::{Plan, PlannedCase};
use crate::provenance;
use crate::record::{CaseRecord, Run, RunStatus};
use crate::run_dir::RunDir;
use crate::runner;
use crate::suite::runner::RunnerKind;

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
    let mut comparison = comparing::against_accepted(context, run, rules.compare())?;
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
        "{} suspects of a slowdown are measured again, {repeats} process runs each at a time",
        again.cases.len()
    )?;
    let dir = comparing::confirm_dir(&context.results.join("runs").join(&run.provenance.run_id));
    let base = base_side(&comparison, &again, run, &dir, context)?;
    let current = declared.binary.as_ref().map(KernelBinary::path);
    let commit = run.provenance.git_commit.clone();
    let now = Side::new("now", commit, &again, &context.cases, current, run, &dir)?;
    let mut sides: Vec<Side> = base.into_iter().chain([now]).collect();
    let mut open: Vec<Plan> = again.cases.iter().map(|case| alone(case, &again)).collect();
    for look in 0..comparison.rules.confirm_looks {
        for pass in look * repeats..(look + 1) * repeats {
            // A/B, B/A, A/B, …: a drift over the passes favours neither. Case by case, so that the two
            // runs of a pair are neighbours.
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if pass % 2 == 1 {
                order.reverse();
            }
            for case in &open {
                for &side in &order {
                    let side = &mut sides[side];
                    if side.has(case) && side.pass(args, case, pass, engine, context)? != Ending::Finished {
                        // What was measured is not what was announced: the suspects stay unconfirmed.
                        return Ok(());
                    }
                }
            }
        }
        let (now, base) = sides.split_last().expect("this tree's program is always a side");
        let fresh = Fresh::of(base.first().map_or(&[], |base| &base.records), &now.records);
        compare::confirm(&mut comparison, &fresh);
        open.retain(|plan| {
            let mut diffs = comparison.cases.iter();
            let diff = diffs.find(|diff| plan.cases.iter().any(|case| case.id == diff.case));
            diff.is_some_and(|diff| diff.final_latency().asks_for_more(&comparison.rules))
        });
        if open.is_empty() {
            break;
        }
        if look + 1 < comparison.rules.confirm_looks {
            writeln!(
                context.err,
                "{} of them are not clear yet and are measured on",
                open.len()
            )?;
        }
    }
    for side in sides {
        side.directory
            .close(provenance::now(), RunStatus::Complete)
            .context("failed to close the fresh runs")?;
    }
    Ok(())
}

/// The plan of one case of `plan`.
fn alone(case: &PlannedCase, plan: &Plan) -> Plan {
    Plan {
        cases: vec![case.clone()],
        ..plan.clone()
    }
}

/// One program with its fresh runs.
struct Side {
    cases: BTreeSet<CaseId>,
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
            cases: plan.cases.iter().map(|case| case.id.clone()).collect(),
            runners: runner::of_plan(plan, cases, binary)?,
            directory: RunDir::create(dir, provenance).context("failed to create the fresh runs")?,
            records: Vec::new(),
        })
    }

    /// Whether this side measures the cases of `plan`.
    fn has(&self, plan: &Plan) -> bool {
        plan.cases.iter().all(|case| self.cases.contains(&case.id))
    }

    /// One more process run of the cases of `plan`.
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

/// The reference's own program and the suspects that it can be measured for; `None` where there are none.
///
/// Only the kernels of this repository are built from another commit: any other program is whatever
/// stands on this machine, and would be held against itself. A row that an earlier acceptance left
/// behind is of another commit than the one that is built.
fn base_side(
    comparison: &compare::Comparison,
    again: &Plan,
    run: &Run,
    dir: &Path,
    context: &mut Context<'_>,
) -> anyhow::Result<Option<Side>> {
    let mut own = again.clone();
    own.cases
        .retain(|case| case.runner.kind() == RunnerKind::Embedded && !comparison.earlier.contains(&case.id));
    let binary = if own.cases.is_empty() {
        Err("no suspect is a kernel of the commit that was accepted last".into())
    } else {
        base_binary(comparison, context)
    };
    match binary {
        Ok(binary) => {
            let commit = comparison.base.commit.clone();
            let side = Side::new("base", commit, &own, &context.cases, Some(binary.path()), run, dir)?;
            Ok(Some(side))
        }
        Err(why) => {
            writeln!(
                context.err,
                "note: the baseline's own program is not measured beside this one: {why}; the suspects are held against the baseline's numbers"
            )?;
            Ok(None)
        }
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
