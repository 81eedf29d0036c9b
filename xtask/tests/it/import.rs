//! `import` against a synthetic checkout, and a whole sweep over its programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkout")
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test of the command line starts the command line"
)]
fn xtask(cases: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("--cases")
        .arg(cases)
        .args(arguments)
        // Ring settings of the surroundings, which must not leak into any case.
        .env("PTO2_RING_HEAP", "1024")
        .env("SIMPLER_SCHEDULER_TIMEOUT_MS", "1")
        .env("PYPTO_LIB", checkout())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn programs(directory: &Path) -> String {
    directory.join("models/deepseek_v4_pro").display().to_string()
}

#[test]
fn a_checkout_becomes_a_suite_that_loads() {
    let cases = TempDir::new().unwrap();
    let output = xtask(cases.path(), &["import", &programs(&checkout()), "--suite", "pro"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr)
            .starts_with("left out attention_draft.py: a draft\nleft out listing.py: it doesn't call the harness\nleft out synthetic_token_loop.py: it drives other programs\n")
    );
    insta::assert_snapshot!(
        "imported",
        std::fs::read_to_string(cases.path().join("pro.toml")).unwrap()
    );
    let listed = xtask(cases.path(), &["list", "--platform", "a2a3sim"]);
    assert_eq!(listed.status.code(), Some(0), "{}", text(&listed.stderr));
    assert!(text(&listed.stderr).contains("6 of 6 cases"));
    let again = xtask(cases.path(), &["import", &programs(&checkout()), "--suite", "pro"]);
    assert_eq!((again.status.code(), text(&again.stdout).as_str()), (Some(0), ""));
}

#[test]
fn drift_is_told_by_kind() {
    let cases = TempDir::new().unwrap();
    let moved = TempDir::new().unwrap();
    std::fs::create_dir_all(moved.path().join("golden")).unwrap();
    let directory = moved.path().join("models/deepseek_v4_pro");
    std::fs::create_dir_all(&directory).unwrap();
    let original = checkout().join("models/deepseek_v4_pro");
    for name in ["attention.py", "layer.py", "norm.py"] {
        std::fs::copy(original.join(name), directory.join(name)).unwrap();
    }
    let path = programs(moved.path());
    assert_eq!(xtask(cases.path(), &["import", &path]).status.code(), Some(0));
    let layer = std::fs::read_to_string(directory.join("layer.py")).unwrap();
    std::fs::write(
        directory.join("layer.py"),
        layer.replace("devices=2", "devices=2, no-sim"),
    )
    .unwrap();
    let norm = std::fs::read_to_string(directory.join("norm.py")).unwrap();
    std::fs::write(
        directory.join("norm.py"),
        norm.replace("\"prefill\", \"all\"", "\"chunk\", \"all\""),
    )
    .unwrap();
    std::fs::rename(directory.join("attention.py"), directory.join("attention_new.py")).unwrap();
    let output = xtask(cases.path(), &["import", &path]);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!("drift", text(&output.stdout));
    assert_eq!(
        xtask(cases.path(), &["import", &path, "--force"]).status.code(),
        Some(0)
    );
    assert_eq!(xtask(cases.path(), &["import", &path]).status.code(), Some(0));
}

#[test]
fn what_is_no_checkout_is_refused() {
    let cases = TempDir::new().unwrap();
    let outside = cases.path().display().to_string();
    assert_eq!(xtask(cases.path(), &["import", &outside]).status.code(), Some(2));
    assert_eq!(xtask(cases.path(), &["import", "no/such"]).status.code(), Some(2));
    let empty = checkout().join("golden").display().to_string();
    assert_eq!(xtask(cases.path(), &["import", &empty]).status.code(), Some(4));
}

/// One case per way in which a program of the checkout can end.
const SUITE: &str = r#"
[suite]
name = "standin"
description = "Every way to end."
[defaults]
platforms = ["a2a3sim"]
bench = { warmup = 1, rounds = 3 }
ring.heap = "1GiB"
"#;

#[test]
fn a_sweep_tells_every_end_of_a_program_apart() {
    let directory = TempDir::new().unwrap();
    let (cases, results) = (directory.path().join("cases"), directory.path().join("results"));
    std::fs::create_dir(&cases).unwrap();
    let ends = [
        ("fine", "attention", "", "", "pass"),
        (
            "deadlock_first",
            "attention",
            "\"--need\", \"2048\"",
            "",
            "deadlock/heap-ring",
        ),
        (
            "deadlock_bench",
            "attention",
            "\"--bench-need\", \"2048\"",
            "",
            "deadlock/heap-ring",
        ),
        ("not_a_number", "attention", "\"--output\", \"nan\"", "", "nan/output"),
        ("stalls", "attention", "\"--stall\"", "", "stall/S1"),
        (
            "drops_rings",
            "attention",
            "\"--need\", \"1\", \"--bench-need\", \"1\"",
            "env = { STANDIN_RUNTIME = \"retired\" }",
            "config-not-applied/ring-differs",
        ),
        (
            "unvalidated",
            "attention",
            "\"--no-golden\"",
            "",
            "no-verdict/validation-skipped",
        ),
        ("two_passes", "norm", "", "", "pass"),
        ("two_devices", "layer", "", "level = \"L3\"\nranks = 2", "pass"),
        (
            "two_devices_bench",
            "layer",
            "\"--bench-need\", \"2048\"",
            "level = \"L3\"\nranks = 2",
            "deadlock/heap-ring",
        ),
        (
            "misspelled",
            "layer",
            "\"--option\", \"ring_heaps\"",
            "level = \"L3\"\nranks = 2",
            "setup-error/configuration",
        ),
    ];
    let mut suite = SUITE.to_owned();
    for (name, program, args, extra, _) in ends {
        suite += &[
            "[[case]]\nname = \"",
            name,
            "\"\npypto = { program = \"models/deepseek_v4_pro/",
            program,
            ".py\", args = [",
            args,
            "] }\n",
            extra,
            "\n",
        ]
        .concat();
    }
    std::fs::write(cases.join("standin.toml"), suite).unwrap();
    let gate = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/gate.toml");
    std::fs::copy(gate, cases.join("gate.toml")).unwrap();
    let output = xtask(
        &cases,
        &["--results", results.to_str().unwrap(), "sweep", "--platform", "a2a3sim"],
    );
    assert!(results.join("runs").is_dir(), "{}", text(&output.stderr));
    let run = std::fs::read_dir(results.join("runs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let records = std::fs::read_to_string(run.join("records.jsonl")).unwrap();
    let mut found: Vec<(String, String)> = records
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|record| record.get("case").is_some())
        .map(|record| {
            let word = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
            let (outcome, cause) = (word("outcome"), word("cause"));
            let joined = if cause.is_empty() {
                outcome
            } else {
                format!("{outcome}/{cause}")
            };
            (word("case"), joined)
        })
        .collect();
    found.sort();
    let mut expected: Vec<(String, String)> = ends
        .iter()
        .map(|end| (format!("standin/{}", end.0), end.4.to_owned()))
        .collect();
    expected.sort();
    assert_eq!(found, expected, "{}\n{}", text(&output.stdout), text(&output.stderr));
}
