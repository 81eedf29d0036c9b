//! Suspects of a slowdown are measured again: real programs that sleep, real sweeps, real exit codes.
//!
//! The kernels are those of a tiny workspace whose `kernel` binary naps, so that the baseline's own
//! program is built from its commit as it is in this repository.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use xtask::format;
use xtask::record::{Run, RunStatus};

/// A slowdown is twice the time, so floors far above what a busy machine adds to a nap decide as surely.
const GATE: &str = "
[rules]
relative-floor = 0.25
suspect-threshold = 0.25
plain-threshold = 0.5
resolution = 0.6
confirm-repeats = 8
confirm-looks = 3
[policy.ci]
default = 'fail'
[policy.ci.on]
cleared = 'warn'
undecided = 'ignore'
dirty = 'ignore'
no-release = 'ignore'
common-mode = 'warn'
noisy = 'ignore'
";

/// A program that speaks the report protocol and naps; `NAP_MS` stands in its source. The kernel `doze` takes a time of
/// its own, and a machine whose file `pace` says so takes a multiple for everything. With `TURNS` it takes turns, and
/// the file `fate` says by its `NAP_MS` which of two programs comes to grief in the second of them, and how.
const KERNEL: &str = r##"
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};
const NAP_MS: u64 = 40;
const DOZE_MS: u64 = 20;
const TURNS: bool = true;
extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
}
fn meet(fate: &str) {
    if fate == "dies" {
        std::process::abort();
    } else if fate == "hangs once" {
        std::fs::remove_file("fate").unwrap();
    } else if fate == "ignores TERM" {
        unsafe { signal(15, 1) };
    } else if fate != "hangs" {
        return;
    }
    std::fs::write("hanging", "").unwrap();
    std::thread::sleep(Duration::from_secs(600));
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[1] == "list" {
        println!("{}", r#"[{"name":"doze"},{"name":"nap"}]"#);
        return;
    }
    if args[2] == "--help" {
        println!("{}", if TURNS { "--turns <TAKE,DONE>" } else { "no options" });
        return;
    }
    let mut turns = args.iter().position(|arg| arg == "--turns").map(|at| {
        assert!(TURNS, "an unknown option");
        let (take, done) = args[at + 1].split_once(',').unwrap();
        (std::fs::File::open(take).unwrap(), std::fs::OpenOptions::new().write(true).open(done).unwrap())
    });
    let mut wait = || if let Some((take, done)) = &mut turns {
        done.write_all(b".").unwrap();
        take.read_exact(&mut [0]).unwrap();
    };
    let after = |name: &str| args.iter().position(|arg| arg == name).map(|at| args[at + 1].clone()).unwrap();
    let mut report = std::fs::OpenOptions::new().append(true).create(true).open(after("--report")).unwrap();
    let slow = std::fs::remove_file("slow-once").is_ok();
    let pace: u64 = std::fs::read_to_string("pace").map_or(1, |pace| pace.trim().parse().unwrap());
    let ms = pace * if args.iter().any(|arg| arg == "doze") { DOZE_MS } else { NAP_MS };
    writeln!(report, "{}", r#"{"event":"hello","protocol":{"major":1,"minor":0},"program":"kernel","pid":1}"#).unwrap();
    writeln!(report, "{}", r#"{"event":"stage","stage":"runtime","phase":"begin"}"#).unwrap();
    writeln!(report, "{}", r#"{"event":"tensor","name":"y","verdict":"pass","total":1}"#).unwrap();
    let fate = std::fs::read_to_string("fate").unwrap_or_default();
    let fate = fate.strip_prefix(&format!("{NAP_MS} ")).filter(|_| args.iter().any(|arg| arg == "--turns"));
    for round in 0..after("--rounds").parse::<u32>().unwrap() {
        wait();
        if round == 1 {
            meet(fate.unwrap_or(""));
        }
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(if slow { 3 * ms } else { ms }));
        let ns = start.elapsed().as_nanos();
        if args.iter().any(|arg| arg == "--turns") {
            let mut order = std::fs::OpenOptions::new().append(true).create(true).open("order").unwrap();
            writeln!(order, "{NAP_MS}").unwrap();
        }
        writeln!(report, "{}", r#"{"event":"sample","index":ROUND,"device_ns":NS,"clock":"device"}"#
            .replace("ROUND", &round.to_string()).replace("NS", &ns.to_string()).as_str()).unwrap();
    }
    wait();
    writeln!(report, "{}", r#"{"event":"verdict","verdict":"pass"}"#).unwrap();
}
"##;

struct Workspace {
    directory: TempDir,
}

impl Workspace {
    /// With one case: of the napping kernel, or of `more` where that is given.
    fn new(case: &str) -> Self {
        let workspace = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let files = [
            ("Cargo.toml", "[workspace]\nmembers = [\"kernels\"]\nresolver = \"3\"\n".to_owned()),
            ("Cargo.lock", "version = 4\n\n[[package]]\nname = \"kernels\"\nversion = \"0.0.0\"\n".into()),
            (
                "kernels/Cargo.toml",
                "[package]\nname = \"kernels\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[[bin]]\nname = \"kernel\"\npath = \"kernel.rs\"\n".into(),
            ),
            ("kernels/kernel.rs", KERNEL.into()),
            (".gitignore", "target\nresults\npace\norder\nfate\nhanging\n".into()),
            ("cases/gate.toml", GATE.into()),
            ("cases/platforms.toml", "[platform.here]\nrunner = \"command\"\n".into()),
            (
                "cases/t.toml",
                format!("[suite]\nname = \"t\"\n[defaults]\nbench = {{ warmup = 0, rounds = 2 }}\n[[case]]\nname = \"nap\"\n{case}\n"),
            ),
        ];
        for (path, text) in files {
            workspace.write(path, &text);
        }
        workspace
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn git(&self, arguments: &[&str]) -> String {
        let shell = xshell::Shell::new().unwrap();
        shell.change_dir(self.root());
        let who = [
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.invalid",
            "-c",
            "commit.gpgsign=false",
        ];
        xshell::cmd!(shell, "git {who...} {arguments...}")
            .quiet()
            .ignore_stderr()
            .read()
            .unwrap()
    }

    fn commit(&self) -> String {
        if !self.root().join(".git").exists() {
            self.git(&["init", "--quiet"]);
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "a step"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// The kernels of early baselines can't take turns.
    fn without_turns(&self) {
        self.write(
            "kernels/kernel.rs",
            &KERNEL.replace("TURNS: bool = true", "TURNS: bool = false"),
        );
    }

    /// With so many fresh process runs per look, and so many looks.
    fn confirming(&self, repeats: u32, looks: u32) {
        let gate = GATE
            .replace("confirm-repeats = 8", &format!("confirm-repeats = {repeats}"))
            .replace("confirm-looks = 3", &format!("confirm-looks = {looks}"));
        self.write("cases/gate.toml", &gate);
    }

    fn twice_as_slow(&self) {
        self.write("kernels/kernel.rs", &KERNEL.replace("u64 = 40", "u64 = 80"));
    }

    #[expect(clippy::disallowed_methods, reason = "this is the user who starts the harness")]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .env("CARGO_MANIFEST_DIR", self.root().join("xtask"))
            // The workspace has a target directory and a toolchain of its own choice.
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("GITHUB_STEP_SUMMARY")
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    fn xtask(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// A sweep of a program that became twice as slow, of which the program of this nap comes to grief.
    fn start_with_fate(&self, fate: &str, more: &[&str]) -> Harness {
        self.commit();
        self.accept_repeated("host", "1");
        self.twice_as_slow();
        self.commit();
        self.write("fate", fate);
        let mut command = self.command(&[&["sweep"], more].concat());
        Harness(Some(
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        ))
    }

    /// How many programs of this workspace run.
    fn processes(&self) -> usize {
        let root = self.root().canonicalize().unwrap();
        let processes = std::fs::read_dir("/proc").unwrap();
        let programs = processes.filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("exe")).ok());
        programs.filter(|program| program.starts_with(&root)).count()
    }

    /// Sweeps five times over and accepts that.
    #[track_caller]
    fn accept(&self, platform: &str) {
        self.accept_repeated(platform, "5");
    }

    #[track_caller]
    fn accept_repeated(&self, platform: &str, times: &str) {
        let sweep = self.xtask(&["sweep", "--platform", platform, "--repeat", times]);
        assert_eq!(sweep.status.code(), Some(0), "{}", all(&sweep));
        let accept = self.xtask(&["baseline", "accept", "latest", "--because", "the test's own"]);
        assert_eq!(accept.status.code(), Some(0), "{}", all(&accept));
    }

    /// The fresh runs of one side of the newest run.
    fn fresh(&self, side: &str) -> Option<Run> {
        let runs = std::fs::read_dir(self.root().join("results/runs")).unwrap();
        let mut sides: Vec<_> = runs
            .filter_map(|run| format::read::run(&run.unwrap().path().join("confirm/runs").join(side)).ok())
            .collect();
        assert!(sides.len() <= 1, "one run had suspects");
        sides.pop()
    }

    /// What the report of the newest run says of the case, as JSON.
    fn reported(&self) -> serde_json::Value {
        let report = self.xtask(&["report", "latest", "--format", "json"]);
        let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
        report["cases"][0].clone()
    }
}

/// A harness that a test may give up; what it started ends with it.
struct Harness(Option<Child>);

impl Harness {
    fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().unwrap())
    }

    /// What it said and how it ended, which must be soon.
    fn ended(mut self) -> Output {
        let child = self.0.as_mut().unwrap();
        wait_for(|| child.try_wait().unwrap().is_some());
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for what must come, however busy the machine is; hanging is what takes longer.
#[track_caller]
fn wait_for(mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_mins(2);
    while !condition() {
        assert!(Instant::now() < limit, "nothing happened");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn outcomes(run: &Run) -> Vec<String> {
    run.records.iter().map(|record| record.outcome.to_string()).collect()
}

fn all(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_slower_program_is_confirmed_against_the_baselines_own() {
    let workspace = Workspace::new("kernel = \"nap\"");
    let accepted = workspace.commit();
    workspace.accept("host");
    workspace.twice_as_slow();
    let commit = workspace.commit();
    let sweep = workspace.xtask(&["sweep"]);
    let told = all(&sweep);
    assert_eq!(sweep.status.code(), Some(1), "{told}");
    assert!(told.contains("measuring 1 suspect of a slowdown again"), "{told}");
    assert!(
        told.contains("FAIL [slower] t/nap") && told.contains("measured again"),
        "{told}"
    );
    let (base, now) = (workspace.fresh("base").unwrap(), workspace.fresh("now").unwrap());
    assert_eq!(base.provenance.git_commit.as_deref(), Some(accepted.as_str()));
    assert_eq!(now.provenance.git_commit.as_deref(), Some(commit.as_str()));
    // A pair for every run, and the reference's program is as fast as it was.
    assert!(base.records.len() >= 8 && base.records.len() == now.records.len());
    let fastest = |run: &Run| {
        let samples = run
            .records
            .iter()
            .flat_map(|record| record.latency.as_ref().unwrap().samples());
        samples.map(|sample| sample.get()).min().unwrap()
    };
    assert!(fastest(&base) < 80_000_000 && fastest(&now) >= 80_000_000);
    // Two timed dispatches a process run, in turn with those of the other program.
    let order = std::fs::read_to_string(workspace.root().join("order")).unwrap();
    let order: Vec<&str> = order.lines().collect();
    assert_eq!(order.len(), 4 * base.records.len());
    assert!(
        order.chunks(4).all(|pair| pair == ["40", "80", "80", "40"]),
        "{order:?}"
    );
    assert_eq!(workspace.reported()["confirmation"], "confirmed");
    // The decision is in the files: it can be made again.
    let gate = workspace.xtask(&["gate", "latest", "--policy", "ci"]);
    assert_eq!(gate.status.code(), Some(1), "{}", all(&gate));
}

#[test]
fn an_early_baseline_that_takes_no_turns_is_measured_in_between() {
    let workspace = Workspace::new("kernel = \"nap\"");
    workspace.without_turns();
    workspace.commit();
    workspace.accept("host");
    workspace.twice_as_slow();
    workspace.commit();
    let sweep = workspace.xtask(&["sweep"]);
    let told = all(&sweep);
    assert_eq!(sweep.status.code(), Some(1), "{told}");
    assert!(told.contains("FAIL [slower] t/nap"), "{told}");
    let (base, now) = (workspace.fresh("base").unwrap(), workspace.fresh("now").unwrap());
    assert!(base.records.len() >= 8 && base.records.len() == now.records.len());
    assert!(!workspace.root().join("order").exists(), "nobody took turns");
}

#[test]
fn what_was_slow_once_is_cleared_and_stays_in_the_report() {
    let workspace = Workspace::new("kernel = \"nap\"");
    workspace.commit();
    workspace.accept("host");
    workspace.write("slow-once", "");
    let sweep = workspace.xtask(&["sweep"]);
    let told = all(&sweep);
    assert!(
        !workspace.root().join("slow-once").exists(),
        "the first process run was the slow one"
    );
    assert!(told.contains("measuring 1 suspect of a slowdown again"), "{told}");
    assert_eq!(sweep.status.code(), Some(0), "{told}");
    assert!(told.contains("warn [cleared] t/nap"), "{told}");
    let case = workspace.reported();
    assert_eq!(case["confirmation"], "cleared");
    assert!(case["first_latency"]["ratio"].as_f64().unwrap() > 2.0, "{case}");
    assert_eq!(case["latency"]["verdict"], "unchanged", "{case}");
}

#[test]
fn without_a_commit_to_build_the_baselines_numbers_stand_in() {
    let workspace = Workspace::new("kernel = \"nap\"");
    workspace.accept("host");
    workspace.twice_as_slow();
    let sweep = workspace.xtask(&["sweep"]);
    let told = all(&sweep);
    assert_eq!(sweep.status.code(), Some(1), "{told}");
    assert!(told.contains("its commit is not known"), "{told}");
    assert!(told.contains("FAIL [slower] t/nap"), "{told}");
    assert!(workspace.fresh("base").is_none() && workspace.fresh("now").is_some());
}

#[test]
fn a_foreign_program_is_never_held_against_itself() {
    // The program is what stands on the machine, whichever commit is built: both sides would be the new one.
    let script = "s=$(date +%s%N); sleep $(cat pace); e=$(date +%s%N); echo took $((e-s)) ns; echo '[RUN] PASS'";
    let case = format!(
        "command = {{ argv = [\"sh\", \"-c\", {script:?}], rules = \"pypto\", samples = {{ from = \"log\", pattern = 'took (?<value>[0-9]+) ns', unit = \"ns\", clock = \"host\" }} }}"
    );
    let workspace = Workspace::new(&case);
    workspace.write("pace", "0.1");
    workspace.commit();
    workspace.accept("here");
    workspace.write("pace", "0.25");
    let sweep = workspace.xtask(&["sweep", "--platform", "here"]);
    let told = all(&sweep);
    assert_eq!(sweep.status.code(), Some(1), "{told}");
    assert!(told.contains("no suspect is a kernel"), "{told}");
    assert!(told.contains("FAIL [slower] t/nap"), "{told}");
}

#[test]
fn what_the_machine_did_to_all_cases_is_told_by_a_few_and_hides_no_slower_one() {
    let naps: Vec<String> = (1..=7)
        .map(|i| format!("[[case]]\nname = \"nap-{i}\"\nkernel = \"nap\"\n"))
        .collect();
    let naps = naps.concat();
    let workspace = Workspace::new(&format!(
        "kernel = \"nap\"\n[[case]]\nname = \"doze\"\nkernel = \"doze\"\n{naps}"
    ));
    let quick = KERNEL.replace("NAP_MS: u64 = 40", "NAP_MS: u64 = 15");
    workspace.write("kernels/kernel.rs", &quick);
    workspace.commit();
    workspace.accept("host");
    // The machine takes twice the time for everything, and one kernel twice as much on top of it.
    workspace.write("pace", "2");
    workspace.write(
        "kernels/kernel.rs",
        &quick.replace("DOZE_MS: u64 = 20", "DOZE_MS: u64 = 40"),
    );
    workspace.commit();
    let sweep = workspace.xtask(&["sweep"]);
    let told = all(&sweep);
    assert_eq!(sweep.status.code(), Some(1), "{told}");
    assert!(told.contains("measuring 9 suspects of a slowdown again"), "{told}");
    assert!(told.contains("9 of 9 cases moved together"), "{told}");
    assert!(told.contains("the reference's own program moved by +"), "{told}");
    assert!(told.contains("3 suspects no further than that"), "{told}");
    assert!(told.contains("FAIL [slower] t/doze"), "{told}");
    assert_eq!(told.matches("FAIL [").count(), 1, "{told}");
    let now = workspace.fresh("now").unwrap();
    let measured: std::collections::BTreeSet<_> = now.records.iter().map(|record| record.case.to_string()).collect();
    assert_eq!(
        measured.len(),
        6,
        "five that tell, and the one that moved further: {measured:?}"
    );
    assert!(measured.contains("t/doze"), "{measured:?}");
    let first = now.records.iter().position(|record| record.case.as_str() == "t/doze");
    assert_eq!(first, Some(5 * 8), "those that tell come before the slowest");
}

#[test]
fn the_slowest_suspect_is_measured_first() {
    let workspace = Workspace::new("kernel = \"nap\"\n[[case]]\nname = \"slowest\"\nkernel = \"doze\"");
    workspace.confirming(1, 1);
    workspace.commit();
    workspace.accept("host");
    // Twice as slow, and four times: neither the plan nor the alphabet has the second one first.
    let slower = KERNEL.replace("DOZE_MS: u64 = 20", "DOZE_MS: u64 = 80");
    workspace.write(
        "kernels/kernel.rs",
        &slower.replace("NAP_MS: u64 = 40", "NAP_MS: u64 = 80"),
    );
    workspace.commit();
    let sweep = workspace.xtask(&["sweep"]);
    let told = all(&sweep);
    assert!(told.contains("measuring 2 suspects of a slowdown again"), "{told}");
    let now = workspace.fresh("now").unwrap();
    let order: Vec<&str> = now.records.iter().map(|record| record.case.as_str()).collect();
    assert_eq!(order, ["t/slowest", "t/nap"], "{told}");
}

#[test]
fn suspects_that_the_time_does_not_suffice_for_stay_unconfirmed() {
    let workspace = Workspace::new("kernel = \"nap\"");
    workspace.commit();
    workspace.accept("host");
    workspace.twice_as_slow();
    workspace.commit();
    let sweep = workspace.xtask(&["sweep", "--confirm-within", "1ms"]);
    let told = all(&sweep);
    assert!(told.contains("`--confirm-within`"), "{told}");
    // Hardly a pair was measured: no test, and so no slowdown either; but it is said.
    assert!(!told.contains("[slower]"), "{told}");
    let confirmation = workspace.reported()["confirmation"].clone();
    assert!(
        ["not-measured-again", "unclear"].contains(&confirmation.as_str().unwrap()),
        "{confirmation}"
    );
}

/// One of two programs dies in its second turn, every time.
#[track_caller]
fn a_program_dies(fate: &str, dead: &str, whose: &str) {
    let workspace = Workspace::new("kernel = \"nap\"");
    workspace.confirming(2, 3);
    let sweep = workspace.start_with_fate(fate, &[]).ended();
    let told = all(&sweep);
    assert_eq!(workspace.processes(), 0, "{told}");
    assert_eq!(workspace.reported()["confirmation"], "not-measured-again", "{told}");
    assert!(!told.contains("[slower]") && !told.contains("[cleared]"), "{told}");
    let note = format!(
        "t/nap measured again: 2 of 2 process runs of {whose} don't count, such as one that ended as crash/SIGABRT"
    );
    assert!(told.contains(&note), "{told}");
    assert_eq!(told.matches("don't count").count(), 1, "{told}");
    // Nor is it measured on: what kept it from being measured is no spread, which more process runs would narrow.
    for side in ["base", "now"] {
        let run = workspace.fresh(side).unwrap();
        let expected = if side == dead { "crash/SIGABRT" } else { "pass" };
        assert_eq!(outcomes(&run), [expected; 2], "{side}: {told}");
        let alive = side != dead;
        assert!(
            run.records.iter().all(
                |record| record.latency.as_ref().map_or(0, |latency| latency.samples().len()) == usize::from(alive) * 2
            ),
            "{side}: {told}"
        );
    }
}

#[test]
fn a_program_that_dies_in_its_turn_confirms_nothing_and_clears_nothing() {
    a_program_dies("80 dies", "now", "this tree's program");
}

#[test]
fn a_baselines_program_that_dies_in_its_turn_confirms_nothing_and_clears_nothing() {
    a_program_dies("40 dies", "base", "the baseline's own program");
}

#[test]
fn a_program_that_hangs_in_its_turn_is_ended_and_costs_the_other_none_of_its_budget() {
    let workspace = Workspace::new("kernel = \"nap\"");
    workspace.confirming(2, 1);
    // In its second turn, of which the other one still has to have its own.
    let budget = ["--budget", "run=1500ms", "--budget", "silence=1500ms"];
    let sweep = workspace.start_with_fate("80 hangs once", &budget).ended();
    let told = all(&sweep);
    assert_eq!(workspace.processes(), 0, "{told}");
    let (base, now) = (workspace.fresh("base").unwrap(), workspace.fresh("now").unwrap());
    assert!(
        outcomes(&now)[0].starts_with("timeout/"),
        "{:?}\n{told}",
        outcomes(&now)
    );
    assert_eq!(outcomes(&now)[1], "pass", "{told}");
    // It waited for as long as the other one hung, and had hardly a moment of its budget left then.
    assert_eq!(outcomes(&base), ["pass"; 2], "{told}");
    assert!(base.records[0].phases.total > Duration::from_millis(1500));
    assert_eq!(base.records[0].latency.as_ref().unwrap().samples().len(), 2);
    assert!(
        told.contains("1 of 2 process runs of this tree's program don't count"),
        "{told}"
    );
    assert_ne!(workspace.reported()["confirmation"], "cleared", "{told}");
}

#[test]
fn an_interrupt_in_a_turn_ends_both_programs_and_confirms_nothing() {
    let workspace = Workspace::new("kernel = \"nap\"");
    workspace.confirming(1, 1);
    let harness = workspace.start_with_fate("40 hangs", &[]);
    wait_for(|| workspace.root().join("hanging").exists());
    assert_eq!(workspace.processes(), 2);
    kill_process(harness.pid(), Signal::INT).unwrap();
    let sweep = harness.ended();
    let told = all(&sweep);
    assert_eq!(sweep.status.code(), Some(130), "{told}");
    assert_eq!(workspace.processes(), 0, "{told}");
    assert!(told.contains("stopping: interrupt again to kill"), "{told}");
    assert!(
        told.contains("interrupted: no suspect is confirmed or cleared"),
        "{told}"
    );
    assert!(!told.contains("[slower]") && !told.contains("[cleared]"), "{told}");
    // The sweep itself was over, and is all there.
    let latest = xtask::run_dir::latest(&workspace.root().join("results"))
        .unwrap()
        .unwrap();
    let run = format::read::run(&latest).unwrap();
    assert_eq!((run.provenance.status, run.missing().len()), (RunStatus::Complete, 0));
    assert_eq!(workspace.reported()["confirmation"], serde_json::Value::Null);
    // Resumed, only the suspect is left to be measured.
    std::fs::remove_file(workspace.root().join("fate")).unwrap();
    let resumed = workspace.xtask(&["sweep", "--resume", "latest"]);
    let told = all(&resumed);
    assert!(told.contains("measuring 1 suspect of a slowdown again"), "{told}");
    assert_eq!(workspace.reported()["confirmation"], "unclear", "{told}");
}

#[test]
fn a_second_interrupt_in_a_turn_kills_at_once() {
    let workspace = Workspace::new("kernel = \"nap\"");
    workspace.confirming(1, 1);
    // The grace of a program that ignores TERM is five seconds: nothing but KILL ends it earlier.
    let mut harness = workspace.start_with_fate("40 ignores TERM", &[]);
    wait_for(|| workspace.root().join("hanging").exists());
    let stderr = harness.0.as_mut().unwrap().stderr.take().unwrap();
    let mut told = BufReader::new(stderr).lines().map(Result::unwrap);
    kill_process(harness.pid(), Signal::INT).unwrap();
    // Two signals that are pending at once are one, so the second waits for the answer to the first.
    assert!(told.any(|line| line.contains("stopping: interrupt again to kill")));
    let second = Instant::now();
    kill_process(harness.pid(), Signal::INT).unwrap();
    assert!(told.any(|line| line.contains("killing")));
    // A reader such as `tee` hears Ctrl-C too, and is gone before the last word.
    drop(told);
    let sweep = harness.ended();
    let took = second.elapsed();
    assert_eq!(sweep.status.code(), Some(130));
    assert!(took < Duration::from_secs(3), "{took:?} after the second interrupt");
    assert_eq!(workspace.processes(), 0);
}
