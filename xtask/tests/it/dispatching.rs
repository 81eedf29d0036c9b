//! The dispatcher, with real processes: what may start when, what is recorded, and how it is stopped.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never, unbounded};
use tempfile::TempDir;
use xtask::catalogue::Catalogue;
use xtask::dispatch::{self, Ending, Notice, Settings, Work};
use xtask::kernels::Kernels;
use xtask::outcome::Outcome;
use xtask::plan::{Plan, PlanRequest};
use xtask::platform::PlatformName;
use xtask::process::{ChildSpec, Ended, ExitState, Supervisor};
use xtask::provenance::{self, Typed};
use xtask::record::{CaseRecord, Evidence, Expectation, Run, RunStatus};
use xtask::ring::RingLayer;
use xtask::run_dir::RunDir;
use xtask::runner::embedded::{environment, limits};
use xtask::runner::{Assignment, LaunchError, Observation, Runner, Runners};
use xtask::select::Selection;
use xtask::slots::Sharing;
use xtask::suite::budget::BudgetLayer;
use xtask::suite::file::Depth;
use xtask::suite::runner::{RunnerKind, RunnerSpec};

/// Starts the argv of a case in the directory of the test; exit 0 is a pass.
struct Argv;

impl Runner for Argv {
    fn launch(&self, assignment: &Assignment<'_>) -> Result<ChildSpec, LaunchError> {
        let RunnerSpec::Command(command) = &assignment.case.runner else {
            panic!("only commands are tested here")
        };
        let argv: Vec<String> = command
            .argv
            .iter()
            .map(|template| {
                template
                    .render(|_| Ok::<_, ()>(assignment.case.id.name().to_owned()))
                    .unwrap()
            })
            .collect();
        let program = if argv[0] == "misbehave" {
            env!("CARGO_BIN_EXE_misbehave")
        } else {
            &argv[0]
        };
        let mut child = ChildSpec::new(program, assignment.root, &assignment.paths.log).args(&argv[1..]);
        child.environment = environment(assignment);
        child.limits = limits(assignment.case);
        child.grace = Duration::from_millis(300);
        Ok(child)
    }

    fn observe(&self, _: &Assignment<'_>, ended: &Ended, _: &[u8]) -> Observation {
        let finding = (ended.exit == ExitState::Code(0)).then(|| (Outcome::Pass, Evidence::default()));
        Observation {
            finding,
            ..Observation::default()
        }
    }
}

/// Cases of the suite `t` on the platform `bench`, in a directory of their own.
struct Setup {
    directory: TempDir,
    plan: Plan,
    settings: Settings,
}

const PLATFORM: &str = "[platform.bench]\nrunner = \"command\"\n";

