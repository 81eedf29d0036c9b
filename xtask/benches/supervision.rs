//! What a case costs beside what it does: the same trivial program a thousand times through a shell
//! loop, through cargo-nextest and through the harness (spawn, capture, judge, record), side by side.
//!
//! `cargo bench -p xtask --bench supervision [-- CASES]` prints milliseconds a case and ratios; it
//! ends with 1 when a ratio misses its target. Host wall time, monotonic; the best of three turns
//! each, taken in turn, so that a busy moment of the machine hits no side alone.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossbeam_channel::never;
use xshell::{Shell, cmd};
use xtask::catalogue::Catalogue;
use xtask::dispatch::{self, Ending, Settings, Work};
use xtask::kernels::Kernels;
use xtask::outcome::Outcome;
use xtask::plan::{Plan, PlanRequest};
use xtask::platform::PlatformName;
use xtask::process::{ChildSpec, Ended, ExitState, Placement, Supervisor};
use xtask::provenance::{self, Typed};
use xtask::record::{Evidence, RunStatus};
use xtask::ring::RingLayer;
use xtask::run_dir::RunDir;
use xtask::runner::embedded::{environment, limits};
use xtask::runner::{Assignment, LaunchError, Observation, Runner, Runners};
use xtask::select::Selection;
use xtask::slots::Sharing;
use xtask::suite::budget::BudgetLayer;
use xtask::suite::file::Depth;
use xtask::suite::runner::RunnerKind;

/// The harness may take this much of what a shell loop takes.
const OF_SHELL: f64 = 1.5;

/// And this much of what cargo-nextest takes.
const OF_NEXTEST: f64 = 0.5;

/// Turns per side.
const TURNS: usize = 3;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<ExitCode> {
    if let Some(code) = xtask::process::helper_role() {
        return Ok(code);
    }
    let cases = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(1000);
    let program = trivial_program()?;
    let supervisor = Supervisor::start(&Supervisor::this_program())?;
    let cpus = std::thread::available_parallelism()?;
    let has_nextest = Shell::new()
        .and_then(|shell| cmd!(shell, "cargo nextest --version").quiet().ignore_stderr().read())
        .is_ok();

    let mut best: BTreeMap<&str, Duration> = BTreeMap::new();
    for _ in 0..TURNS {
        let mut take = |name: &'static str, time: Duration| {
            let slot = best.entry(name).or_insert(time);
            *slot = time.min(*slot);
        };
        take("shell loop", shell_loop(&program, cases)?);
        take(
            "harness, 1 job",
            harness(&supervisor, &program, cases, NonZeroUsize::MIN, Placement::Group)?,
        );
        take(
            "harness, a job per cpu",
            harness(&supervisor, &program, cases, cpus, Placement::Group)?,
        );
        take(
            "harness through the launcher",
            harness(&supervisor, &program, cases, NonZeroUsize::MIN, Placement::Session)?,
        );
        if has_nextest {
            take("cargo-nextest, 1 thread", nextest(cases, "1")?);
            take("cargo-nextest, a thread per cpu", nextest(cases, &cpus.to_string())?);
        }
    }

    let mut out = io::stdout().lock();
    writeln!(out, "{cases} trivial cases on {cpus} cpus, best of {TURNS}:")?;
    for (name, time) in &best {
        writeln!(
            out,
            "  {name:<32} {:>8.3} ms a case",
            time.as_secs_f64() * 1e3 / f64::from(cases)
        )?;
    }
    let ratio = |a: &str, b: &str| Some(best.get(a)?.as_secs_f64() / best.get(b)?.as_secs_f64());
    let targets = [
        ("harness, 1 job", "shell loop", OF_SHELL),
        ("harness, 1 job", "cargo-nextest, 1 thread", OF_NEXTEST),
        ("harness, a job per cpu", "cargo-nextest, a thread per cpu", OF_NEXTEST),
    ];
    let mut missed = false;
    for (ours, other, target) in targets {
        match ratio(ours, other) {
            Some(ratio) => {
                missed |= ratio > target;
                let word = if ratio <= target { "met" } else { "MISSED" };
                writeln!(out, "{ours} / {other}: {ratio:.2} (target ≤ {target}: {word})")?;
            }
            None => writeln!(out, "{ours} / {other}: cargo-nextest is not installed, not compared")?,
        }
    }
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The program of `tests/thousand.rs`, built with the profile of this benchmark.
fn trivial_program() -> Result<PathBuf> {
    let shell = Shell::new()?;
    let messages = cmd!(
        shell,
        "cargo test --quiet --release --package xtask --test thousand --no-run --message-format json"
    )
    .quiet()
    .read()?;
    let executable = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "thousand").then(|| Some(message["executable"].as_str()?.into()))?
    });
    Ok(executable.ok_or("cargo built no `thousand`")?)
}

