//! The `kernel` binary as a caller sees it: command line in, report lines and exit status out.

#![expect(clippy::disallowed_methods, reason = "these tests start the binary and wait for it")]
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// What one run left behind.
struct Run {
    output: Output,
    events: Vec<Value>,
}

const COUNTS: [&str; 4] = [
    "--ring-task-window",
    "16384,16384,16384,16384",
    "--ring-dep-pool",
    "16384,16384,16384,16384",
];

fn kernel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernel"));
    command.env_remove("RINGSWEEP_REPORT");
    command
}

/// A report file of its own per test; nextest runs each test in a process of its own.
fn report_path(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.jsonl", std::process::id()));
    std::fs::write(&path, "").unwrap();
    path
}

/// Runs `kernel run NAME --seed 7 --ring-heap HEAPS …`.
fn run(test: &str, name: &str, heaps: &str, more: &[&str]) -> Run {
    let report = report_path(test);
    let output = kernel()
        .args([
            "run",
            name,
            "--seed",
            "7",
            "--cores",
            "2",
            "--case",
            test,
            "--ring-heap",
            heaps,
        ])
        .args(COUNTS)
        .arg("--report")
        .arg(&report)
        .args(more)
        .output()
        .unwrap();
    let text = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Run { output, events }
}

const AMPLE: &str = "1048576,67108864,1048576,1048576";

impl Run {
    fn of(&self, event: &str) -> Vec<&Value> {
        self.events.iter().filter(|e| e["event"] == event).collect()
    }

    fn stdout(&self) -> String {
        String::from_utf8(self.output.stdout.clone()).unwrap()
    }

    /// The last line, which is the only verdict.
    #[track_caller]
    fn check(&self, code: i32, verdict: &str, cause: &str) {
        let last = self
            .events
            .last()
            .unwrap_or_else(|| panic!("no report; {:?}", self.output));
        let found = (&last["verdict"], &last["cause"], self.output.status.code());
        assert_eq!(
            found,
            (&Value::from(verdict), &Value::from(cause), Some(code)),
            "{last}\n{}",
            self.stdout()
        );
        assert_eq!(self.of("verdict").len(), 1);
    }
}

