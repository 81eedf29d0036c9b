//! Every hazard of a child process, each with a program that really does it and a deadline of its own.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use xtask::outcome::Budget;
use xtask::process::{
    Attribution, ChildSpec, Control, Ended, Environment, ExitState, OMISSION_MARK, OutputLimits, Phase, PhasePlan,
    Placement, Request, Sign, SpawnError, Stop, Supervisor, TimeLimits,
};

const MISBEHAVE: &str = env!("CARGO_BIN_EXE_misbehave");
const XTASK: &str = env!("CARGO_BIN_EXE_xtask");

/// No test takes longer, whatever the supervisor does.
const DEADLINE: Duration = Duration::from_secs(30);

struct Bench {
    directory: TempDir,
    supervisor: Supervisor,
}

impl Bench {
    fn new() -> Self {
        let supervisor = Supervisor::start(XTASK.as_ref()).unwrap();
        Self {
            directory: tempfile::tempdir().unwrap(),
            supervisor,
        }
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn spec(&self, arguments: &[&str]) -> ChildSpec {
        let mut spec = ChildSpec::new(MISBEHAVE, self.directory.path(), self.log()).args(arguments.iter().copied());
        spec.limits.total = Some(Duration::from_secs(20));
        spec.grace = Duration::from_millis(300);
        spec
    }

    #[track_caller]
    fn run(&self, spec: &ChildSpec) -> Ended {
        self.try_run(spec).unwrap()
    }

    #[track_caller]
    fn try_run(&self, spec: &ChildSpec) -> Result<Ended, SpawnError> {
        let start = Instant::now();
        let ended = self.supervisor.run(spec, &Control::new().unwrap());
        assert!(start.elapsed() < DEADLINE, "took {:?}", start.elapsed());
        ended
    }

    fn output(&self) -> Vec<u8> {
        fs_err::read(self.log()).unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output()).into_owned()
    }
}

/// Runs `misbehave` with `arguments` and no limit but the test's.
#[track_caller]
fn misbehave(arguments: &[&str]) -> (Bench, Ended) {
    let bench = Bench::new();
    let ended = bench.run(&bench.spec(arguments));
    (bench, ended)
}

/// Processes whose working directory is `directory`: all that a test's children ever are.
fn processes_in(directory: &Path) -> Vec<String> {
    let entries = fs_err::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == directory))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[track_caller]
fn assert_nothing_left(bench: &Bench) {
    let left = processes_in(bench.directory.path());
    assert!(left.is_empty(), "processes left: {left:?}");
}

#[test]
fn exit_codes_are_told_apart() {
    for code in [0, 1, 3, 137] {
        let (_, ended) = misbehave(&["exit", &code.to_string()]);
        assert_eq!(ended.exit, ExitState::Code(code));
        assert!(ended.stop.is_none() && !ended.leaked() && !ended.needed_kill);
    }
}

#[test]
fn a_signal_is_no_exit_code() {
    for (number, name) in [(11, "SIGSEGV"), (9, "SIGKILL"), (15, "SIGTERM"), (8, "SIGFPE")] {
        let (_, ended) = misbehave(&["signal", &number.to_string()]);
        assert_eq!(ended.exit.to_string(), name);
        assert!(!ended.out_of_memory_kill);
    }
    let (bench, ended) = misbehave(&["abort"]);
    assert_eq!(
        (ended.exit.to_string(), bench.text()),
        ("SIGABRT".into(), "about to abort\n".into())
    );
}

