//! With any one detector switched off, the suite that shows it is red and names the case.
//!
//! Each detector is blinded in a process of the program `blindfold`, which then runs the real command line: the fault
//! suite's cases that this detector is there for, or `classify` over the logs that stand in for what no program of
//! this machine can say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use xtask::outcome::Outcome;
use xtask::record::{CaseRecord, Expectation};

/// Detectors with the cases of `cases/faults.toml` that turn red without them.
const BY_CASE: &[(&str, &[&str])] = &[
    ("crash/signal", &["crash_sigabrt", "crash_sigsegv", "crash_stopped"]),
    ("crash/exit", &["crash_exit", "crash_panic", "command_claims_in_vain"]),
    ("deadlock/scope", &["deadlock_scope"]),
    (
        "deadlock/heap-ring",
        &["deadlock_heap_ring", "deadlock_heap_ring_backstop"],
    ),
    ("deadlock/flow-control", &["deadlock_flow_control"]),
    ("deadlock/dep-pool", &["deadlock_dep_pool", "deadlock_fanin_pool"]),
    ("deadlock/tensormap", &["deadlock_tensormap"]),
    ("stall/S1", &["stall_s1"]),
    ("stall/S3", &["stall_s3"]),
    ("stall/S4", &["stall_s4"]),
    ("stall/S5", &["stall_s5"]),
    ("stall/unknown", &["stall_unknown"]),
    ("stall/tensor-wait", &["stall_tensor_wait"]),
    ("timeout/queue", &["timeout_queue"]),
    ("timeout/setup", &["timeout_setup"]),
    ("timeout/run", &["timeout_run"]),
    ("timeout/silence", &["timeout_silence"]),
    ("timeout/total", &["timeout_total"]),
    ("oom/host", &["oom_host"]),
    ("runtime-error/invalid-args", &["rejected_invalid_args"]),
    ("runtime-error/require-sync-start-invalid", &["rejected_sync_start"]),
    ("runtime-error/explicit-orch-fatal", &["rejected_explicit"]),
    ("config-not-applied/ring-differs", &["other_rings"]),
    ("nan/output", &["nan_output"]),
    ("nan/golden", &["nan_golden"]),
    ("mismatch/output", &["mismatch"]),
    ("compile-error/kernel", &["compile_kernel"]),
    ("compile-error/program", &["compile_program"]),
    ("setup-error/launch", &["command_without_program"]),
    ("setup-error/configuration", &["setup_configuration"]),
    ("setup-error/environment", &["command_without_directory"]),
    ("no-verdict/validation-skipped", &["no_golden"]),
    ("no-verdict/no-pass-line", &["command_claims_nothing"]),
    ("no-verdict/unreadable", &["garbled_report"]),
    ("blocked", &["device_is_blocked"]),
    ("skipped", &["skipped"]),
    ("leak", &["leaked_child"]),
    ("suspect-device", &["device_is_blocked"]),
    ("health-check/bad", &["device_is_blocked"]),
    ("health-check/well", &["device_is_used_again"]),
    ("expectation/kind", &["other_outcome"]),
    ("expectation/cause", &["other_cause"]),
    ("expectation/ring", &["other_ring"]),
    ("expectation/shows", &["other_evidence"]),
    ("expectation/until", &["expired"]),
    ("expectation/pass", &["unexpected_pass"]),
];

/// Cases that must run before another one means what it says.
const BEFORE: &[(&str, &str)] = &[
    ("device_is_blocked", "device_hangs"),
    ("timeout_queue", "device_is_busy"),
    ("device_is_used_again", "device_recovers"),
];

/// Cases that show that nothing is seen where nothing is, and those that only prepare another one.
const NO_DETECTOR: &[&str] = &["none", "device_hangs", "device_is_busy", "device_recovers"];

