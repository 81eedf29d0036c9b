//! `cargo xtask sweep`: run the declared cases, record what happened, and say what changed.

mod args;
mod confirm;
mod judge;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::time::Instant;

use anyhow::Context as _;
use clap::Parser;

use super::{Context, Failure, planning::Declared};
use crate::cli::{Cli, Command};
use crate::dispatch::{self, Ending, Settings, Work};
use crate::exit::Exit;
use crate::interrupt;
use crate::kernels::Kernels;
use crate::plan::Plan;
use crate::platform::{PlatformMemory, machine_memory};
use crate::process::Supervisor;
use crate::progress::{self, Progress};
use crate::provenance::{self, Typed};
use crate::record::{CaseRecord, Run, RunStatus};
use crate::run_dir::{self, RunDir};
use crate::runner;
use crate::slots::Sharing;
use crate::ui::{Look, Motion, Patient};
use crate::wall_clock;

pub use args::Args;

/// Runs the selected cases and judges the run.
pub fn run(args: Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let results = context.results.clone();
    let (args, resumed) = match &args.resume {
        Some(name) => {
            let (directory, before) = RunDir::resume(&results, name)
                .map_err(|error| Failure::usage(format!("{:#}", anyhow::Error::from(error))))?;
            let typed = retyped(&before)?;
            (typed, Some((directory, before)))
        }
        None => (args, None),
    };
    let rules = judge::Rules::load(&args, context)?;
    let declared = Declared::load(context)?;
    let mut plan = declared.plan(&args.select, &args.rings, &args.bench, args.budget_layer())?;
    if let Some(shard) = args.shard {
        shard.cut(&mut plan)?;
    }
    if let Kernels::Unknown(reason) = &declared.kernels
        && plan
            .runnable()
            .any(|case| case.runner.kind() == crate::suite::runner::RunnerKind::Embedded)
    {
        return Err(Failure::ending(
            Exit::Internal,
            format!("no kernel can be run: {reason}"),
        ));
    }
    let binary = declared.binary.as_ref().map(crate::kernel_binary::KernelBinary::path);
    let runners = runner::of_plan(&plan, &context.cases, binary).map_err(|error| Failure::usage(error.to_string()))?;

    let (mut directory, done) = if let Some((directory, before)) = resumed {
        refuse_another_matrix(&plan, &before)?;
        (directory, before.records)
    } else {
        let provenance = provenance::begin(&context.root, &plan, args.typed());
        let directory = RunDir::create(&results, provenance)
            .with_context(|| format!("failed to create a run in `{}`", results.display()))?;
        warn_of_later_runs(&directory, context)?;
        (directory, Vec::new())
    };
    let engine = Engine::start()?;
    let mut ending = dispatch_plan(&args, &plan, &runners, &done, &mut directory, &engine, context)?;
    let shown = shown_path(&directory, context);
    let status = if ending == Ending::Finished {
        RunStatus::Complete
    } else {
        RunStatus::Incomplete
    };
    let run = directory
        .close(provenance::now(), status)
        .context("failed to close the run")?;
    if ending == Ending::Finished && !args.no_confirm {
        ending = confirm::confirm(&args, &rules, &plan, &declared, &run, &engine, context)?;
    }
    let exit = judge::judge(&args, &rules, &run, &shown, context)?;
    Ok(match ending {
        Ending::Interrupted => Exit::Interrupted,
        Ending::OutOfTime => Exit::Incomplete,
        Ending::Finished => exit,
    })
}

fn dispatch_plan(
    args: &Args,
    plan: &Plan,
    runners: &runner::Runners,
    done: &[CaseRecord],
    directory: &mut RunDir,
    engine: &Engine,
    context: &mut Context<'_>,
) -> anyhow::Result<Ending> {
    let look = Look::of_stderr();
    let settings = settings(args, plan, args.repeat);
    let root = context.root.clone();
    let work = engine.work(plan, runners, &settings, done, &root);
    let total = plan.cases.len() * args.repeat.get();
    let mut err = Patient::new(&mut *context.err);
    let mut progress = Progress::new(&mut err, look, total, done.len());
    let ending = dispatch::run(&work, directory, &mut |notice| progress.notice(&notice));
    progress.finish();
    ending.with_context(|| format!("failed to record the run in `{}`", directory.path().display()))
}

/// What every dispatch of this process shares.
struct Engine {
    interrupts: crossbeam_channel::Receiver<()>,
    supervisor: Supervisor,
}

impl Engine {
    fn start() -> anyhow::Result<Self> {
        Ok(Self {
            interrupts: interrupt::messages().context("failed to listen for signals")?,
            supervisor: Supervisor::start(&Supervisor::this_program())
                .context("failed to prepare for child processes")?,
        })
    }

    fn work<'a>(
        &'a self,
        plan: &'a Plan,
        runners: &'a runner::Runners,
        settings: &'a Settings,
        done: &'a [CaseRecord],
        root: &'a std::path::Path,
    ) -> Work<'a> {
        Work {
            plan,
            root,
            settings,
            supervisor: &self.supervisor,
            runners,
            interrupts: self.interrupts.clone(),
            done,
        }
    }
}