#[test]
fn a_missing_program_is_a_start_error() {
    let bench = Bench::new();
    for (program, message) in [
        (
            "no-such-program-of-ours",
            "program `no-such-program-of-ours` not found in the child's PATH",
        ),
        ("./absent", "program `./absent` not found"),
    ] {
        let spec = ChildSpec::new(program, bench.directory.path(), bench.log());
        assert_eq!(bench.try_run(&spec).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_said_by_the_launcher() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let program = bench.directory.path().join("orphaned-script");
    fs_err::write(&program, "#!/no/such/interpreter\n").unwrap();
    fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut spec = ChildSpec::new(&program, bench.directory.path(), bench.log());
    assert!(matches!(bench.try_run(&spec), Err(SpawnError::Start { .. })));
    spec.placement = Placement::Session;
    assert_eq!(
        bench.run(&spec).exit,
        ExitState::Code(i32::from(xtask::process::launcher::FAILED_CODE))
    );
    assert!(
        bench.text().starts_with(xtask::process::launcher::FAILED),
        "{}",
        bench.text()
    );
}

#[test]
fn a_hanging_child_is_ended_by_term() {
    let bench = Bench::new();
    let mut spec = bench.spec(&["hang"]);
    spec.limits.run = Some(Duration::from_millis(200));
    let ended = bench.run(&spec);
    assert_eq!(
        ended.stop,
        Some(Stop::Budget {
            budget: Budget::Run,
            limit: Duration::from_millis(200)
        })
    );
    assert_eq!(ended.exit.to_string(), "SIGTERM");
    assert!(!ended.needed_kill);
    assert_eq!(ended.tree.len(), 1);
    assert!(ended.tree[0].command.ends_with("misbehave hang"), "{:?}", ended.tree);
    assert_nothing_left(&bench);
}

#[test]
fn a_child_that_ignores_term_is_killed_after_the_grace() {
    let bench = Bench::new();
    let mut spec = bench.spec(&["ignore-term"]);
    spec.limits.total = Some(Duration::from_millis(300));
    let ended = bench.run(&spec);
    assert_eq!((ended.exit.to_string(), ended.needed_kill), ("SIGKILL".into(), true));
    assert!(ended.elapsed >= Duration::from_millis(600) && ended.elapsed < Duration::from_secs(5));
    assert!(!ended.out_of_memory_kill, "this kill is ours");
    assert_nothing_left(&bench);
}

#[test]
fn silence_ends_a_child_and_chatter_does_not() {
    let bench = Bench::new();
    let mut spec = bench.spec(&["silent-after", "5"]);
    spec.limits.silence = Some(Duration::from_millis(400));
    let ended = bench.run(&spec);
    assert!(
        matches!(
            ended.stop,
            Some(Stop::Budget {
                budget: Budget::Silence,
                ..
            })
        ),
        "{:?}",
        ended.stop
    );
    assert!(
        ended.elapsed >= Duration::from_millis(800),
        "it spoke for half a second: {:?}",
        ended.elapsed
    );
    assert!(bench.text().ends_with("line 4\n"));

    let mut spec = bench.spec(&["chatter"]);
    spec.limits.silence = Some(Duration::from_millis(400));
    spec.limits.run = Some(Duration::from_millis(1200));
    let ended = bench.run(&spec);
    assert!(
        matches!(
            ended.stop,
            Some(Stop::Budget {
                budget: Budget::Run,
                ..
            })
        ),
        "{:?}",
        ended.stop
    );
}

#[test]
fn each_phase_has_its_own_budget() {
    let bench = Bench::new();
    let phases = PhasePlan {
        first: Phase::Queue,
        signs: vec![
            (Phase::Setup, Sign::OutputLine(b"[RUN] compile".to_vec())),
            (Phase::Run, Sign::OutputLine(b"[RUN] runtime".to_vec())),
        ],
    };
    let ms = |n| Some(Duration::from_millis(n));
    let roomy = TimeLimits {
        queue: ms(5000),
        setup: ms(5000),
        run: ms(5000),
        silence: None,
        total: ms(10_000),
    };
    for (limits, expected) in [
        (TimeLimits { queue: ms(50), ..roomy }, Budget::Queue),
        (TimeLimits { setup: ms(80), ..roomy }, Budget::Setup),
        (TimeLimits { run: ms(80), ..roomy }, Budget::Run),
        (
            TimeLimits {
                total: ms(300),
                ..roomy
            },
            Budget::Total,
        ),
        // Waiting for a device is no silence of the program.
        (
            TimeLimits {
                silence: ms(120),
                ..roomy
            },
            Budget::Silence,
        ),
    ] {
        let mut spec = bench.spec(&["phases"]);
        spec.limits = limits;
        spec.phases = phases.clone();
        let ended = bench.run(&spec);
        assert!(
            matches!(&ended.stop, Some(Stop::Budget { budget, .. }) if *budget == expected),
            "{expected}: {:?}",
            ended.stop
        );
        let reached = match expected {
            Budget::Queue => Phase::Queue,
            Budget::Setup | Budget::Silence => Phase::Setup,
            Budget::Run => Phase::Run,
            // It counts from the start, and how far a program gets until then is the machine's matter.
            Budget::Total => continue,
        };
        assert_eq!(ended.last_phase(), Some(reached), "{expected}");
    }
}

#[test]
fn a_report_tells_that_setup_is_over() {
    let bench = Bench::new();
    let report = bench.directory.path().join("report.jsonl");
    fs_err::write(&report, "").unwrap();
    let mut spec = bench.spec(&["hang"]);
    spec.report = Some(report.clone());
    spec.phases = PhasePlan::setup_until_report("runtime");
    spec.limits.setup = Some(Duration::from_secs(10));
    spec.limits.run = Some(Duration::from_millis(200));
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        fs_err::write(
            report,
            "{\"event\":\"stage\",\"stage\":\"runtime\",\"phase\":\"begin\"}\n",
        )
        .unwrap();
    });
    let ended = bench.run(&spec);
    writer.join().unwrap();
    assert!(
        matches!(
            ended.stop,
            Some(Stop::Budget {
                budget: Budget::Run,
                ..
            })
        ),
        "{:?}",
        ended.stop
    );
    assert_eq!(ended.phases.len(), 2);
    assert!(ended.phases[0].1 >= Duration::from_millis(290), "{:?}", ended.phases);
}

