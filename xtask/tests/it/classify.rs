//! `classify`: whole logs of our own making, one per form that a runtime or a program is known to print.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use proptest::prelude::*;
use xtask::classify::{self, Context, EndStatus, RuleSet, index};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/logs")
}

fn rules() -> RuleSet {
    classify::load("pypto", Path::new("none")).unwrap()
}

fn entries() -> Vec<(index::Entry, Vec<u8>)> {
    let text = std::fs::read_to_string(fixtures().join("INDEX.tsv")).unwrap();
    let read = |entry: index::Entry| (entry.clone(), std::fs::read(fixtures().join(&entry.file)).unwrap());
    index::parse(&text).unwrap().into_iter().map(read).collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test of the command line starts the command line"
)]
fn xtask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("classify")
        .args(arguments)
        .current_dir(fixtures())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_log_of_the_index_is_read_right() {
    let output = xtask(&["--index", "INDEX.tsv"]);
    assert_eq!(text(&output.stderr), "80 logs, 80 compared, 0 disagreements\n");
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!("confusion", text(&output.stdout));
}

#[test]
fn variations_of_real_logs_are_read_right() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/variations.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let rules = rules();
    let (mut read, mut wrong) = (0, Vec::new());
    for section in text.split("\n== ").skip(1) {
        let (head, log) = section.split_once('\n').unwrap();
        let [name, code, truth] = head.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("`{head}` is no head");
        };
        let log = log.replace("\\e", "\u{1b}").replace("\\r", "\r");
        let log = log.strip_suffix('\\').map_or(format!("{log}\n"), str::to_owned);
        let context = Context {
            status: Some(EndStatus::Exited(code.parse().unwrap())),
            command: None,
        };
        let found = rules.classify(log.as_bytes(), &context);
        if found.outcome.to_string() != truth {
            wrong.push(format!(
                "{name}: truly {truth}, found {} by {:?}",
                found.outcome, found.rule
            ));
        }
        // What went wrong is quoted, unless nothing but the status says so.
        assert!(
            !found.evidence.lines.is_empty() || found.evidence.source == "exit-status" || truth == "timeout/total",
            "{name}"
        );
        read += 1;
    }
    assert!(read > 80 && wrong.is_empty(), "{read} read\n{}", wrong.join("\n"));
}

#[test]
fn every_failure_quotes_a_line_or_is_judged_by_its_status() {
    let rules = rules();
    for (entry, log) in entries() {
        let finding = rules.classify(&log, &entry.context());
        let quoted = !finding.evidence.lines.is_empty();
        assert!(
            quoted || finding.rule.is_none() || finding.evidence.source.starts_with("rule:outer"),
            "{entry:?}"
        );
        assert!(!finding.evidence.summary.is_empty(), "{entry:?}");
        let log = String::from_utf8_lossy(&log).into_owned();
        for line in &finding.evidence.lines {
            assert!(log.lines().count() as u64 >= line.line, "{entry:?}");
        }
    }
}

#[test]
fn a_wrong_truth_is_a_disagreement_and_the_name_of_the_file_is_no_hint() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(fixtures().join("flow-control.log"), directory.path().join("pass.log")).unwrap();
    let index = directory.path().join("i.tsv");
    std::fs::write(
        &index,
        "file\texit_code\toutcome\tcause\npass.log\t1\tdeadlock\theap-ring\n",
    )
    .unwrap();
    let output = xtask(&["--index", index.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.starts_with("pass.log: truly deadlock/heap-ring, found deadlock/flow-control"),
        "{told}"
    );
    std::fs::write(&index, "file\texit_code\npass.log\t1\n").unwrap();
    assert_eq!(xtask(&["--index", index.to_str().unwrap()]).status.code(), Some(0));
    std::fs::write(&index, "name\texit_code\n").unwrap();
    assert_eq!(xtask(&["--index", index.to_str().unwrap()]).status.code(), Some(2));
}

#[test]
fn a_log_is_explained_as_json_and_as_text() {
    let files = [
        "heap-then-abort.log",
        "stall-S3.log",
        "run-nan-beats-mismatch.log",
        "run-two-modes.log",
    ];
    let output = xtask(&[&["--format", "json", "--status", "exit:1"], &files[..]].concat());
    assert_eq!(output.status.code(), Some(0));
    let objects: Vec<serde_json::Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects[0]["outcome"], "deadlock");
    assert_eq!(objects[0]["ring"], 1);
    assert_eq!(objects[0]["code"], 2);
    assert_eq!(objects[1]["ring"], 2);
    assert_eq!(objects[3]["benchmarks"][0]["mode"], "norm decode");
    assert_eq!(objects[3]["benchmarks"][1]["median_us"], 128.0);
    insta::assert_snapshot!(
        "explained",
        text(&xtask(&[&["--status", "exit:1"], &files[..]].concat()).stdout)
    );
}

#[test]
fn mistakes_in_a_rule_file_are_shown_where_they_stand() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    let rules = "extends = [\"simpler\"]\n\n[[rule]]\nname = \"mine\"\nclass = \"rot\"\npattern = 'boom'\noutcome = \"crash\"\ncause = \"exit-0\"\n";
    std::fs::write(&file, rules).unwrap();
    let output = xtask(&["--rules", file.to_str().unwrap(), "flow-control.log"]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr).replace(file.to_str().unwrap(), "mine.toml");
    insta::assert_snapshot!("rule_mistakes", told);
    let unknown = xtask(&["--rules", "nowhere", "flow-control.log"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("built in are simpler, pypto"));
}

