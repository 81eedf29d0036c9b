//! `cargo xtask sweep` as a user runs it: a process, its streams, its exit code and what it leaves.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use xtask::format;
use xtask::record::{Run, RunStatus};

/// No step of a test waits longer.
const DEADLINE: Duration = Duration::from_secs(30);

/// A workspace with one suite of commands.
struct Workspace {
    directory: TempDir,
}

impl Workspace {
    fn new(suite: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cases = directory.path().join("cases");
        fs_err::create_dir(&cases).unwrap();
        fs_err::write(cases.join("platforms.toml"), "[platform.here]\nrunner = \"command\"\n").unwrap();
        fs_err::write(
            cases.join("t.toml"),
            format!("[suite]\nname = \"t\"\n\n[defaults]\nbench.rounds = 0\n\n{suite}"),
        )
        .unwrap();
        Self { directory }
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the user who starts the harness")]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        // The harness takes its workspace from the manifest that Cargo names.
        command
            .env("CARGO_MANIFEST_DIR", self.root().join("xtask"))
            .env_remove("GITHUB_STEP_SUMMARY");
        command.args(["sweep", "--platform", "here"]).args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    #[expect(clippy::disallowed_methods, reason = "this is the user who starts the harness")]
    fn xtask(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .env("CARGO_MANIFEST_DIR", self.root().join("xtask"))
            .args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    fn sweep(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts a sweep and returns once `records` cases have their record.
    #[track_caller]
    fn start(&self, arguments: &[&str], records: usize) -> Child {
        let child = self.command(arguments).spawn().unwrap();
        wait_for(|| self.runs().iter().any(|run| run.records.len() >= records));
        child
    }

    fn runs(&self) -> Vec<Run> {
        let Ok(entries) = std::fs::read_dir(self.root().join("results/runs")) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| format::read::run(&entry.path()).ok())
            .collect()
    }

    #[track_caller]
    fn only_run(&self) -> Run {
        let mut runs = self.runs();
        assert_eq!(runs.len(), 1);
        runs.remove(0)
    }

    /// Processes that a case of this workspace has started.
    fn processes(&self) -> usize {
        let entries = fs_err::read_dir("/proc").unwrap().flatten();
        let cwd = |entry: fs_err::DirEntry| std::fs::read_link(entry.path().join("cwd")).ok();
        entries
            .filter_map(cwd)
            .filter(|cwd| cwd == &self.root().join("playground"))
            .count()
    }
}

#[track_caller]
fn wait_for(condition: impl Fn() -> bool) {
    let limit = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < limit, "the awaited state never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A case that runs a shell script in the workspace's playground.
fn case(name: &str, script: &str, more: &str) -> String {
    format!(
        "[[case]]\nname = \"{name}\"\ncommand = {{ argv = [\"sh\", \"-c\", {script:?}], cwd = \"playground\" }}\n{more}\n\n"
    )
}

fn with_playground(suite: &str) -> Workspace {
    let workspace = Workspace::new(suite);
    fs_err::create_dir(workspace.root().join("playground")).unwrap();
    workspace
}

const PASS: &str = "echo '[RUN] PASS (0.01s)'";

#[test]
fn outcomes_decide_where_there_is_no_baseline() {
    let workspace = with_playground(&case(
        "good",
        "echo \"$RINGSWEEP_CASE PASSED\"; exit 0",
        "skip.reason = \"not needed\"",
    ));
    let output = workspace.sweep(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("[1/1] skipped"),
        "{}",
        text(&output.stderr)
    );

    let workspace = with_playground(&case("bad", "echo trouble; exit 3", ""));
    let output = workspace.sweep(&[]);
    assert_eq!(output.status.code(), Some(1));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(out.contains("crash/exit-3 t/bad: new-failing"), "{out}");
    assert!(
        out.contains("1 | trouble") && out.contains("rerun: cargo xtask sweep t/bad --platform here"),
        "{out}"
    );
    assert!(err.contains("[1/1] crash/exit-3 t/bad"), "{err}");
}

#[test]
fn a_sweep_whose_cases_all_have_other_names_than_the_baseline_s_is_no_pass() {
    let suite = |name: &str| case(name, "exit 3", "expect = { outcome = \"crash\", cause = \"exit-3\" }");
    let workspace = with_playground(&suite("before"));
    let first = workspace.sweep(&[]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first.stderr));
    let accepted = workspace.xtask(&["baseline", "accept", "latest", "--because", "the test's own"]);
    assert_eq!(accepted.status.code(), Some(0), "{}", text(&accepted.stderr));
    let renamed = suite("after");
    fs_err::write(
        workspace.root().join("cases/t.toml"),
        format!("[suite]\nname = \"t\"\n\n[defaults]\nbench.rounds = 0\n\n{renamed}"),
    )
    .unwrap();
    let second = workspace.sweep(&[]);
    let err = text(&second.stderr);
    assert_eq!(second.status.code(), Some(5), "{err}");
    assert!(!err.contains("exit code is about outcomes only"), "{err}");
    assert!(
        text(&second.stdout).contains("t/before: missing"),
        "{}",
        text(&second.stdout)
    );
}

#[test]
fn an_expected_failure_passes_and_another_one_does_not() {
    let expect = "expect = { outcome = \"crash\", cause = \"exit-3\", issue = \"#7\" }";
    assert_eq!(
        with_playground(&case("known", "exit 3", expect))
            .sweep(&[])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        with_playground(&case("known", "exit 4", expect))
            .sweep(&[])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn mistakes_and_empty_selections_have_codes_of_their_own() {
    let workspace = with_playground(&case("one", "exit 0", ""));
    for (arguments, code) in [
        (&["--shard", "3/2"][..], 2),
        (&["--budget", "quiet=3s"], 2),
        (&["--policy", "whatever"], 2),
        (&["--resume", "yesterday"], 2),
        (&["nothing-like-this"], 4),
        (&["--shard", "2/2"], 4),
    ] {
        let output = workspace.sweep(arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
    }
    assert!(workspace.runs().is_empty(), "nothing was run, so there is no run");
}

#[test]
fn a_killed_harness_leaves_an_incomplete_run_and_no_process_and_can_be_resumed() {
    let suite = [
        case("first", PASS, ""),
        case("second", "test -e go || sleep 60", ""),
        case("third", "exit 0", ""),
    ];
    let workspace = with_playground(&suite.concat());
    let mut child = workspace.start(&["--jobs", "1"], 1);
    wait_for(|| workspace.processes() > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(|| workspace.processes() == 0);

    let run = workspace.only_run();
    assert_eq!(
        (run.provenance.status, run.records.len(), run.missing().len()),
        (RunStatus::Incomplete, 1, 2)
    );
    let first = run.records[0].clone();

    fs_err::write(workspace.root().join("playground/go"), "").unwrap();
    let output = workspace.sweep(&["--resume", "latest"]);
    assert!(text(&output.stderr).contains("[3/3]"), "{}", text(&output.stderr));
    let run = workspace.only_run();
    assert_eq!((run.provenance.status, run.records.len()), (RunStatus::Complete, 3));
    assert_eq!(run.records[0], first, "what was recorded is not run again");
    assert!(
        workspace
            .root()
            .join("results/runs")
            .join(&run.provenance.run_id)
            .join("results.csv")
            .is_file()
    );
}

#[test]
fn suites_that_changed_cannot_be_resumed() {
    let workspace = with_playground(&[case("first", PASS, ""), case("second", "sleep 60", "")].concat());
    let mut child = workspace.start(&["--jobs", "1"], 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let file = workspace.root().join("cases/t.toml");
    let changed = fs_err::read_to_string(&file).unwrap().replace("sleep 60", "sleep 1");
    fs_err::write(file, changed).unwrap();
    let output = workspace.sweep(&["--resume", "latest"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("the suites have changed since"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_run_from_the_future_stays_the_latest_and_is_named() {
    let workspace = with_playground(&case("first", PASS, ""));
    workspace.sweep(&[]);
    let run = workspace.only_run().provenance;
    let file = workspace.root().join("results/runs").join(&run.run_id).join("run.json");
    let from_the_future = fs_err::read_to_string(&file)
        .unwrap()
        .replace(&run.started, "2999-01-01T00:00:00Z");
    fs_err::write(file, from_the_future).unwrap();
    let output = workspace.sweep(&[]);
    let told = text(&output.stderr);
    assert!(
        told.contains("started later than now, so `latest` means that run") && told.contains(&run.run_id),
        "{told}"
    );
}

#[test]
fn an_interrupt_records_what_ran_and_says_130() {
    let suite = [
        case("first", PASS, ""),
        case("second", "sleep 60", ""),
        case("third", "exit 0", ""),
    ];
    let workspace = with_playground(&suite.concat());
    let child = workspace.start(&["--jobs", "1"], 1);
    wait_for(|| workspace.processes() > 0);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("stopping: interrupt again to kill (1 running)"),
        "{}",
        text(&output.stderr)
    );
    let run = workspace.only_run();
    let outcomes: Vec<String> = run.records.iter().map(|record| record.outcome.to_string()).collect();
    assert_eq!(outcomes[1..], ["interrupted"]);
    assert_eq!((run.provenance.status, run.missing().len()), (RunStatus::Incomplete, 1));
    assert!(run.provenance.ended.is_some());
    assert_eq!(workspace.processes(), 0);
}

#[test]
fn a_second_interrupt_kills_at_once() {
    // The case ignores TERM, and the grace is five seconds: nothing but KILL ends it earlier.
    let stubborn = "trap '' TERM; echo up > up; while :; do sleep 0.1; done";
    let workspace = with_playground(&case("stubborn", stubborn, ""));
    let mut child = workspace.command(&["--jobs", "1"]).spawn().unwrap();
    wait_for(|| workspace.root().join("playground/up").exists());
    let pid = Pid::from_child(&child);
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    kill_process(pid, Signal::INT).unwrap();
    // Two signals that are pending at once are one, so the second waits for the answer to the first.
    assert!(told.any(|line| line.contains("stopping: interrupt again to kill")));
    let second = Instant::now();
    kill_process(pid, Signal::INT).unwrap();
    assert!(told.any(|line| line.contains("killing")));
    told.for_each(drop);
    let status = child.wait().unwrap();
    let took = second.elapsed();
    assert_eq!(status.code(), Some(130));
    assert!(took < Duration::from_secs(3), "{took:?} after the second interrupt");
    assert_eq!(workspace.only_run().records[0].outcome.to_string(), "interrupted");
    assert_eq!(workspace.processes(), 0);
}

#[test]
fn a_reader_that_leaves_changes_neither_run_nor_exit_code() {
    let workspace = with_playground(&[case("a", "exit 3", ""), case("b", "exit 3", "")].concat());
    let mut child = workspace.command(&[]).spawn().unwrap();
    drop(child.stdout.take());
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(workspace.only_run().provenance.status, RunStatus::Complete);
}

#[test]
fn the_step_summary_is_appended_where_github_wants_it() {
    let workspace = with_playground(&case("bad", "exit 3", ""));
    let file = workspace.root().join("summary.md");
    fs_err::write(&file, "before\n").unwrap();
    workspace
        .command(&[])
        .env("GITHUB_STEP_SUMMARY", &file)
        .output()
        .unwrap();
    let summary = fs_err::read_to_string(file).unwrap();
    assert!(
        summary.starts_with("before\n") && summary.contains("t/bad"),
        "{summary}"
    );
}

#[test]
fn shards_cover_the_plan_once() {
    let suite: String = ["a", "b", "c"].map(|name| case(name, "exit 0", "")).concat();
    let workspace = with_playground(&suite);
    for shard in ["1/2", "2/2"] {
        workspace.sweep(&["--shard", shard]);
    }
    let mut cases: Vec<String> = workspace
        .runs()
        .iter()
        .flat_map(|run| run.records.iter().map(|record| record.case.to_string()))
        .collect();
    cases.sort();
    assert_eq!(cases, ["t/a", "t/b", "t/c"]);
    assert!(workspace.runs().iter().all(|run| run.provenance.shard.is_some()));
}

#[test]
fn help_is_complete() {
    let workspace = with_playground("");
    let output = workspace.command(&["--help"]).output().unwrap();
    insta::assert_snapshot!(text(&output.stdout));
}