#[test]
fn a_grandchild_that_holds_the_output_is_found_and_killed() {
    let (bench, ended) = misbehave(&["grandchild"]);
    assert_eq!(ended.exit, ExitState::Code(0));
    assert!(ended.leaked() && ended.output_held);
    assert_eq!(ended.survivors.len(), 1, "{:?}", ended.survivors);
    assert!(ended.survivors[0].held_output && !ended.survivors[0].unkillable);
    assert_eq!(ended.survivors[0].how, Attribution::Group);
    assert!(ended.survivors[0].process.command.ends_with("misbehave hang"));
    assert!(ended.elapsed < Duration::from_secs(2));
    assert_nothing_left(&bench);
}

#[test]
fn a_grandchild_without_the_output_is_left_behind_all_the_same() {
    let (bench, ended) = misbehave(&["grandchild", "null"]);
    assert!(ended.leaked() && !ended.output_held);
    assert_eq!(ended.survivors.len(), 1);
    assert_nothing_left(&bench);
}

#[test]
fn a_grandchild_that_ignores_term_does_not_delay_the_end() {
    let start = Instant::now();
    let (bench, ended) = misbehave(&["grandchild-ignore-term"]);
    assert!(ended.leaked());
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_nothing_left(&bench);
}

#[test]
fn daemons_in_sessions_of_their_own_are_found() {
    // `$(timeout 1s …)` of a shell returns only when such a daemon lets go of the output.
    let start = Instant::now();
    let (bench, ended) = misbehave(&["daemon"]);
    assert!(start.elapsed() < Duration::from_secs(3));
    assert!(ended.leaked());
    assert!(
        ended.survivors.iter().any(|s| s.how == Attribution::Tag),
        "{:?}",
        ended.survivors
    );
    assert_nothing_left(&bench);

    let (bench, ended) = misbehave(&["hidden-daemon"]);
    assert!(ended.leaked());
    assert!(
        ended.survivors.iter().any(|s| s.how == Attribution::Elimination),
        "{:?}",
        ended.survivors
    );
    assert_nothing_left(&bench);
}

#[test]
fn a_daemon_of_a_child_that_is_ended_goes_with_it() {
    let bench = Bench::new();
    let mut spec = bench.spec(&["daemon-and-hang"]);
    spec.limits.run = Some(Duration::from_millis(400));
    let ended = bench.run(&spec);
    assert!(ended.stop.is_some() && !ended.survivors.is_empty());
    assert_nothing_left(&bench);
}

