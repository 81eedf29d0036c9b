//! Measures suspects of a slowdown again, before any of them may fail a gate.
//!
//! A process run of the reference's own program (A) and one of this tree's (B) are a pair, case by case. Both live
//! at the same time and their timed dispatches take turns, A/B/B/A, so that whatever the machine does hits both;
//! where two don't fit the memory or a program can't take turns, they follow each other; a suspect that is not clear
//! after one look is measured on. The slowest come first, a few at a time, until the time for it is over. Where all
//! cases moved together, a few tell what of that is the machine before the others have their turn. A is built in a
//! git worktree of the baseline's commit and kept below `target/`; where it can't be had, B alone is measured again.
//! Both are runs of their own below the run's directory, where `gate` and `report` find them later.

mod side;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use xshell::{Shell, cmd};

use super::judge::Rules;
use super::{Args, Context, Engine, settings};
use crate::cmd::{comparing, planning::Declared};
use crate::compare::{self, CaseDiff, Comparison, Confirmation, Direction, Fresh, Suspect};
use crate::count::counted;
use crate::dispatch::{Ending, Settings};
use crate::kernel_binary::KernelBinary;
use crate::plan::{Plan, PlannedCase};
use crate::progress;
use crate::provenance;
use crate::record::{Run, RunStatus};
use crate::suite::runner::RunnerKind;
use crate::ui::Patient;
use side::{Pass, Side, Whose};