#[test]
fn own_rules_extend_the_built_in_ones() {
    let cases = tempfile::tempdir().unwrap();
    std::fs::create_dir(cases.path().join("rules")).unwrap();
    let rules = "extends = [\"simpler\"]\n[[rule]]\nname = \"boom\"\nclass = \"root\"\npattern = '^boom (?<code>\\d+)'\noutcome = \"device-fault\"\ncause = \"boom-{code}\"\nexample = \"boom 3\"\n";
    std::fs::write(cases.path().join("rules/mine.toml"), rules).unwrap();
    let rules = classify::load("mine", cases.path()).unwrap();
    let found = |log: &str| rules.classify(log.as_bytes(), &Context::default());
    assert_eq!(
        found("x\n[ERROR] f: [a.c:1] boom 7\n").outcome.to_string(),
        "device-fault/boom-7"
    );
    let heap = std::fs::read(fixtures().join("heap-then-abort.log")).unwrap();
    assert_eq!(
        rules.classify(&heap, &Context::default()).outcome.to_string(),
        "deadlock/heap-ring"
    );
}

#[test]
fn a_budget_that_ran_out_is_the_cause_only_where_the_log_knows_none() {
    let rules = rules();
    let about = Context {
        status: Some("timeout:silence".parse().unwrap()),
        command: None,
    };
    let of = |name: &str| {
        rules
            .classify(&std::fs::read(fixtures().join(name)).unwrap(), &about)
            .outcome
            .to_string()
    };
    assert_eq!(of("hang-silent.log"), "timeout/silence");
    assert_eq!(of("run-pass.log"), "timeout/silence");
    assert_eq!(of("stall-outer-limit.log"), "stall/S1");
}

/// Everything that differs between platforms, releases and runs: threads, clocks, files, lines, addresses.
fn disguise(log: &[u8], salt: u64) -> Vec<u8> {
    let mut seed = salt | 1;
    let mut next = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let text = String::from_utf8_lossy(log).into_owned();
    let patterns = [
        r"\[mono_ns=\d+\]",
        r"\[T0x[0-9a-f]+\]",
        r"\[[\w./-]+:\d+\]",
        r"Thread \d+:",
        r"thread=\d+",
    ];
    let mut text = text;
    for pattern in patterns {
        let pattern = regex::Regex::new(pattern).unwrap();
        text = pattern
            .replace_all(&text, |found: &regex::Captures<'_>| {
                let n = next();
                match &found[0] {
                    clock if clock.starts_with("[mono") => format!("[mono_ns={n}]"),
                    thread if thread.starts_with("[T0x") => format!("[T0x{n:x}]"),
                    thread if thread.starts_with("Thread") => format!("Thread {}:", n % 64),
                    thread if thread.starts_with("thread") => format!("thread={}", n % 64),
                    _ => format!("[other_{n}.cpp:{}]", n % 5000),
                }
            })
            .into_owned();
    }
    text.into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn threads_clocks_and_places_in_the_source_do_not_matter(salt: u64) {
        let rules = rules();
        for (entry, log) in entries() {
            let plain = rules.classify(&log, &entry.context());
            let other = rules.classify(&disguise(&log, salt), &entry.context());
            prop_assert_eq!((plain.outcome, plain.rule), (other.outcome, other.rule), "{}", entry.file);
        }
    }

    #[test]
    fn lines_of_other_programs_do_not_matter(lines in prop::collection::vec("[a-z ,.%]{0,60}", 1..20)) {
        let rules = rules();
        let noise = lines.join("\n") + "\n";
        for (entry, log) in entries() {
            let plain = rules.classify(&log, &entry.context());
            let around = [noise.as_bytes(), &log, noise.as_bytes()].concat();
            prop_assert_eq!(plain.outcome, rules.classify(&around, &entry.context()).outcome, "{}", entry.file);
        }
    }

    #[test]
    fn random_bytes_are_survived_and_quoted_within_bounds(
        bytes in prop::collection::vec(any::<u8>(), 0..4000),
        code in 0i32..256,
    ) {
        let context = Context { status: Some(EndStatus::Exited(code)), command: None };
        let finding = rules().classify(&bytes, &context);
        prop_assert!(finding.outcome != xtask::outcome::Outcome::Pass);
        prop_assert!(finding.evidence.lines.len() <= xtask::record::MAX_LINES);
    }

    #[test]
    fn shuffled_pieces_of_real_lines_are_survived(pick in prop::collection::vec((0usize..80, 0usize..4000, 0usize..300), 0..40)) {
        let rules = rules();
        let entries = entries();
        let mut log = Vec::new();
        for (file, start, length) in pick {
            let from = &entries[file].1;
            let start = start.min(from.len());
            log.extend_from_slice(&from[start..(start + length).min(from.len())]);
            log.push(b'\n');
        }
        let finding = rules.classify(&log, &Context::default());
        for line in &finding.evidence.lines {
            prop_assert!(line.text.len() <= xtask::record::MAX_LINE_BYTES);
        }
    }
}