#[test]
fn orphans_of_one_case_are_not_blamed_on_another() {
    let bench = Bench::new();
    let other = tempfile::tempdir().unwrap();
    let (longer, shorter) = thread::scope(|scope| {
        let daemon = scope.spawn(|| {
            let mut spec = bench.spec(&["daemon-and-hang"]);
            spec.limits.run = Some(Duration::from_millis(1500));
            bench.run(&spec)
        });
        let short = scope.spawn(|| {
            thread::sleep(Duration::from_millis(500));
            let spec = ChildSpec::new(MISBEHAVE, other.path(), other.path().join("log")).args(["exit", "0"]);
            bench.run(&spec)
        });
        (daemon.join().unwrap(), short.join().unwrap())
    });
    assert!(
        shorter.survivors.is_empty() && !shorter.leaked(),
        "{:?}",
        shorter.survivors
    );
    assert!(!longer.survivors.is_empty());
    assert!(
        longer.elapsed >= Duration::from_millis(1500),
        "the daemon's case ran to its budget"
    );
    assert_nothing_left(&bench);
}

#[test]
fn a_stopped_child_is_ended_and_the_signal_named() {
    for placement in [Placement::Group, Placement::Session] {
        let bench = Bench::new();
        let mut spec = bench.spec(&["stop-self"]);
        spec.placement = placement;
        let ended = bench.run(&spec);
        let Some(Stop::Suspended(signal)) = &ended.stop else {
            panic!("{placement:?}: {:?}", ended.stop)
        };
        assert_eq!(signal.as_str(), "SIGSTOP");
        assert!(ended.elapsed < Duration::from_secs(6));
        assert_nothing_left(&bench);
    }
}

#[test]
fn there_is_no_input_and_no_terminal() {
    let (bench, ended) = misbehave(&["read-stdin"]);
    assert_eq!(
        (ended.exit, bench.text()),
        (ExitState::Code(0), "read 0 bytes\n".into())
    );

    let bench = Bench::new();
    let mut spec = bench.spec(&["open-terminal"]);
    spec.placement = Placement::Session;
    bench.run(&spec);
    assert!(bench.text().starts_with("no terminal: "), "{}", bench.text());
}

#[test]
fn the_environment_is_what_is_declared() {
    for placement in [Placement::Group, Placement::Session] {
        let bench = Bench::new();
        let mut spec = bench.spec(&["environment"]);
        spec.placement = placement;
        spec.environment = Environment::empty().with("CASE", "a/b");
        bench.run(&spec);
        let text = bench.text();
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["CASE", "RINGSWEEP_TAG"], "{placement:?}");
    }
}

#[test]
fn the_directory_is_what_is_declared() {
    let (bench, _) = misbehave(&["directory"]);
    let own = bench.directory.path().canonicalize().unwrap();
    assert_eq!(bench.text().trim_end(), own.to_str().unwrap());
}

#[test]
fn bytes_arrive_as_they_were_sent() {
    let (bench, ended) = misbehave(&["odd-bytes"]);
    assert_eq!(
        bench.output(),
        b"\xff\xfe\0nul\x1b[31mred\x1b[0m ]]> 10%\r50%\r100%\nlast line without end"
    );
    assert_eq!(ended.output.omitted, None);
}

#[test]
fn a_flood_of_two_gib_is_taken_in_bounded_memory() {
    let bench = Bench::new();
    let peak_before = peak_memory_kib();
    let flood = 2_u64 << 30;
    let mut spec = bench.spec(&["flood", &flood.to_string()]);
    spec.output = OutputLimits {
        head: 1 << 20,
        tail: 1 << 20,
    };
    let ended = bench.run(&spec);
    assert_eq!(ended.exit, ExitState::Code(0));
    let total = flood + "first line\nlast line\n".len() as u64;
    assert_eq!(ended.output.total_bytes, total);
    assert_eq!(ended.output.omitted.unwrap().bytes, total - (2 << 20));
    let log = bench.output();
    assert!(log.len() < (2 << 20) + 200);
    assert!(log.starts_with(b"first line\n") && log.ends_with(b"last line\n"));
    assert!(bench.text().contains(OMISSION_MARK));
    let grown = peak_memory_kib() - peak_before;
    assert!(grown < 64 << 10, "memory grew by {grown} KiB");
}

