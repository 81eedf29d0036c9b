//! The workflows say what the command line understands, and may do no more than they need.

use std::path::Path;

use clap::Parser as _;
use xtask::cli::Cli;

/// Every workflow: its name and text.
fn workflows() -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows");
    let entries = std::fs::read_dir(dir).unwrap();
    let mut found: Vec<(String, String)> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    found.sort();
    assert!(found.len() >= 3);
    found
}

/// Lines of `run` steps.
fn script_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut block: Option<usize> = None;
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let trimmed = line.trim();
        if let Some(of) = block {
            if depth > of || trimmed.is_empty() {
                lines.push(trimmed.to_owned());
                continue;
            }
            block = None;
        }
        match trimmed.trim_start_matches("- ").strip_prefix("run:") {
            Some(rest) if matches!(rest.trim(), "|" | ">") => block = Some(depth),
            Some(rest) => lines.push(rest.trim().to_owned()),
            None => {}
        }
    }
    lines
}

#[test]
fn every_command_is_one_that_the_command_line_understands() {
    let mut seen = 0;
    for (name, text) in workflows() {
        for line in script_lines(&text) {
            let Some(at) = line.find("cargo xtask ") else {
                continue;
            };
            let command = line[at + "cargo xtask ".len()..].to_owned();
            // What the shell makes of the rest is not for the command.
            let command = command.split(" || ").next().unwrap().split(" >> ").next().unwrap();
            let words = command
                .replace("\"$SHARD\"", "1/2")
                .replace("shards/*", "shards/a shards/b")
                .replace('"', "");
            let words = std::iter::once("xtask".to_owned()).chain(words.split_whitespace().map(str::to_owned));
            let parsed = Cli::try_parse_from(words);
            assert!(parsed.is_ok(), "{name}: `{line}`: {}", parsed.unwrap_err());
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} commands were found");
}

#[test]
fn actions_are_pinned_and_permissions_are_least() {
    for (name, text) in workflows() {
        assert!(text.contains("permissions:\n  contents: read\n"), "{name}");
        assert!(
            !text.contains(": write") && !text.contains("write-all"),
            "{name} may write"
        );
        assert!(
            !text.contains("pull_request_target"),
            "{name} runs with secrets on foreign code"
        );
        for line in text.lines().map(str::trim).filter(|line| line.contains("uses:")) {
            let pin = line.split('@').nth(1).unwrap_or_default();
            let pin = pin.split_whitespace().next().unwrap_or_default();
            let is_commit = pin.len() == 40 && pin.chars().all(|c| c.is_ascii_hexdigit());
            assert!(is_commit, "{name}: `{line}` is not pinned to a commit");
        }
        let checkouts = text.matches("actions/checkout@").count();
        assert_eq!(text.matches("persist-credentials: false").count(), checkouts, "{name}");
        let jobs = text.matches("runs-on:").count();
        assert_eq!(
            text.matches("timeout-minutes:").count(),
            jobs,
            "{name}: a job without a limit"
        );
        // An expression within a script would be code of whoever chose its value.
        for line in script_lines(&text) {
            assert!(!line.contains("${{"), "{name}: `{line}`");
        }
    }
}

#[test]
fn what_is_published_is_of_this_run() {
    for (name, text) in workflows() {
        for line in script_lines(&text).iter().filter(|line| line.contains("cargo xtask ")) {
            if line.contains("xtask gate") || line.contains("xtask report") {
                assert!(line.contains("--expect-run"), "{name}: `{line}` may be of another run");
            }
        }
        let mut kept = text.split("actions/upload-artifact@").skip(1);
        assert!(
            kept.all(|step| {
                let name = step.lines().find(|line| line.trim().starts_with("name:"));
                name.is_some_and(|name| name.contains("github.run_id") || name.contains("outputs.run"))
            }),
            "{name}: an artifact without the run's id"
        );
    }
}
