//! Foreign programs, started as real processes: commands, and programs of a stand-in checkout, through the pypto
//! runner's own entry, on this machine and through a stand-in device queue.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use xtask::catalogue::Catalogue;
use xtask::kernels::Kernels;
use xtask::plan::{Plan, PlanRequest};
use xtask::platform::PlatformName;
use xtask::process::{Control, Supervisor};
use xtask::record::ResourceSizes;
use xtask::ring::RingLayer;
use xtask::runner::{Assignment, AttemptPaths, Observation, Runner, command::Command, pypto::Pypto};
use xtask::select::Selection;
use xtask::suite::budget::BudgetLayer;
use xtask::suite::file::Depth;
use xtask::suite::runner::RunnerKind;
use xtask::verdict::{self, Verdict};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

struct Attempt {
    verdict: Verdict,
    observation: Observation,
    log: String,
    asked: ResourceSizes,
}

impl Attempt {
    fn outcome(&self) -> String {
        self.verdict.outcome.to_string()
    }
}

/// Runs the one case of `suite` on `platform` and judges it.
#[track_caller]
fn attempt(platform: &str, suite: &str) -> Attempt {
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    let cases = root.join("cases");
    std::fs::create_dir(&cases).unwrap();
    let checkout = fixtures().join("checkout");
    let queue = fixtures().join("task-submit");
    let platforms = format!(
        "[platform.here]\ndescription = \"commands\"\nrunner = \"command\"\n\
         [platform.a2a3sim]\ndescription = \"stand-in\"\nrunner = \"pypto\"\nenv = {{ PYPTO_LIB = {checkout:?} }}\n\
         [platform.a2a3]\ndescription = \"stand-in behind its queue\"\nrunner = \"pypto\"\ndevices = [4, 5]\n\
         launcher = {{ kind = \"task-submit\", program = {queue:?} }}\nenv = {{ PYPTO_LIB = {checkout:?} }}\n"
    );
    std::fs::write(cases.join("platforms.toml"), platforms).unwrap();
    std::fs::write(
        cases.join("s.toml"),
        format!("[suite]\nname = \"s\"\ndescription = \"one\"\n{suite}"),
    )
    .unwrap();
    let kernels = Kernels::Known(std::collections::BTreeMap::new());
    let catalogue = Catalogue::load(&cases, || kernels.clone()).unwrap_or_else(|error| panic!("{error}"));
    let request = PlanRequest {
        selection: Selection::new(&[], &[], &[], &[]).unwrap(),
        platform: PlatformName::new(platform).unwrap(),
        ring: RingLayer::default(),
        rounds: None,
        warmup: None,
        seed: None,
        budgets: BudgetLayer::default(),
        depth: Depth::Full,
    };
    let plan = Plan::resolve(&catalogue, &kernels, &request).unwrap();
    let case = plan.runnable().next().unwrap();
    let paths = AttemptPaths {
        log: root.join("log"),
        report: root.join("report"),
        scratch: root.join("scratch"),
    };
    std::fs::write(&paths.report, "").unwrap();
    std::fs::create_dir(&paths.scratch).unwrap();
    let devices: Vec<u32> = plan
        .platform
        .devices
        .iter()
        .copied()
        .take(case.devices as usize)
        .collect();
    let assignment = Assignment {
        case,
        platform: &plan.platform,
        devices: &devices,
        root,
        paths: &paths,
    };
    let runner: Box<dyn Runner> = match case.runner.kind() {
        RunnerKind::Command => Box::new(Command::new(&cases)),
        RunnerKind::Pypto => Box::new(Pypto::new(&cases)),
        RunnerKind::Embedded => panic!("not a foreign case"),
    };
    let numbers = case.rings.numbers();
    let asked = ResourceSizes {
        heap: numbers.heap,
        task_window: numbers.task_window,
        dep_pool: numbers.dep_pool,
    };
    let mut child = match runner.launch(&assignment) {
        Ok(child) => child,
        Err(error) => {
            return Attempt {
                verdict: verdict::not_launched(&error),
                observation: Observation::default(),
                log: String::new(),
                asked,
            };
        }
    };
    child.grace = Duration::from_millis(300);
    let supervisor = Supervisor::start(env!("CARGO_BIN_EXE_xtask").as_ref()).unwrap();
    let ended = supervisor.run(&child, &Control::new().unwrap()).unwrap();
    let log = std::fs::read(&paths.log).unwrap();
    let observation = runner.observe(&assignment, &ended, &log);
    Attempt {
        verdict: verdict::judge(&ended, &observation, &asked, &log),
        observation,
        log: String::from_utf8_lossy(&log).into_owned(),
        asked,
    }
}