#[test]
fn one_line_of_fifty_megabytes_is_taken() {
    let bench = Bench::new();
    let mut spec = bench.spec(&["long-line", "50"]);
    spec.output = OutputLimits {
        head: 1 << 20,
        tail: 1 << 10,
    };
    spec.phases = PhasePlan {
        first: Phase::Setup,
        signs: vec![(Phase::Run, Sign::OutputLine(b"after".to_vec()))],
    };
    let ended = bench.run(&spec);
    assert_eq!(ended.last_phase(), Some(Phase::Run), "the line after it is seen");
    assert!(bench.text().ends_with("after the long line\n"));
}

fn peak_memory_kib() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

#[test]
fn a_storm_of_forks_is_ended() {
    let bench = Bench::new();
    let mut spec = bench.spec(&["fork-storm", "150"]);
    spec.limits.run = Some(Duration::from_millis(1500));
    let ended = bench.run(&spec);
    assert!(ended.stop.is_some());
    assert!(
        ended.survivors.len() > 20,
        "only {} processes were made",
        ended.survivors.len()
    );
    assert!(ended.survivors.iter().all(|survivor| !survivor.unkillable));
    assert_nothing_left(&bench);
}

#[test]
fn a_memory_limit_makes_allocations_fail() {
    for placement in [Placement::Group, Placement::Session] {
        let bench = Bench::new();
        let mut spec = bench.spec(&["allocate", &(1_u64 << 30).to_string()]);
        spec.placement = placement;
        spec.memory_limit_bytes = Some(512 << 20);
        assert_eq!(bench.run(&spec).exit, ExitState::Code(12), "{placement:?}");
        assert_eq!(bench.text(), format!("no memory for {} bytes\n", 1 << 30));
    }
}

#[test]
fn a_request_stops_a_child_and_a_second_one_kills_it() {
    let bench = Bench::new();
    let control = Control::new().unwrap();
    let mut spec = bench.spec(&["ignore-term"]);
    spec.grace = Duration::from_secs(25);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| sender.send(bench.supervisor.run(&spec, &control).unwrap()).unwrap());
        wait_for(|| bench.log().exists() && bench.text().contains("ignored"));
        control.ask(Request::Stop);
        assert!(
            receiver.recv_timeout(Duration::from_millis(500)).is_err(),
            "TERM is ignored, the grace is long"
        );
        control.ask(Request::Kill);
        let ended = receiver
            .recv_timeout(Duration::from_secs(5))
            .expect("the second request kills at once");
        assert_eq!(ended.stop, Some(Stop::Interrupted));
        assert!(ended.needed_kill);
    });
}

#[track_caller]
fn wait_for(condition: impl Fn() -> bool) {
    let limit = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < limit, "the awaited state never came");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_claim_of_success_and_a_status_that_denies_it_are_both_kept() {
    let (bench, ended) = misbehave(&["pass-then-exit", "3"]);
    assert_eq!(ended.exit, ExitState::Code(3));
    assert_eq!(bench.text(), "[RUN] PASS (0.01s)\n");
}

#[test]
fn no_process_outlives_a_harness_that_is_killed() {
    for placement in ["group", "session"] {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().canonicalize().unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "the program that is started plays the harness and is killed"
        )]
        let mut harness = std::process::Command::new(MISBEHAVE)
            .args(["supervise", XTASK, placement])
            .current_dir(&own)
            .spawn()
            .unwrap();
        // The harness, its child and the daemon are all at work before the harness is killed.
        wait_for(|| {
            processes_in(&own).len() >= 3
                && fs_err::read_to_string(own.join("log")).is_ok_and(|log| log.contains("hanging"))
        });
        harness.kill().unwrap();
        harness.wait().unwrap();
        wait_for(|| processes_in(&own).is_empty());
    }
}