/// What people write: a loop, a log per case, stop at the first failure.
fn shell_loop(program: &Path, cases: u32) -> Result<Duration> {
    let directory = tempfile::tempdir()?;
    let shell = Shell::new()?;
    shell.change_dir(directory.path());
    let last = (cases - 1).to_string();
    let script = r#"for i in $(seq 0 "$1"); do "$0" case_$i --exact --nocapture > log.$i 2>&1 || exit 1; done"#;
    let start = Instant::now();
    cmd!(shell, "sh -c {script} {program} {last}").quiet().run()?;
    Ok(start.elapsed())
}

/// The time that nextest itself gives for its run: building and listing are left out.
fn nextest(cases: u32, threads: &str) -> Result<Duration> {
    let shell = Shell::new()?;
    let cases = cases.to_string();
    let output = cmd!(
        shell,
        "cargo nextest run --release --package xtask --test thousand --test-threads {threads} --status-level none --final-status-level none --color never"
    )
    .env("RINGSWEEP_THOUSAND", &cases)
    .quiet()
    .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let summary = text
        .lines()
        .find(|line| line.trim_start().starts_with("Summary ["))
        .ok_or("nextest printed no summary")?;
    if !summary.contains(&format!("{cases} passed")) {
        return Err(format!("nextest: {summary}").into());
    }
    let seconds = summary
        .split(['[', ']'])
        .nth(1)
        .and_then(|text| text.trim().strip_suffix('s'))
        .ok_or("no time")?;
    Ok(Duration::from_secs_f64(seconds.trim().parse()?))
}

struct Trivial {
    program: PathBuf,
    placement: Placement,
}

impl Runner for Trivial {
    fn launch(&self, assignment: &Assignment<'_>) -> std::result::Result<ChildSpec, LaunchError> {
        let mut child = ChildSpec::new(&self.program, assignment.root, &assignment.paths.log);
        child = child.args([assignment.case.id.name(), "--exact", "--nocapture"]);
        child.environment = environment(assignment);
        child.limits = limits(assignment.case);
        child.placement = self.placement;
        Ok(child)
    }

    fn observe(&self, _: &Assignment<'_>, ended: &Ended, log: &[u8]) -> Observation {
        let passed = ended.exit == ExitState::Code(0) && log.ends_with(b"nothing to do\n");
        let finding = passed.then(|| (Outcome::Pass, Evidence::default()));
        Observation {
            finding,
            ..Observation::default()
        }
    }
}

fn harness(
    supervisor: &Supervisor,
    program: &Path,
    cases: u32,
    jobs: NonZeroUsize,
    placement: Placement,
) -> Result<Duration> {
    let directory = tempfile::tempdir()?;
    let plan = plan(directory.path(), cases)?;
    let trivial = Trivial {
        program: program.to_owned(),
        placement,
    };
    let runners: Runners = BTreeMap::from([(RunnerKind::Command, Box::new(trivial) as Box<dyn Runner>)]);
    let settings = Settings {
        jobs,
        sharing: Sharing::Overlap,
        repeat: NonZeroUsize::MIN,
        memory_bytes: None,
        start_until: None,
        today: xtask::wall_clock::today(),
        tick: None,
    };
    let provenance = provenance::begin(directory.path(), &plan, Typed::default());
    let start = Instant::now();
    let mut run_dir = RunDir::create(directory.path(), provenance)?;
    let work = Work {
        plan: &plan,
        root: directory.path(),
        settings: &settings,
        supervisor,
        runners: &runners,
        interrupts: never(),
        done: &[],
    };
    let mut progress = io::sink();
    let ending = dispatch::run(&work, &mut run_dir, &mut |notice| {
        let _ = write!(progress, "{notice:?}");
    })?;
    let run = run_dir.close(provenance::now(), RunStatus::Complete)?;
    let time = start.elapsed();
    let passed = run
        .records
        .iter()
        .filter(|record| record.outcome == Outcome::Pass)
        .count();
    if ending != Ending::Finished || passed != cases as usize {
        return Err(format!("only {passed} of {cases} cases passed").into());
    }
    Ok(time)
}

fn plan(directory: &Path, cases: u32) -> Result<Plan> {
    let suites = directory.join("cases");
    fs_err::create_dir(&suites)?;
    fs_err::write(
        suites.join("platforms.toml"),
        "[platform.bench]\nrunner = \"command\"\n",
    )?;
    let mut suite = "[suite]\nname = \"t\"\n\n[defaults]\ncommand.argv = [\"true\"]\n".to_owned();
    for n in 0..cases {
        suite.push_str("\n[[case]]\nname = \"case_");
        suite.push_str(&n.to_string());
        suite.push_str("\"\n");
    }
    fs_err::write(suites.join("t.toml"), suite)?;
    let kernels = Kernels::Unknown("no case uses them".into());
    let catalogue = Catalogue::load(&suites, || kernels.clone())?;
    let request = PlanRequest {
        selection: Selection::new(&[], &[], &[], &[])?,
        platform: PlatformName::new("bench").ok_or("no name")?,
        ring: RingLayer::default(),
        rounds: None,
        warmup: None,
        seed: None,
        budgets: BudgetLayer::default(),
        depth: Depth::Full,
    };
    Ok(Plan::resolve(&catalogue, &kernels, &request)?)
}