/// Measures the suspects of `run` again, if there are any; whether that was interrupted.
pub(super) fn confirm(
    args: &Args,
    rules: &Rules,
    plan: &Plan,
    declared: &Declared,
    run: &Run,
    engine: &Engine,
    context: &mut Context<'_>,
) -> anyhow::Result<Ending> {
    // Ctrl-C ends a reader such as `tee` as well, and how the sweep ends is not its reader's matter.
    let mut err = Patient::new(&mut *context.err);
    let context = &mut Context {
        root: context.root.clone(),
        cases: context.cases.clone(),
        results: context.results.clone(),
        style: context.style,
        out: &mut *context.out,
        err: &mut err,
    };
    let mut comparison = comparing::against_accepted(context, run, rules.compare())?;
    let mut suspects = compare::suspects(&comparison);
    suspects.retain(|suspect| suspect.direction == Direction::Slower);
    let Some(repeats) = suspects.iter().map(|suspect| suspect.repeats).max() else {
        return Ok(Ending::Finished);
    };
    let mut probes = compare::probes(&comparison, &suspects, run);
    suspects.sort_by(|a, b| {
        let is_probe = |suspect: &Suspect| probes.contains(&suspect.case);
        (is_probe(b), b.ratio)
            .partial_cmp(&(is_probe(a), a.ratio))
            .unwrap_or(Ordering::Equal)
    });
    let planned = |suspect: &Suspect| plan.cases.iter().find(|case| case.id == suspect.case).cloned();
    let again = Plan {
        cases: suspects.iter().filter_map(planned).collect(),
        ..plan.clone()
    };
    if again.cases.is_empty() {
        return Ok(Ending::Finished);
    }
    writeln!(
        context.err,
        "measuring {} of a slowdown again, {repeats} process runs at a time",
        counted(again.cases.len(), "suspect")
    )?;
    let dir = comparing::confirm_dir(&context.results.join("runs").join(&run.provenance.run_id));
    // What an interrupt left of an earlier time is part of no comparison, and would keep the names of the sides.
    match fs_err::remove_dir_all(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let base = base_side(&comparison, &again, run, &dir, context)?;
    if base.is_none() {
        probes.clear();
    }
    let current = declared.binary.as_ref();
    let commit = run.provenance.git_commit.clone();
    let now = Side::new(Whose::This, commit, &again, &context.cases, current, run, &dir)?;
    let mut sides: Vec<Side> = base.into_iter().chain([now]).collect();
    let mut open: Vec<Plan> = again.cases.iter().map(|case| alone(case, &again)).collect();
    // Building the reference's program doesn't count.
    let started = Instant::now();
    let until = started + args.confirm_within;
    for look in 0..comparison.rules.confirm_looks {
        let mut begun = 0;
        while begun < open.len() {
            let few = begun..open.len().min(begun + compare::PROBES);
            begun = few.end;
            let passes = look * repeats..(look + 1) * repeats;
            match measure(args, &open[few], passes, &mut sides, until, engine, context)? {
                Measured::All if open.len() > compare::PROBES => {
                    // A line now and then: this can take as long as the sweep did.
                    writeln!(
                        context.err,
                        "measured {begun} of {} again, after {:.0?}",
                        counted(open.len(), "suspect"),
                        started.elapsed()
                    )?;
                }
                Measured::All => {}
                // What was measured is not what was announced: the sides stay incomplete, which nobody judges by.
                Measured::Interrupted => {
                    writeln!(
                        context.err,
                        "interrupted: no suspect is confirmed or cleared; `cargo xtask sweep --resume {}` measures them again",
                        run.provenance.run_id
                    )?;
                    return Ok(Ending::Interrupted);
                }
                Measured::OutOfTime => {
                    writeln!(
                        context.err,
                        "the time for measuring suspects again is over (`--confirm-within`): those that are left stay unconfirmed"
                    )?;
                    close(sides, &again, context)?;
                    return Ok(Ending::Finished);
                }
            }
            if !std::mem::take(&mut probes).is_empty() {
                judge(&mut comparison, &sides);
                let before = open.len();
                open.retain(|plan| !matches!(confirmation(&comparison, plan), Some(Confirmation::Explained(_))));
                if let Some(environment) = &comparison.environment {
                    writeln!(
                        context.err,
                        "{environment}: {} no further than that",
                        counted(before - open.len(), "suspect")
                    )?;
                }
            }
        }
        judge(&mut comparison, &sides);
        open.retain(|plan| {
            // More process runs narrow a spread. Who gave nothing to judge in a whole look, since its program or the
            // other one failed each time, would only fail on.
            let was_measured = confirmation(&comparison, plan) != Some(&Confirmation::NotMeasured);
            let diff = diff(&comparison, plan);
            was_measured && diff.is_some_and(|diff| diff.final_latency().asks_for_more(&comparison.rules))
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
    close(sides, &again, context)?;
    Ok(Ending::Finished)
}

/// How far a few suspects were measured.
enum Measured {
    All,
    Interrupted,
    OutOfTime,
}

/// The process runs `passes` of every plan on every side.
fn measure(
    args: &Args,
    plans: &[Plan],
    passes: Range<usize>,
    sides: &mut [Side],
    until: Instant,
    engine: &Engine,
    context: &mut Context<'_>,
) -> anyhow::Result<Measured> {
    let mut tell = |request| {
        // Saying it is a courtesy; what can't be said is done all the same.
        let _ = writeln!(context.err, "{}", progress::stopping(request));
    };
    for pass in passes {
        for case in plans {
            if Instant::now() >= until {
                return Ok(Measured::OutOfTime);
            }
            // `--deadline` is for the sweep; how long this may take is looked at above.
            let settings = Settings {
                start_until: None,
                ..settings(args, case, NonZeroUsize::MIN.saturating_add(pass))
            };
            let pass = Pass {
                plan: case,
                settings: &settings,
                engine,
                root: &context.root,
            };
            let ending = match sides {
                [base, now] if pass.takes_turns(base, now) => pass.in_turn(base, now, &mut tell)?,
                // A/B, B/A, A/B, …: a drift over the passes favours neither. The two runs of a pair are neighbours.
                _ => {
                    let mut order: Vec<&mut Side> = sides.iter_mut().filter(|side| side.has(case)).collect();
                    if settings.repeat.get().is_multiple_of(2) {
                        order.reverse();
                    }
                    let mut ending = Ending::Finished;
                    for side in order {
                        if ending == Ending::Finished {
                            ending = pass.alone(side, &mut tell)?;
                        }
                    }
                    ending
                }
            };
            if ending != Ending::Finished {
                return Ok(Measured::Interrupted);
            }
        }
    }
    Ok(Measured::All)
}

/// Takes what the sides measured so far into the comparison.
fn judge(comparison: &mut Comparison, sides: &[Side]) {
    let (now, base) = sides.split_last().expect("this tree's program is always a side");
    let fresh = Fresh::of(base.first().map_or(&[], |base| &base.records), &now.records);
    compare::confirm(comparison, &fresh);
}

/// What the comparison says of the case of `plan`.
fn diff<'a>(comparison: &'a Comparison, plan: &Plan) -> Option<&'a CaseDiff> {
    let mut diffs = comparison.cases.iter();
    diffs.find(|diff| plan.cases.iter().any(|case| case.id == diff.case))
}

fn confirmation<'a>(comparison: &'a Comparison, plan: &Plan) -> Option<&'a Confirmation> {
    diff(comparison, plan)?.confirmation.as_ref()
}

fn close(sides: Vec<Side>, again: &Plan, context: &mut Context<'_>) -> anyhow::Result<()> {
    for mut side in sides {
        for case in &again.cases {
            if let Some(loss) = side.loss(&case.id) {
                writeln!(context.err, "{loss}")?;
            }
        }
        // Who was explained, or had no time left, is no gap in what was measured.
        let measured: BTreeSet<_> = side.records.iter().map(|record| &record.case).collect();
        side.directory.narrow(|case| measured.contains(case));
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

/// The reference's own program and the suspects that it can be measured for; `None` where there are none.
///
/// Only the kernels of this repository are built from another commit: any other program is whatever
/// stands on this machine, and would be held against itself. A row that an earlier acceptance left
/// behind is of another commit than the one that is built.
fn base_side(
    comparison: &Comparison,
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
            let side = Side::new(Whose::Base, commit, &own, &context.cases, Some(&binary), run, dir)?;
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
fn base_binary(comparison: &Comparison, context: &Context<'_>) -> Result<KernelBinary, String> {
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