#[test]
fn a_passing_case_reports_every_dispatch() {
    let run = run(
        "pass",
        "hc_pre",
        AMPLE,
        &["--param", "mode=decode", "--warmup", "2", "--rounds", "3"],
    );
    run.check(0, "pass", "");
    let hello = &run.events[0];
    assert_eq!(
        (&hello["event"], &hello["program"]),
        (&Value::from("hello"), &Value::from("hc_pre"))
    );
    assert_eq!(
        (&hello["protocol"]["major"], &hello["case"]),
        (&Value::from(1), &Value::from("pass"))
    );
    assert_eq!(
        (&hello["params"]["mode"], &hello["seed"]),
        (&Value::from("decode"), &Value::from(7))
    );
    assert_eq!(hello["kernel_hash"].as_str().unwrap().len(), 64);

    let kinds: Vec<_> = run
        .of("dispatch")
        .iter()
        .map(|d| d["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["correctness", "warmup", "warmup", "timed", "timed", "timed"]);
    for dispatch in run.of("dispatch") {
        assert_eq!(dispatch["usage"][1]["heap_high_water_bytes"], 14_336);
        assert_eq!(dispatch["tasks"]["submitted"], 9);
        assert_eq!(dispatch["launched"], true);
    }
    let rings = run.of("rings");
    assert_eq!(rings.len(), 6, "the configuration is read anew for each dispatch");
    for line in rings {
        assert_eq!(line["effective"], line["asked"]);
        assert_eq!(line["effective"]["heap"][1], 67_108_864);
    }
    let outputs: Vec<_> = run
        .of("tensor")
        .iter()
        .map(|t| (t["name"].clone(), t["verdict"].clone()))
        .collect();
    let pass = |name: &str| (Value::from(name), Value::from("pass"));
    assert_eq!(outputs, [pass("x_mixed"), pass("post"), pass("comb")]);
    assert_eq!(run.of("sample").len(), 3);
    assert!(
        run.of("sample")
            .iter()
            .all(|s| s["device_ns"].as_u64().unwrap() > 0 && s["clock"] == "device")
    );
    assert!(run.of("memory")[0]["peak_rss_bytes"].as_u64().unwrap() > 1 << 20);
    let stages: Vec<_> = run
        .of("stage")
        .iter()
        .filter(|s| s["phase"] == "end")
        .map(|s| s["stage"].clone())
        .collect();
    assert_eq!(stages, ["fixture", "runtime", "golden", "validate", "benchmark"]);

    let text = run.stdout();
    for line in [
        "[RUN]   'x_mixed' PASS  shape=(8, 7168) dtype=bf16",
        "effective_us (3 rounds)",
        "Ring buffer sizes:",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(
        text.trim_end().lines().last().unwrap().starts_with("[RUN] PASS ("),
        "{text}"
    );
}

#[test]
fn a_delay_is_a_share_of_what_the_dispatch_before_took_by_itself() {
    let run = run(
        "delay",
        "rmsnorm",
        AMPLE,
        &["--param=mode=decode", "--warmup", "1", "--rounds", "4", "--delay", "9"],
    );
    run.check(0, "pass", "");
    let dispatches = run.of("dispatch");
    let device = |index: usize| dispatches[index]["device_ns"].as_u64().unwrap();
    // What dispatch 1, the warm-up, took is not delayed itself; nine times that is spent in dispatch 2, and what
    // dispatch 2 took besides, nine times, in dispatch 3.
    assert!(device(2) >= 9 * device(1), "{dispatches:?}");
    let own = device(2) - 9 * device(1);
    assert!(device(3) >= 9 * own, "{dispatches:?}");
    let samples: Vec<u64> = run
        .of("sample")
        .iter()
        .map(|s| s["device_ns"].as_u64().unwrap())
        .collect();
    assert_eq!(samples, [2, 3, 4, 5].map(device));
}

#[test]
fn timed_dispatches_wait_for_their_turn_and_say_so() {
    let directory = tempfile::tempdir().unwrap();
    let [take, done] = ["take", "done"].map(|name| directory.path().join(name));
    for path in [&take, &done] {
        rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    }
    let turns = format!("--turns={},{}", take.display(), done.display());
    std::thread::scope(|scope| {
        let given = scope.spawn(|| {
            use std::io::{Read as _, Write as _};
            // Ready before each of two dispatches, and once more before the end.
            let mut take = std::fs::OpenOptions::new().write(true).open(&take).unwrap();
            let mut done = std::fs::File::open(&done).unwrap();
            for _ in 0..3 {
                done.read_exact(&mut [0]).unwrap();
                take.write_all(b".").unwrap();
            }
            done.read(&mut [0]).unwrap()
        });
        let run = run(
            "turns",
            "rmsnorm",
            AMPLE,
            &["--param=mode=decode", "--rounds", "2", &turns],
        );
        run.check(0, "pass", "");
        assert_eq!(run.of("sample").len(), 2);
        assert_eq!(given.join().unwrap(), 0, "it was ready a fourth time");
    });
}

#[test]
fn without_anybody_who_gives_turns_dispatches_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let [take, done] = ["take", "done"].map(|name| directory.path().join(name));
    // Files, not pipes: the first turn that is waited for is the end of a file.
    std::fs::write(&take, "").unwrap();
    std::fs::write(&done, "").unwrap();
    let turns = format!("--turns={},{}", take.display(), done.display());
    let run = run(
        "no-turns",
        "rmsnorm",
        AMPLE,
        &["--param=mode=decode", "--rounds", "2", &turns],
    );
    run.check(0, "pass", "");
    assert_eq!(run.of("sample").len(), 2);
}

#[test]
fn turns_that_cannot_be_taken_are_a_setup_error() {
    let run = run(
        "lost-turns",
        "rmsnorm",
        AMPLE,
        &[
            "--param=mode=decode",
            "--rounds",
            "2",
            "--turns=/nowhere/take,/nowhere/done",
        ],
    );
    run.check(1, "setup-error", "configuration");
}

#[test]
fn a_heap_that_is_too_small_is_a_deadlock_without_samples() {
    let run = run("deadlock", "hc_pre", "1024,94208,1024,1024", &["--rounds", "2"]);
    run.check(1, "deadlock", "heap-ring");
    let fatal = run.of("fatal")[0];
    assert_eq!(
        (&fatal["code"], &fatal["ring"], &fatal["resource"]),
        (&2.into(), &1.into(), &"heap".into())
    );
    assert_eq!(
        (&fatal["requested"], &fatal["capacity"]),
        (&95_232.into(), &94_208.into())
    );
    let dispatch = run.of("dispatch")[0];
    assert_eq!(
        (&dispatch["launched"], &dispatch["device_ns"]),
        (&false.into(), &Value::Null)
    );
    assert!(run.of("sample").is_empty() && run.of("tensor").is_empty());
    let text = run.stdout();
    assert!(
        text.contains("FATAL: Task Allocator Deadlock - Heap Exhausted! ring=1"),
        "{text}"
    );
    assert!(text.trim_end().ends_with("deadlock/heap-ring"), "{text}");
}

#[test]
fn a_window_that_is_too_small_is_a_scope_deadlock() {
    let report = report_path("scope");
    let output = kernel()
        .args([
            "run",
            "hc_pre",
            "--seed",
            "1",
            "--ring-heap",
            AMPLE,
            "--ring-task-window",
            "4,4,4,4",
        ])
        .args(["--ring-dep-pool", "16,16,16,16", "--report"])
        .arg(&report)
        .output()
        .unwrap();
    let text = std::fs::read_to_string(report).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["verdict"], &last["cause"]),
        (&"deadlock".into(), &"scope".into()),
        "{last}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_mismatch_is_not_measured() {
    let params = ["--param", "gate_rtol=0", "--param", "gate_atol=0", "--rounds", "3"];
    let run = run("mismatch", "hc_pre", AMPLE, &params);
    run.check(1, "mismatch", "output");
    assert!(run.of("sample").is_empty(), "a mismatch never carries a latency");
    assert_eq!(run.of("dispatch").len(), 1);
    let bad = run.of("tensor").into_iter().find(|t| t["name"] == "comb").unwrap();
    assert_eq!(bad["verdict"], "mismatch");
    assert!(bad["mismatched"].as_u64().unwrap() > bad["allowed"].as_u64().unwrap());
    assert!(run.stdout().contains("benchmark skipped"));
}

#[test]
fn a_run_without_progress_is_a_stall_and_ends() {
    // No block of the up projection is done within 3 ms.
    let limits = ["--scheduler-timeout-ms", "3", "--alloc-timeout-ms", "2"];
    let run = run("stall", "qkv_proj_rope", AMPLE, &limits);
    run.check(1, "stall", "S1");
    let stall = run.of("stall")[0];
    assert!(
        stall["running"].as_u64().unwrap() > 0 && !stall["stuck_task"].is_null(),
        "{stall}"
    );
}

#[test]
fn memory_that_the_system_refuses_is_oom() {
    let run = run(
        "oom",
        "rmsnorm",
        "1024,4611686018427387904,1024,1024",
        &["--param", "mode=decode"],
    );
    run.check(1, "oom", "host");
}

#[test]
fn what_can_not_be_set_up_names_what_can() {
    let message = |run: &Run| run.events.last().unwrap()["message"].as_str().unwrap().to_owned();
    let unknown = run("param", "hc_pre", AMPLE, &["--param", "moed=decode"]);
    unknown.check(1, "setup-error", "configuration");
    assert!(message(&unknown).contains("`mode`"), "{}", message(&unknown));
    let value = run("value", "hc_pre", AMPLE, &["--param", "mode=fast"]);
    value.check(1, "setup-error", "configuration");
    assert!(message(&value).contains("prefill, decode"), "{}", message(&value));
    let kernel = run("kernel", "hc_per", AMPLE, &[]);
    kernel.check(1, "setup-error", "configuration");
    assert!(message(&kernel).contains("`hc_pre`"), "{}", message(&kernel));
    let together = run("together", "prefill_attention_swa", AMPLE, &["--param=start_pos=16383"]);
    together.check(1, "setup-error", "configuration");
    let heap = run("heap", "hc_pre", "1023,1024,1024,1024", &[]);
    heap.check(1, "setup-error", "configuration");
}

#[test]
fn bad_arguments_exit_with_2_and_usage() {
    for arguments in [
        &["run"][..],
        &["run", "hc_pre", "--seed", "1", "--ring-heap", "1,2,3"],
        &["run", "hc_pre", "--seed", "1", "--ring-heap", "1MiB,1,1,1"],
        &["run", "hc_pre", "--seed", "1"],
        &["list", "--format", "xml"],
        &["run", "hc_pre", "--param", "mode"],
    ] {
        let output = kernel().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            String::from_utf8(output.stderr).unwrap().contains("--help"),
            "{arguments:?}"
        );
    }
}