fn settings(args: &Args, plan: &Plan, repeat: NonZeroUsize) -> Settings {
    Settings {
        jobs: args.jobs.count(),
        sharing: if args.overlap_benchmarks {
            Sharing::Overlap
        } else {
            Sharing::BenchmarksAlone
        },
        repeat,
        memory_bytes: match plan.platform.memory {
            PlatformMemory::Machine => machine_memory().map(crate::size::Bytes::get),
            // Memory of a device is shared by nobody: a device has one case at a time.
            PlatformMemory::PerDevice(_) | PlatformMemory::Unknown => None,
        },
        start_until: args.deadline.map(|deadline| Instant::now() + deadline),
        today: wall_clock::today(),
        tick: (Look::of_stderr().progress == Motion::Redraw).then_some(progress::REDRAW),
    }
}

/// The arguments that `run` was started with.
fn retyped(run: &Run) -> anyhow::Result<Args> {
    let line: Vec<OsString> = run.provenance.command_line.iter().map(OsString::from).collect();
    let cli = Cli::try_parse_from(line).map_err(|error| {
        Failure::usage(format!(
            "run `{}` was started by a command that can't be read any more: {error}",
            run.provenance.run_id
        ))
    })?;
    match cli.command {
        Command::Sweep(args) => Ok(*args),
        _ => Err(Failure::usage(format!(
            "run `{}` was not started by `sweep`",
            run.provenance.run_id
        ))),
    }
}

/// A run is one matrix: records of two would make up a third that nobody declared.
fn refuse_another_matrix(plan: &Plan, before: &Run) -> anyhow::Result<()> {
    let planned: Vec<_> = plan.cases.iter().map(|case| &case.id).collect();
    let same = plan.matrix.to_string() == before.provenance.matrix_hash
        && planned.iter().copied().eq(&before.provenance.planned);
    if same {
        return Ok(());
    }
    let message = format!(
        "run `{}` can't be resumed: the suites have changed since (matrix {} then, {} now); start a new sweep",
        before.provenance.run_id, before.provenance.matrix_hash, plan.matrix
    );
    Err(Failure::ending(Exit::NotComparable, message))
}

/// Says so where a clock that stepped back makes another run the latest.
fn warn_of_later_runs(directory: &RunDir, context: &mut Context<'_>) -> anyhow::Result<()> {
    let latest = run_dir::latest(&context.results)?;
    if let Some(later) = latest.filter(|latest| latest != directory.path()) {
        writeln!(
            context.err,
            "note: `{}` says that it was started later than now, so `latest` means that run; this one is `{}`",
            later.display(),
            directory.provenance().run_id
        )?;
    }
    Ok(())
}

/// The run's directory as it is shown: relative where that is shorter.
fn shown_path(directory: &RunDir, context: &Context<'_>) -> String {
    let path = directory.path();
    path.strip_prefix(&context.root).unwrap_or(path).display().to_string()
}

impl Args {
    /// What of the command line is part of the run's provenance.
    fn typed(&self) -> Typed {
        let mut overrides: BTreeMap<String, String> = BTreeMap::new();
        let mut set = |name: &str, value: Option<String>| overrides.extend(value.map(|value| (name.to_owned(), value)));
        set(
            "ring-heap",
            self.rings
                .ring_heap
                .map(|s| s.show(crate::ring::Resource::Heap).to_string()),
        );
        set(
            "ring-task-window",
            self.rings
                .ring_task_window
                .map(|s| s.show(crate::ring::Resource::TaskWindow).to_string()),
        );
        set(
            "ring-dep-pool",
            self.rings
                .ring_dep_pool
                .map(|s| s.show(crate::ring::Resource::DepPool).to_string()),
        );
        set("rounds", self.bench.rounds.map(|rounds| rounds.to_string()));
        set("warmup", self.bench.warmup.map(|warmup| warmup.to_string()));
        set("seed", self.bench.seed.map(|seed| seed.to_string()));
        set("quick", self.bench.quick.then(|| "true".into()));
        set("overlap-benchmarks", self.overlap_benchmarks.then(|| "true".into()));
        let mut selection = self.select.filters.clone();
        selection.extend(self.select.skip.iter().map(|glob| format!("--skip {glob}")));
        selection.extend(self.select.tag.iter().map(|tag| format!("--tag {tag}")));
        selection.extend(self.select.suite.iter().map(|suite| format!("--suite {suite}")));
        let arguments = std::env::args_os()
            .skip(1)
            .map(|argument| argument.to_string_lossy().into_owned());
        Typed {
            command_line: std::iter::once("cargo xtask".to_owned()).chain(arguments).collect(),
            selection,
            shard: self.shard.map(|shard| (shard.index, shard.count)),
            seed: self.bench.seed.unwrap_or(0),
            overrides,
        }
    }
}

impl args::Shard {
    /// Keeps every `count`th case from `index` on.
    fn cut(self, plan: &mut Plan) -> anyhow::Result<()> {
        let mut n = 0;
        plan.cases.retain(|_| {
            n += 1;
            (n - 1) % self.count == self.index - 1
        });
        if plan.cases.is_empty() {
            return Err(Failure::ending(
                Exit::NothingSelected,
                format!("shard {self} holds no case"),
            ));
        }
        Ok(())
    }
}

impl args::Jobs {
    fn count(self) -> NonZeroUsize {
        match self {
            Self::Count(count) => count,
            Self::Cpus => std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        }
    }
}