/// A case of the stand-in checkout with 1 GiB in ring 1, unless `extra` says otherwise.
fn program(name: &str, args: &[&str], extra: &str) -> String {
    let ring = if extra.contains("ring") {
        ""
    } else {
        "ring.heap = [\"512MiB\", \"1GiB\", \"256MiB\", 2048]\n"
    };
    format!(
        "[[case]]\nname = \"c\"\npypto = {{ program = \"models/deepseek_v4_pro/{name}.py\", args = {args:?} }}\n\
         bench = {{ warmup = 1, rounds = 4 }}\n{ring}{extra}\n"
    )
}

#[track_caller]
fn check(platform: &str, suite: &str, expected: &str) -> Attempt {
    let attempt = attempt(platform, suite);
    assert_eq!(
        attempt.outcome(),
        expected,
        "{:?}\n{}",
        attempt.verdict.evidence,
        attempt.log
    );
    attempt
}

const L3: &str = "ranks = 2\nlevel = \"L3\"\n";

#[test]
fn rings_reach_correctness_and_benchmark_on_one_device() {
    let attempt = check("a2a3sim", &program("attention", &[], ""), "pass");
    let (report, damage) = attempt.observation.report.as_ref().unwrap();
    assert_eq!(*damage, None);
    assert_eq!(
        report.rings.iter().map(|rings| rings.dispatch).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!(
        attempt.observation.effective,
        [attempt.asked],
        "every dispatch reports the sizes that were asked for"
    );
    assert_eq!(attempt.observation.latency.as_ref().unwrap().samples().len(), 4);
    // Without the entry, the same program deadlocks on the default: it asks for rings in a form that the runtime drops.
    assert!(!attempt.log.contains("ignored"), "{}", attempt.log);
}

#[test]
fn rings_reach_correctness_and_benchmark_on_two_devices() {
    for args in [&[][..], &["--resident"]] {
        let attempt = check("a2a3sim", &program("layer", args, L3), "pass");
        assert_eq!(attempt.observation.effective, [attempt.asked], "{}", attempt.log);
        let report = &attempt.observation.report.as_ref().unwrap().0;
        assert_eq!(
            report.rings.iter().map(|rings| rings.dispatch).collect::<Vec<_>>(),
            [0, 1]
        );
    }
}

#[test]
fn a_deadlock_of_either_dispatch_is_one() {
    let small = "ring.heap = \"256MiB\"";
    let first = check("a2a3sim", &program("attention", &[], small), "deadlock/heap-ring");
    assert!(
        first
            .verdict
            .evidence
            .lines
            .iter()
            .any(|line| line.text.contains("Heap Exhausted! ring=1"))
    );
    // The program passes, says PASS and exits with 0.
    let second = check(
        "a2a3sim",
        &program("attention", &["--bench-need", "2048"], ""),
        "deadlock/heap-ring",
    );
    assert!(second.log.contains("[RUN] PASS") && second.log.contains("benchmark unavailable"));
    check(
        "a2a3sim",
        &program("layer", &["--bench-need", "2048"], L3),
        "deadlock/heap-ring",
    );
    check(
        "a2a3sim",
        &program("layer", &["--need", "2048", "--resident"], L3),
        "deadlock/heap-ring",
    );
}

#[test]
fn wrong_and_non_finite_outputs_are_told_apart() {
    check("a2a3sim", &program("attention", &["--output", "nan"], ""), "nan/output");
    check("a2a3sim", &program("attention", &["--golden", "nan"], ""), "nan/golden");
    let wrong = check(
        "a2a3sim",
        &program("attention", &["--output", "2"], ""),
        "mismatch/output",
    );
    assert!(
        wrong.observation.latency.is_some(),
        "a benchmark ran; the record of a mismatch leaves it out"
    );
}

#[test]
fn a_stall_names_its_task() {
    let attempt = check("a2a3sim", &program("attention", &["--stall"], ""), "stall/S1");
    assert!(
        attempt
            .verdict
            .evidence
            .summary
            .contains("ring 1 task 2 is stuck on core 6")
    );
}

#[test]
fn rings_that_the_runtime_drops_are_seen() {
    let dropped = "env = { STANDIN_RUNTIME = \"retired\" }\nring.heap = \"1GiB\"";
    // One device has no channel but variables in this checkout, and this runtime reads none.
    check(
        "a2a3sim",
        &program("attention", &["--need", "1", "--bench-need", "1"], dropped),
        "config-not-applied/ring-differs",
    );
    check("a2a3sim", &program("layer", &[], &format!("{dropped}\n{L3}")), "pass");
}

#[test]
fn scope_statistics_tell_the_rings_where_the_log_does_not() {
    let statistics = |name: &str, args: &[&str], env: &str, extra: &str| {
        let quiet = format!("env = {{ STANDIN_LOG = \"timing\"{env} }}\n{extra}");
        program(name, args, &quiet).replace("pypto = { ", "pypto = { scope_stats = true, ")
    };
    let one = check("a2a3sim", &statistics("attention", &[], "", ""), "pass");
    assert!(!one.log.contains("Ring buffer sizes"), "{}", one.log);
    assert!(!one.observation.effective.is_empty());
    assert!(one.observation.effective.iter().all(|sizes| *sizes == one.asked));
    let two = check("a2a3sim", &statistics("layer", &[], "", L3), "pass");
    assert!(two.observation.effective.iter().all(|sizes| *sizes == two.asked));
    // A release that reads no variables: nothing in the log says so, but the statistics do.
    let args = ["--need", "1", "--bench-need", "1"];
    let dropped = statistics(
        "attention",
        &args,
        ", STANDIN_RUNTIME = \"retired\"",
        "ring.heap = \"1GiB\"",
    );
    check("a2a3sim", &dropped, "config-not-applied/ring-differs");
    // Not asked for, they aren't there, and nobody says that they should be.
    let plain = check(
        "a2a3sim",
        &program("attention", &[], "env = { STANDIN_LOG = \"timing\" }"),
        "pass",
    );
    assert_eq!(plain.observation.effective, []);
}

#[test]
fn no_validation_is_no_verdict_and_two_passes_are_one_case() {
    check(
        "a2a3sim",
        &program("attention", &["--no-golden"], ""),
        "no-verdict/validation-skipped",
    );
    let both = check("a2a3sim", &program("norm", &[], ""), "pass");
    assert_eq!(both.log.matches("[RUN] PASS").count(), 2);
    assert_eq!(
        both.observation.latency, None,
        "which of two benchmarks is meant can't be told"
    );
    let one = check("a2a3sim", &program("norm", &["--mode", "decode"], ""), "pass");
    assert_eq!(one.observation.latency.unwrap().samples().len(), 4);
}

#[test]
fn unknown_options_are_refused_on_both_levels() {
    let told = check(
        "a2a3sim",
        &program("attention", &["--option", "ring_heaps"], ""),
        "setup-error/configuration",
    );
    assert!(
        told.verdict.evidence.summary.contains("unknown keys: ring_heaps"),
        "{:?}",
        told.verdict.evidence
    );
    check(
        "a2a3sim",
        &program("layer", &["--option", "ring_heaps"], L3),
        "setup-error/configuration",
    );
}

#[test]
fn what_cannot_be_forced_is_not_run() {
    // A size that the checkout's own check refuses.
    let odd = format!("{L3}ring.heap = \"384MiB\"");
    check("a2a3sim", &program("layer", &[], &odd), "setup-error/configuration");
    // A program that never dispatches through the harness.
    check(
        "a2a3sim",
        &program("listing", &[], ""),
        "config-not-applied/ring-ignored",
    );
    check("a2a3sim", &program("absent", &[], ""), "setup-error/environment");
    let nowhere = program("norm", &[], "env = { PYPTO_LIB = \"nowhere\" }");
    check("a2a3sim", &nowhere, "setup-error/environment");
    let bare = TempDir::new().unwrap();
    std::fs::create_dir_all(bare.path().join("golden")).unwrap();
    std::fs::write(bare.path().join("golden/__init__.py"), "").unwrap();
    std::fs::write(bare.path().join("golden/runner.py"), "def run_jit(**options): pass\n").unwrap();
    std::fs::create_dir_all(bare.path().join("models/deepseek_v4_pro")).unwrap();
    std::fs::write(
        bare.path().join("models/deepseek_v4_pro/norm.py"),
        "print('[RUN] PASS (0.00s)')\n",
    )
    .unwrap();
    let env = format!("env = {{ PYPTO_LIB = {:?} }}", bare.path());
    let told = check("a2a3sim", &program("norm", &[], &env), "setup-error/environment");
    assert!(
        told.verdict.evidence.summary.contains("has no `execute_compiled`"),
        "{:?}",
        told.verdict.evidence
    );
}

#[test]
fn the_device_queue_places_programs() {
    let passed = check("a2a3", &program("attention", &[], "devices = 1"), "pass");
    assert!(passed.log.contains("device 4 acquired"), "{}", passed.log);
    check("a2a3", &program("layer", &[], L3), "pass");
    check("a2a3", &program("attention", &["--output", "2"], ""), "mismatch/output");
    // Two dispatched shapes in one process: one verdict, and no latency that could be either's.
    let both = check("a2a3", &program("projection", &[], L3), "pass");
    assert_eq!(
        (both.log.matches("[RUN] PASS").count(), both.observation.latency),
        (2, None)
    );
    assert_eq!(both.observation.effective, [both.asked]);
    let queue = |mode: &str| program("attention", &[], &format!("env = {{ STANDIN_QUEUE = \"{mode}\" }}"));
    check("a2a3", &queue("reject"), "setup-error/launch");
    check("a2a3", &queue("wait"), "timeout/queue");
    check("a2a3", &queue("max-time"), "timeout/total");
    check("a2a3", &queue("silent"), "no-verdict/no-pass-line");
}

/// A case of a shell command.
fn shell(script: &str, extra: &str) -> String {
    format!("[[case]]\nname = \"c\"\ncommand = {{ argv = [\"sh\", \"-c\", {script:?}], rules = \"pypto\"{extra} }}\n")
}

#[test]
fn commands_get_their_rings_each_way() {
    let env = ", rings = { via = \"env\", heap = \"MY_HEAP\", dep_pool = \"MY_POOL\" }";
    let told = check("here", &shell("echo $MY_HEAP $MY_POOL; echo '[RUN] PASS'", env), "pass");
    assert!(
        told.log
            .starts_with("268435456,268435456,268435456,268435456 16384,16384,16384,16384"),
        "{}",
        told.log
    );
    let argv = ", rings = { via = \"argv\" }";
    let told = check(
        "here",
        &shell("echo heap={ring_heap} '{ring_json}'; echo '[RUN] PASS'", argv),
        "pass",
    );
    assert!(
        told.log.contains("\"dep_pool\":[16384,16384,16384,16384]"),
        "{}",
        told.log
    );
    let file = ", rings = { via = \"file\", env = \"RING_FILE\" }";
    let told = check("here", &shell("cat $RING_FILE; echo; echo '[RUN] PASS'", file), "pass");
    assert!(told.log.contains("\"task_window\":[16384"), "{}", told.log);
}

#[test]
fn commands_are_read_back_and_timed() {
    let ring_line = |heap: u64| {
        format!("echo 'Ring buffer sizes: task_window=[16384] heap=[{heap}] dep_pool=[16384]'; echo '[RUN] PASS'")
    };
    let log = ", read_back = { from = \"log\" }";
    let applied = check("here", &shell(&ring_line(268_435_456), log), "pass");
    assert_eq!(applied.observation.effective, [applied.asked]);
    check("here", &shell(&ring_line(1024), log), "config-not-applied/ring-differs");
    let samples =
        ", samples = { from = \"log\", pattern = 'took (?<value>\\S+) us', unit = \"us\", clock = \"device\" }";
    let timed = check(
        "here",
        &shell("echo took 1.2e+06 us; echo took 3 us; echo '[RUN] PASS'", samples),
        "pass",
    );
    let nanos: Vec<u64> = timed
        .observation
        .latency
        .unwrap()
        .samples()
        .iter()
        .map(|sample| sample.get())
        .collect();
    assert_eq!(nanos, [1_200_000_000, 3000]);
    check(
        "here",
        &shell("echo took nan us; echo '[RUN] PASS'", samples),
        "no-verdict/unreadable",
    );
}

#[test]
fn commands_write_their_samples_into_a_file() {
    let json = |pointer: &str| {
        format!(
            ", samples = {{ from = \"json\", file = \"{{name}}.json\", pointer = \"{pointer}\", unit = \"us\", clock = \"host\" }}"
        )
    };
    let writes = |text: &str| format!("echo '{text}' > c.json; echo '[RUN] PASS'");
    let told = check(
        "here",
        &shell(
            &writes("{{\"runs\": [{{\"us\": 3}}, {{\"us\": 1.5}}]}}"),
            &json("/runs/*/us"),
        ),
        "pass",
    );
    let samples = told.observation.latency.unwrap();
    assert_eq!(
        samples.samples().iter().map(|sample| sample.get()).collect::<Vec<_>>(),
        [3000, 1500]
    );
    for (text, pointer) in [("{{\"us\": [null]}}", "/us"), ("{{}}", "/us"), ("[0]", ""), ("[1,", "")] {
        let told = check("here", &shell(&writes(text), &json(pointer)), "no-verdict/unreadable");
        assert!(
            told.verdict.evidence.summary.starts_with("no samples in "),
            "{:?}",
            told.verdict.evidence
        );
    }
    // A file that was there before the program began is nobody's result.
    check(
        "here",
        &shell("echo '[RUN] PASS'", &json("/us")),
        "no-verdict/unreadable",
    );
    let directory = TempDir::new().unwrap();
    let old = directory.path().join("old.json").display().to_string();
    std::fs::write(&old, "[1]").unwrap();
    let script = format!("test -e {old} || echo '[RUN] PASS'");
    let told = check(
        "here",
        &shell(&script, &json("").replace("{name}.json", &old)),
        "no-verdict/unreadable",
    );
    assert!(
        told.verdict.evidence.summary.contains("No such file"),
        "{:?}",
        told.verdict.evidence
    );
    // Without rounds there is nothing to write.
    let unasked = format!("{}bench.rounds = 0\n", shell("echo '[RUN] PASS'", &json("/us")));
    check("here", &unasked, "pass");
    // And a failure stays one.
    check("here", &shell("exit 3", &json("/us")), "crash/exit-3");
}

#[test]
fn a_declared_read_back_that_says_nothing_is_no_pass() {
    for read_back in ["from = \"log\"", "from = \"scope-stats\", file = \"none.jsonl\""] {
        let told = check(
            "here",
            &shell("echo '[RUN] PASS'", &format!(", read_back = {{ {read_back} }}")),
            "no-verdict/unreadable",
        );
        assert!(
            told.verdict.evidence.summary.contains("can't be read back"),
            "{:?}",
            told.verdict.evidence
        );
    }
}

#[test]
fn a_memory_limit_reaches_the_program_through_every_launcher() {
    let limited = format!(
        "{}memory_limit = \"512MiB\"\n",
        shell("ulimit -v; echo '[RUN] PASS'", "")
    );
    let told = check("here", &limited, "pass");
    assert!(told.log.starts_with("524288\n"), "{}", told.log);
}

#[test]
fn commands_end_as_their_status_says() {
    check("here", &shell("echo '[RUN] PASS'; exit 3", ""), "crash/exit-3");
    check("here", &shell("echo '[RUN] PASS'; kill -SEGV $$", ""), "crash/SIGSEGV");
    check("here", &shell("echo hello", ""), "no-verdict/no-pass-line");
    check(
        "here",
        &shell("echo 'FATAL: Scope Deadlock Detected! (ring 2)'; kill -ABRT $$", ""),
        "deadlock/scope",
    );
    let report = r#"echo '{{\"event\":\"hello\",\"protocol\":{{\"major\":1,\"minor\":0}}}}' > $RINGSWEEP_REPORT; echo '[RUN] PASS'"#;
    check("here", &shell(&report.replace("\\\"", "\""), ""), "pass");
    let missing = "[[case]]\nname = \"c\"\ncommand = { argv = [\"true\"], cwd = \"no/such\" }\n";
    check("here", missing, "setup-error/environment");
}