#[test]
fn the_report_may_be_named_by_the_environment() {
    let report = report_path("environment");
    let status = kernel()
        .args([
            "run",
            "rmsnorm",
            "--param=mode=decode",
            "--seed",
            "1",
            "--ring-heap",
            AMPLE,
        ])
        .args(COUNTS)
        .env("RINGSWEEP_REPORT", &report)
        .output()
        .unwrap()
        .status;
    assert!(status.success());
    assert!(
        std::fs::read_to_string(report)
            .unwrap()
            .ends_with("\"cause\":\"\",\"message\":\"\"}\n")
    );
}

#[test]
fn the_list_describes_every_kernel() {
    let output = kernel().args(["list", "--format", "json"]).output().unwrap();
    let list: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let find = |name: &str| list.iter().find(|k| k["name"] == name).unwrap();
    let swa = find("prefill_attention_swa");
    assert_eq!(swa["spec_ring_bytes"], serde_json::json!([0, 306_889_728, 0, 0]));
    assert_eq!((&swa["level"], &swa["ranks"]), (&"L2".into(), &1.into()));
    let start = &swa["params"][1];
    assert_eq!(
        (&start["name"], &start["default"], &start["range"][1]),
        (&"start_pos".into(), &0.into(), &16_383.into())
    );
    let pre = find("hc_pre");
    assert_eq!(pre["modes"], serde_json::json!(["prefill", "decode"]));
    assert_eq!(pre["tolerances"], serde_json::json!(["gate_rtol", "gate_atol"]));
    assert_eq!(pre["outputs"][0]["shape"], serde_json::json!([128, 7168]));
}

#[test]
fn a_rank_needs_a_second_core() {
    let output = kernel()
        .args(["run", "lm_head", "--seed", "7", "--cores", "1", "--ring-heap", AMPLE])
        .args(COUNTS)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("`lm_head` needs at least 2 worker cores per rank, not 1"),
        "{text}"
    );
}