impl Setup {
    fn new(platform: &str, suite: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cases = directory.path().join("cases");
        fs_err::create_dir(&cases).unwrap();
        fs_err::write(cases.join("platforms.toml"), platform).unwrap();
        fs_err::write(cases.join("t.toml"), format!("[suite]\nname = \"t\"\n\n{suite}")).unwrap();
        let kernels = Kernels::Unknown("no case uses them".into());
        let catalogue = Catalogue::load(&cases, || kernels.clone()).unwrap();
        let request = PlanRequest {
            selection: Selection::new(&[], &[], &[], &[]).unwrap(),
            platform: PlatformName::new("bench").unwrap(),
            ring: RingLayer::default(),
            rounds: None,
            warmup: None,
            seed: None,
            budgets: BudgetLayer::default(),
            depth: Depth::Full,
        };
        let plan = Plan::resolve(&catalogue, &kernels, &request).unwrap();
        let settings = Settings {
            jobs: NonZeroUsize::new(4).unwrap(),
            sharing: Sharing::BenchmarksAlone,
            repeat: NonZeroUsize::MIN,
            memory_bytes: None,
            start_until: None,
            today: "2026-12-01".parse().unwrap(),
            tick: None,
        };
        Self {
            directory,
            plan,
            settings,
        }
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    fn create(&self) -> RunDir {
        RunDir::create(
            self.root(),
            provenance::begin(self.root(), &self.plan, Typed::default()),
        )
        .unwrap()
    }

    /// Runs everything with nobody interrupting, and reads the run back.
    fn run(&self) -> (Ending, Run) {
        self.run_watched(never(), self.create(), &[], &mut |_| {})
    }

    fn run_watched(
        &self,
        interrupts: Receiver<()>,
        mut directory: RunDir,
        done: &[CaseRecord],
        watch: &mut dyn FnMut(Notice<'_>),
    ) -> (Ending, Run) {
        let supervisor = Supervisor::start(env!("CARGO_BIN_EXE_xtask").as_ref()).unwrap();
        let runners: Runners = BTreeMap::from([(RunnerKind::Command, Box::new(Argv) as Box<dyn Runner>)]);
        let work = Work {
            plan: &self.plan,
            root: self.root(),
            settings: &self.settings,
            supervisor: &supervisor,
            runners: &runners,
            interrupts,
            done,
        };
        let start = Instant::now();
        let ending = dispatch::run(&work, &mut directory, watch).unwrap();
        assert!(start.elapsed() < Duration::from_secs(30), "took {:?}", start.elapsed());
        let status = if ending == Ending::Finished {
            RunStatus::Complete
        } else {
            RunStatus::Incomplete
        };
        (ending, directory.close(provenance::now(), status).unwrap())
    }
}

/// A case that starts `misbehave` with `arguments`; `more` are further keys.
fn case(name: &str, arguments: &[&str], more: &str) -> String {
    let argv: Vec<String> = arguments.iter().map(|argument| format!("{argument:?}")).collect();
    format!(
        "[[case]]\nname = \"{name}\"\ncommand.argv = [\"misbehave\", {}]\n{}{more}\n\n",
        argv.join(", "),
        if more.contains("bench") {
            ""
        } else {
            "bench.rounds = 0\n"
        }
    )
}

fn told(run: &Run) -> Vec<(String, String)> {
    run.records
        .iter()
        .map(|record| (record.case.local().to_owned(), record.outcome.to_string()))
        .collect()
}

#[track_caller]
fn check(run: &Run, expected: &[(&str, &str)]) {
    let told = told(run);
    let told: Vec<(&str, &str)> = told
        .iter()
        .map(|(case, outcome)| (case.as_str(), outcome.as_str()))
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn every_case_has_its_record_and_its_log() {
    let mut setup = Setup::new(
        PLATFORM,
        &[
            case("a", &["print", "hello"], ""),
            case("b", &["exit", "3"], ""),
            case("c", &["abort"], ""),
            case("d", &["exit", "0"], "skip.reason = \"not today\""),
            case("e", &["grandchild"], ""),
            "[[case]]\nname = \"f\"\nbench.rounds = 0\ncommand.argv = [\"./nowhere\"]\n".to_owned(),
        ]
        .concat(),
    );
    setup.settings.jobs = NonZeroUsize::MIN;
    let (ending, run) = setup.run();
    assert_eq!((ending, run.provenance.status), (Ending::Finished, RunStatus::Complete));
    // What is skipped needs no slot, so it is recorded at once.
    check(
        &run,
        &[
            ("d", "skipped/not today"),
            ("a", "pass"),
            ("b", "crash/exit-3"),
            ("c", "crash/SIGABRT"),
            ("e", "pass"),
            ("f", "setup-error/launch"),
        ],
    );
    let runs = setup.root().join("runs").join(&run.provenance.run_id);
    let log = fs_err::read_to_string(runs.join(run.records[1].log.as_ref().unwrap())).unwrap();
    assert_eq!(log, "hello\n");
    assert_eq!(run.records[3].evidence.lines[0].text, "about to abort");
    let leak = &run.records[4].evidence.fallout[0];
    assert!(
        leak.starts_with("leaked process ") && leak.contains("misbehave hang"),
        "{leak}"
    );
    assert_eq!(run.records[5].evidence.summary, "program `./nowhere` not found");
    assert!(!runs.join("scratch").exists());
}

#[test]
fn a_declared_outcome_is_tried_again_and_every_attempt_is_kept() {
    let suite = [
        case(
            "flaky",
            &["fail-first", "2"],
            "retry = { on = [\"crash\"], attempts = 3 }",
        ),
        case("hopeless", &["exit", "1"], "retry = { on = [\"crash\"], attempts = 2 }"),
        case("wrong", &["exit", "1"], "retry = { on = [\"timeout\"], attempts = 3 }"),
    ];
    let mut setup = Setup::new(PLATFORM, &suite.concat());
    setup.settings.jobs = NonZeroUsize::MIN;
    let (_, run) = setup.run();
    let mut attempts: Vec<(&str, u32, String)> = run
        .records
        .iter()
        .map(|r| (r.case.name(), r.attempt, r.outcome.to_string()))
        .collect();
    attempts.sort();
    let crash = || "crash/exit-1".to_owned();
    assert_eq!(
        attempts,
        [
            ("flaky", 1, crash()),
            ("flaky", 2, crash()),
            ("flaky", 3, "pass".into()),
            ("hopeless", 1, crash()),
            ("hopeless", 2, crash()),
            ("wrong", 1, crash()),
        ]
    );
    let terminal: Vec<String> = run.terminal().iter().map(|record| record.outcome.to_string()).collect();
    assert_eq!(terminal, ["pass", "crash/exit-1", "crash/exit-1"]);
    let logs: std::collections::BTreeSet<_> = run.records.iter().map(|record| &record.log).collect();
    assert_eq!(logs.len(), run.records.len(), "no attempt overwrites another's log");
}

#[test]
fn repeats_of_all_cases_interleave() {
    let mut setup = Setup::new(
        PLATFORM,
        &[case("a", &["exit", "0"], ""), case("b", &["exit", "0"], "")].concat(),
    );
    setup.settings.jobs = NonZeroUsize::MIN;
    setup.settings.repeat = NonZeroUsize::new(3).unwrap();
    let (_, run) = setup.run();
    let order: Vec<(&str, u32)> = run
        .records
        .iter()
        .map(|record| (record.case.name(), record.repeat))
        .collect();
    assert_eq!(order, [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]);
}

#[test]
fn the_cases_with_the_most_memory_come_first() {
    let exits = |name: &str, memory: &str| case(name, &["exit", "0"], memory);
    let cases = [
        exits("small", "memory = \"1MiB\""),
        exits("unknown", ""),
        exits("large", "memory = \"3MiB\""),
        exits("middle", "memory = \"2MiB\""),
        exits("also-large", "memory = \"3MiB\""),
    ];
    let mut setup = Setup::new(PLATFORM, &cases.concat());
    setup.settings.jobs = NonZeroUsize::MIN;
    setup.settings.repeat = NonZeroUsize::new(2).unwrap();
    let (_, run) = setup.run();
    let order: Vec<(&str, u32)> = run
        .records
        .iter()
        .map(|record| (record.case.name(), record.repeat))
        .collect();
    // Who declares none is taken for what its rings hold: 1 GiB.
    let names = ["unknown", "large", "also-large", "middle", "small"];
    let expected: Vec<(&str, u32)> = (0..2).flat_map(|repeat| names.map(|name| (name, repeat))).collect();
    assert_eq!(order, expected);
}

/// Runs `setup` and gives the most cases, the most MiB and the most benchmarks that ran at once.
fn most_at_once(setup: &Setup) -> (usize, u64, usize) {
    let mut running: BTreeMap<String, (u64, bool)> = BTreeMap::new();
    let mut most = (0, 0, 0);
    let (_, run) = setup.run_watched(never(), setup.create(), &[], &mut |notice| match notice {
        Notice::Started { case, .. } => {
            let mib = case.memory.map_or(0, |memory| memory.get() >> 20);
            running.insert(case.id.to_string(), (mib, case.bench.rounds > 0));
            most.0 = most.0.max(running.len());
            most.1 = most.1.max(running.values().map(|(mib, _)| mib).sum());
            let benchmarks = running.values().filter(|(_, benchmark)| *benchmark).count();
            if benchmarks > 0 {
                most.2 = most.2.max(running.len());
            }
        }
        Notice::Finished { record, .. } => drop(running.remove(record.case.as_str())),
        Notice::Quarantined { .. } | Notice::Stopping { .. } | Notice::Tick => {}
    });
    assert!(
        run.records.iter().all(|record| record.outcome == Outcome::Pass),
        "{:?}",
        told(&run)
    );
    most
}

#[test]
fn cases_share_the_machine_within_its_memory() {
    let sizes = [300, 600, 500, 100, 200, 700, 100, 100];
    let suite: String = sizes
        .iter()
        .enumerate()
        .map(|(n, mib)| case(&format!("c{n}"), &["sleep", "60"], &format!("memory = \"{mib}MiB\"")))
        .collect();
    let mut setup = Setup::new(PLATFORM, &suite);
    setup.settings.memory_bytes = Some(1000 << 20);
    let (cases, mib, _) = most_at_once(&setup);
    assert!((2..=4).contains(&cases), "{cases} at once");
    assert!(mib <= 1000, "{mib} MiB at once");
}

#[test]
fn benchmarks_run_alone_unless_asked() {
    let suite: String = (0..6)
        .map(|n| {
            case(
                &format!("c{n}"),
                &["sleep", "40"],
                if n % 2 == 0 { "bench.rounds = 1" } else { "" },
            )
        })
        .collect();
    let mut setup = Setup::new(PLATFORM, &suite);
    assert_eq!(most_at_once(&setup).2, 1);
    setup.settings.sharing = Sharing::Overlap;
    assert!(most_at_once(&setup).2 > 1);
}

const DEVICES: &str = "[platform.bench]\nrunner = \"command\"\ndevices = [0]\n";

fn hang_and_two_more() -> String {
    [
        case("first", &["hang"], "budgets.run = \"200ms\""),
        case("second", &["exit", "0"], ""),
        case("third", &["exit", "0"], ""),
        case("elsewhere", &["exit", "0"], "devices = 0"),
    ]
    .concat()
}

#[test]
fn a_hang_quarantines_its_device_and_later_cases_name_it() {
    let (_, run) = Setup::new(DEVICES, &hang_and_two_more()).run();
    let mut told = told(&run);
    told.sort();
    let expected = [
        ("elsewhere", "pass"),
        ("first", "timeout/run"),
        ("second", "blocked/t/first"),
        ("third", "blocked/t/first"),
    ];
    assert_eq!(
        told,
        expected.map(|(case, outcome)| (case.to_owned(), outcome.to_owned()))
    );
}

#[test]
fn what_can_never_start_says_so_without_a_slot() {
    let cases = [
        case("long", &["sleep", "2000"], "devices = 0"),
        case("first", &["hang"], "budgets.run = \"200ms\""),
        case("second", &["exit", "0"], ""),
        // Has the other slot before the device of `first` is decided on.
        case("longer", &["sleep", "2500"], "devices = 0"),
        case("third", &["exit", "0"], ""),
    ];
    let mut setup = Setup::new(DEVICES, &cases.concat());
    setup.settings.jobs = NonZeroUsize::new(2).unwrap();
    let (_, run) = setup.run();
    check(
        &run,
        &[
            ("first", "timeout/run"),
            ("second", "blocked/t/first"),
            ("third", "blocked/t/first"),
            ("long", "pass"),
            ("longer", "pass"),
        ],
    );
}

#[test]
fn waiting_for_a_slot_or_a_device_is_queue_time() {
    let cases = [case("first", &["sleep", "700"], ""), case("second", &["exit", "0"], "")].concat();
    for platform in [PLATFORM, DEVICES] {
        let mut setup = Setup::new(platform, &cases);
        // One slot for both, or a slot each and one device.
        setup.settings.jobs = NonZeroUsize::new(if platform == PLATFORM { 1 } else { 2 }).unwrap();
        let (_, run) = setup.run();
        check(&run, &[("first", "pass"), ("second", "pass")]);
        let [first, second] = [0, 1].map(|n| run.records[n].phases);
        assert!(first.queue < Duration::from_millis(300), "{first:?}");
        // Both clocks begin within the start of the first case.
        assert!(second.queue >= Duration::from_millis(500), "{second:?}");
        assert!(
            second.queue + Duration::from_millis(200) >= first.total,
            "{first:?} {second:?}"
        );
        assert!(second.total < Duration::from_millis(600), "{second:?}");
    }
}

#[test]
fn a_declared_queue_budget_bounds_the_wait_for_a_device() {
    let suite = |queue: &str| {
        [
            case("holds", &["sleep", "1500"], ""),
            case("waits", &["exit", "0"], queue),
            case(
                "retries",
                &["exit", "0"],
                "budgets.queue = \"200ms\"\nretry = { on = [\"timeout\"], attempts = 2 }",
            ),
            case("elsewhere", &["exit", "0"], "devices = 0"),
        ]
        .concat()
    };
    let (_, run) = Setup::new(DEVICES, &suite("budgets.queue = \"300ms\"")).run();
    let record = |name: &str| {
        run.records
            .iter()
            .filter(|record| record.case.name() == name)
            .collect::<Vec<_>>()
    };
    assert_eq!(record("waits")[0].outcome.to_string(), "timeout/queue");
    assert!(
        record("waits")[0].evidence.summary.contains("`t/holds`"),
        "{:?}",
        record("waits")[0].evidence
    );
    assert!(record("waits")[0].phases.queue >= Duration::from_millis(300));
    assert_eq!(
        record("retries")
            .iter()
            .map(|record| record.attempt)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    // Nothing hung, so the device goes on being used.
    assert_eq!(record("holds")[0].outcome, Outcome::Pass);
    assert_eq!(record("elsewhere")[0].outcome, Outcome::Pass);

    // Where no budget is declared, what holds the device has budgets of its own.
    let (_, run) = Setup::new(DEVICES, &suite("")).run();
    let waits = run.records.iter().find(|record| record.case.name() == "waits").unwrap();
    assert_eq!(waits.outcome, Outcome::Pass);
    assert!(waits.phases.queue >= Duration::from_secs(1), "{:?}", waits.phases);
}

#[test]
fn a_wall_clock_that_steps_back_changes_nothing_but_the_date() {
    let setup = Setup::new(PLATFORM, &case("a", &["sleep", "300"], "budgets.run = \"10s\""));
    let mut begun = provenance::begin(setup.root(), &setup.plan, Typed::default());
    // The clock was wrong by a year when the run began, and was set right before it ended.
    begun.started = "2027-12-01T10:00:00Z".into();
    let mut directory = RunDir::create(setup.root(), begun).unwrap();
    let supervisor = Supervisor::start(env!("CARGO_BIN_EXE_xtask").as_ref()).unwrap();
    let runners: Runners = BTreeMap::from([(RunnerKind::Command, Box::new(Argv) as Box<dyn Runner>)]);
    let work = Work {
        plan: &setup.plan,
        root: setup.root(),
        settings: &setup.settings,
        supervisor: &supervisor,
        runners: &runners,
        interrupts: never(),
        done: &[],
    };
    dispatch::run(&work, &mut directory, &mut |_| {}).unwrap();
    let path = directory.path().to_owned();
    let run = directory
        .close("2026-12-01T10:00:00Z".into(), RunStatus::Complete)
        .unwrap();
    check(&run, &[("a", "pass")]);
    let total = run.records[0].phases.total;
    assert!(
        (Duration::from_millis(300)..Duration::from_secs(10)).contains(&total),
        "{total:?}"
    );
    assert_eq!(xtask::format::read::run(&path).unwrap(), run);
    assert!(path.join("results.csv").is_file());
}

#[test]
fn a_health_check_decides_after_a_reset() {
    let checks = |program: &str| {
        format!(
            "{DEVICES}health_check = {{ argv = [\"{program}\"], budget = \"5s\" }}\nreset = {{ argv = [\"sh\", \"-c\", \"echo device {{device}} >> reset\"], budget = \"5s\" }}\n"
        )
    };
    let setup = Setup::new(&checks("true"), &hang_and_two_more());
    let (_, run) = setup.run();
    assert_eq!(
        run.records
            .iter()
            .filter(|record| record.outcome == Outcome::Pass)
            .count(),
        3
    );
    assert_eq!(
        fs_err::read_to_string(setup.root().join("reset")).unwrap(),
        "device 0\n"
    );

    let (_, run) = Setup::new(&checks("false"), &hang_and_two_more()).run();
    assert_eq!(
        run.records
            .iter()
            .filter(|record| matches!(record.outcome, Outcome::Blocked(_)))
            .count(),
        2
    );
}

#[test]
fn expectations_are_judged() {
    let expect = |rest: &str| format!("expect = {{ outcome = \"crash\", cause = \"exit-3\"{rest} }}");
    let suite = [
        case("as_declared", &["exit", "3"], &expect("")),
        case("expired", &["exit", "3"], &expect(", until = \"2026-11-30\"")),
        case("mended", &["exit", "0"], &expect("")),
        case("otherwise", &["exit", "4"], &expect("")),
    ];
    let (_, run) = Setup::new(PLATFORM, &suite.concat()).run();
    for record in &run.records {
        let fits = match record.case.name() {
            "as_declared" => matches!(record.expectation, Expectation::Met(_)),
            "expired" => matches!(record.expectation, Expectation::Expired(_)),
            "mended" => matches!(record.expectation, Expectation::UnexpectedPass(_)),
            _ => matches!(record.expectation, Expectation::NotMet(_)),
        };
        assert!(fits, "{}: {:?}", record.case, record.expectation);
    }
}

#[test]
fn an_interrupt_stops_politely_and_a_second_one_with_force() {
    let suite = [
        case("done", &["exit", "0"], ""),
        case("stubborn", &["ignore-term"], ""),
        case("never", &["exit", "0"], ""),
    ];
    for interrupts in [1, 2] {
        let mut setup = Setup::new(PLATFORM, &suite.concat());
        setup.settings.jobs = NonZeroUsize::MIN;
        let (sender, receiver) = unbounded();
        let (ending, run) = setup.run_watched(receiver, setup.create(), &[], &mut |notice| {
            if let Notice::Started { case, .. } = notice
                && case.id.name() == "stubborn"
            {
                (0..interrupts).for_each(|_| sender.send(()).unwrap());
            }
        });
        assert_eq!(ending, Ending::Interrupted);
        check(&run, &[("done", "pass"), ("stubborn", "interrupted")]);
        assert_eq!(run.provenance.status, RunStatus::Incomplete);
        assert_eq!(run.missing().len(), 1);
    }
}

#[test]
fn what_is_not_started_in_time_is_missing_and_a_resume_finishes_it() {
    let suite: String = (0..4).map(|n| case(&format!("c{n}"), &["sleep", "800"], "")).collect();
    let mut setup = Setup::new(PLATFORM, &suite);
    setup.settings.jobs = NonZeroUsize::MIN;
    let directory = setup.create();
    // The fourth case can't start before three times 800 ms; the first has a second and a half to do so.
    setup.settings.start_until = Some(Instant::now() + Duration::from_millis(1500));
    let (ending, run) = setup.run_watched(never(), directory, &[], &mut |_| {});
    assert_eq!(ending, Ending::OutOfTime);
    let finished = run.records.len();
    assert!((1..4).contains(&finished), "{finished} cases were started");
    assert_eq!(run.missing().len(), 4 - finished);

    setup.settings.start_until = None;
    let (directory, before) = RunDir::resume(setup.root(), &run.provenance.run_id).unwrap();
    let (ending, run) = setup.run_watched(never(), directory, &before.records, &mut |_| {});
    assert_eq!((ending, run.provenance.status), (Ending::Finished, RunStatus::Complete));
    check(&run, &[("c0", "pass"), ("c1", "pass"), ("c2", "pass"), ("c3", "pass")]);
}

#[test]
fn an_interrupted_case_is_run_again_by_a_resume() {
    let setup = Setup::new(PLATFORM, &case("hanging", &["fail-first", "0"], ""));
    let (sender, receiver) = unbounded();
    sender.send(()).unwrap();
    let (ending, run) = setup.run_watched(receiver, setup.create(), &[], &mut |_| {});
    assert_eq!((ending, run.records.len()), (Ending::Interrupted, 0));
    let mut stopped = crate::sweep::record("t/hanging");
    stopped.outcome = Outcome::Interrupted;
    let (mut directory, _) = RunDir::resume(setup.root(), "latest").unwrap();
    directory.append(&stopped).unwrap();
    let (_, run) = setup.run_watched(never(), directory, &[stopped], &mut |_| {});
    check(&run, &[("hanging", "interrupted"), ("hanging", "pass")]);
    assert_eq!(run.terminal()[0].outcome, Outcome::Pass);
}

#[test]
fn every_released_version_of_the_results_still_loads() {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/formats/results");
    let mut loaded = Vec::new();
    for version in fs_err::read_dir(formats).unwrap() {
        let version = version.unwrap();
        let run = xtask::format::read::run(&version.path()).unwrap();
        check(
            &run,
            &[
                ("skipped", "skipped/not today"),
                ("passes", "pass"),
                ("known", "deadlock/heap-ring"),
                ("differs", "crash/exit-3"),
            ],
        );
        let Expectation::Met(expected) = &run.records[2].expectation else {
            panic!("{:?}", run.records[2].expectation)
        };
        assert_eq!((expected.issue.as_deref(), run.missing().len()), (Some("#7"), 0));
        assert_eq!(run.records[1].latency.as_ref().unwrap().samples().len(), 2);
        let name = version.file_name().into_string().unwrap();
        // What is new in a version is in its fixture.
        let new = expected.ring == Some(1) && expected.shows == ["4096 requested"];
        assert_eq!(new, name != "1.0", "{name}");
        loaded.push(name);
    }
    let current = xtask::format::FormatVersion::CURRENT.to_string();
    assert!(loaded.contains(&current), "{current} has no fixture among {loaded:?}");
}