/// Detectors that no program on `host` can need, each with a log that does, under `tests/fixtures/logs`.
const BY_LOG: &[(&str, &str)] = &[
    ("device-fault", "fault-generic.log"),
    ("oom/device", "oom-device.log"),
    ("runtime-error/scope-tasks-overflow", "scope-tasks.log"),
    ("runtime-error/async-completion-invalid", "async-completion.log"),
    ("runtime-error/async-wait-overflow", "async-wait.log"),
    ("runtime-error/async-registration-failed", "async-registration.log"),
    ("runtime-error/ready-queue-overflow", "ready-queue.log"),
    ("config-not-applied/ring-ignored", "window-ignored.log"),
    ("setup-error/exception", "run-runtime-exception.log"),
    ("setup-error/nothing-selected", "pytest-nothing.log"),
    ("lines/root", "root-alone.log"),
    ("lines/runtime-code", "runtime-code-alone.log"),
    ("lines/stall", "stall-S3.log"),
    ("lines/stall-code", "stall-code-alone.log"),
    ("lines/return-code", "return-code-alone.log"),
    ("lines/memory", "oom-host.log"),
    ("lines/non-finite", "run-nan-beats-mismatch.log"),
    ("lines/mismatch", "run-mismatch.log"),
    ("lines/compile", "run-compile-exception.log"),
    ("lines/setup", "no-module.log"),
    ("lines/timeout", "queue-wait.log"),
    ("lines/driver", "driver-then-abort.log"),
    ("lines/crash", "child-died.log"),
    ("lines/fallout", "driver-fallout-alone.log"),
    ("lines/failed", "failed-with-exit-0.log"),
    ("lines/exception", "run-runtime-exception.log"),
    ("lines/exit-status", "hang-silent.log"),
    ("lines/config", "window-ignored.log"),
    ("lines/void-claim", "run-unvalidated.log"),
    ("lines/claim", "run-pass.log"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[expect(clippy::disallowed_methods, reason = "this is the user who starts the harness")]
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env_remove("GITHUB_STEP_SUMMARY");
    command
}

/// The `kernel` binary of this profile, as Cargo's own messages about it: a stand-in for Cargo replays them, so that
/// sixty sweeps ask Cargo once.
fn cargo_that_has_built(directory: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = command(cargo);
    build
        .current_dir(root())
        .args(["build", "--locked", "--workspace", "--bin", "kernel"]);
    build.args(["--message-format", "json"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let built = build.stderr(Stdio::inherit()).output().unwrap();
    assert!(built.status.success());
    fs_err::write(directory.join("messages"), built.stdout).unwrap();
    let script = directory.join("cargo");
    let text = format!("#!/bin/sh\nexec cat '{}'\n", directory.join("messages").display());
    fs_err::write(&script, text).unwrap();
    fs_err::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sweeps `cases` of the fault suite with `detector` switched off; the output, and the cases that went wrong.
fn sweep(detector: &str, cases: &BTreeSet<&str>, cargo: &Path) -> (Output, BTreeSet<String>) {
    let results = TempDir::new().unwrap();
    let mut command = command(env!("CARGO_BIN_EXE_blindfold"));
    command.arg(detector).env("CARGO", cargo);
    command.arg("--results").arg(results.path());
    command.args(["sweep", "--platform", "host", "--jobs", "2"]);
    command.args(cases.iter().map(|case| format!("faults/{case}")));
    let output = command.output().unwrap();
    let runs = std::fs::read_dir(results.path().join("runs"))
        .into_iter()
        .flatten()
        .flatten();
    let records = runs.flat_map(|run| xtask::format::read::run(&run.path()).unwrap().records);
    let wrong = records.filter(|record| !is_as_declared(record));
    (output, wrong.map(|record| record.case.name().to_owned()).collect())
}

fn is_as_declared(record: &CaseRecord) -> bool {
    match &record.expectation {
        Expectation::Met(_) => true,
        Expectation::None => matches!(record.outcome, Outcome::Pass | Outcome::Skipped(_)),
        Expectation::NotMet(_) | Expectation::UnexpectedPass(_) | Expectation::Expired(_) => false,
    }
}

/// The cases that `detector` is for, with those that must run before them.
fn cases_of(cases: &[&'static str]) -> BTreeSet<&'static str> {
    let before = BEFORE
        .iter()
        .filter(|(case, _)| cases.contains(case))
        .map(|(_, before)| *before);
    cases.iter().copied().chain(before).collect()
}

#[test]
fn no_detector_lacks_its_proof_and_no_fault_case_its_detector() {
    let listed = command(env!("CARGO_BIN_EXE_blindfold")).output().unwrap();
    let detectors: BTreeSet<String> = text(&listed.stdout).lines().map(str::to_owned).collect();
    let by_case = BY_CASE.iter().map(|(detector, _)| *detector);
    let proven: Vec<String> = by_case
        .chain(BY_LOG.iter().map(|(detector, _)| *detector))
        .map(str::to_owned)
        .collect();
    let once: BTreeSet<String> = proven.iter().cloned().collect();
    assert_eq!(once.len(), proven.len(), "a detector stands here twice");
    assert_eq!(once, detectors);

    let suite = fs_err::read_to_string(root().join("cases/faults.toml")).unwrap();
    let declared: BTreeSet<&str> = suite
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        .filter(|name| *name != "faults")
        .collect();
    let used = BY_CASE.iter().flat_map(|(_, cases)| cases.iter()).chain(NO_DETECTOR);
    assert_eq!(used.copied().collect::<BTreeSet<_>>(), declared);
}

#[test]
fn without_any_one_detector_the_fault_suite_is_red_and_names_the_case() {
    let directory = TempDir::new().unwrap();
    let cargo = cargo_that_has_built(directory.path());
    let start = Instant::now();
    let left = Mutex::new(BY_CASE.iter());
    let wrong = Mutex::new(Vec::new());
    // Most of the time is spent in waiting for budgets and watchdogs, so three at once cost no more than one.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((detector, cases)) = { left.lock().unwrap().next() } {
                    let (output, red) = sweep(detector, &cases_of(cases), &cargo);
                    let (out, err) = (text(&output.stdout), text(&output.stderr));
                    let named = |case: &str| red.contains(case) && out.contains(&format!("faults/{case}"));
                    if output.status.code() != Some(1) || !cases.iter().all(|case| named(case)) {
                        let told = format!("{detector}: {:?}\n{out}\n{err}", output.status.code());
                        wrong.lock().unwrap().push(told);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(start.elapsed() < Duration::from_mins(3), "{:?}", start.elapsed());
}

#[test]
fn without_any_one_detector_the_logs_that_need_it_are_read_wrong() {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/logs");
    let mut kept: BTreeMap<&str, String> = BTreeMap::new();
    for (detector, log) in BY_LOG {
        let output = command(env!("CARGO_BIN_EXE_blindfold"))
            .arg(detector)
            .args(["classify", "--index", "INDEX.tsv"])
            .current_dir(&logs)
            .output()
            .unwrap();
        let err = text(&output.stderr);
        let named = err.lines().any(|line| line.starts_with(&format!("{log}: truly")));
        if output.status.code() != Some(1) || !named {
            kept.insert(detector, err);
        }
    }
    assert!(kept.is_empty(), "{kept:#?}");
}
