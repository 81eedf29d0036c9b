//! `cargo xtask list` as a process.

use std::path::Path;

use xshell::{Shell, cmd};

/// A workspace's `cases` with one suite of programs, so that no kernel has to be built.
fn cases(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("programs.toml"), text).unwrap();
    directory
}

const PROGRAMS: &str = r#"
[suite]
name = "programs"

[defaults]
runner = "command"
command = { argv = ["true", "{ring_heap}"], rings = { via = "argv" } }

[[case]]
name = "one"
tags = ["decode", "attention"]
memory = "1536MiB"
params = { layers = 2 }
ring.heap = [0, "1GiB", 0, 0]

[[case]]
name = "two"
level = "L3"
ranks = 2
skip = { on = ["host"], reason = "needs two cards" }

[[case]]
name = "three"
tags = ["decode"]
expect = { outcome = "deadlock", cause = "heap-ring", ring = 1, issue = "issue 3", until = "2027-01-31" }
"#;

/// Exit code, stdout and stderr of `list` with `args`.
fn list(cases: &Path, args: &[&str]) -> (i32, String, String) {
    let shell = Shell::new().unwrap();
    let program = env!("CARGO_BIN_EXE_xtask");
    let output = cmd!(shell, "{program} list --cases {cases} {args...}")
        .ignore_status()
        .quiet()
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_table_says_what_is_skipped_and_why() {
    let directory = cases(PROGRAMS);
    let (code, out, err) = list(directory.path(), &[]);
    assert_eq!(code, 0, "{err}");
    insta::assert_snapshot!("list_table", out);
    assert!(
        err.starts_with("3 of 3 cases on platform `host`, 1 skipped, suites programs, matrix "),
        "{err}"
    );
}

#[test]
fn json_holds_everything_that_a_plan_knows() {
    let directory = cases(PROGRAMS);
    let (code, out, _) = list(
        directory.path(),
        &["--format", "json", "three", "one", "--ring-heap", "0,0,2GiB,0"],
    );
    assert_eq!(code, 0);
    insta::with_settings!({filters => vec![(r#""matrix_hash": "[0-9a-f]{64}""#, r#""matrix_hash": "[hash]""#)]}, {
        insta::assert_snapshot!("list_json", out);
    });
}

#[test]
fn filters_narrow_and_nothing_left_is_an_error_of_its_own() {
    let directory = cases(PROGRAMS);
    let selected = |args: &[&str]| {
        let (code, out, err) = list(directory.path(), args);
        let ids = out
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect::<Vec<_>>();
        (code, ids, err)
    };
    assert_eq!(selected(&["--tag", "decode"]).1, ["programs/one", "programs/three"]);
    assert_eq!(selected(&["--tag", "decode", "--tag", "attention"]).1, ["programs/one"]);
    assert_eq!(selected(&["programs/t*", "--skip", "two"]).1, ["programs/three"]);
    let (code, ids, err) = selected(&["threee"]);
    assert_eq!((code, ids.len()), (4, 0));
    assert!(err.contains("`threee` matches no id; near: programs/three"), "{err}");
    let (code, _, err) = selected(&["--platform", "a9"]);
    assert_eq!(code, 2);
    assert!(err.contains("unknown platform `a9`"), "{err}");
}

#[test]
fn all_mistakes_of_all_files_are_told_at_once() {
    let directory = cases(
        "[suite]\nname = \"programs\"\n\n[[case]]\nname = \"a\"\nrunner = \"command\"\ncommand.argv = [\"x\"]\nring.heep = 1\n",
    );
    std::fs::write(
        directory.path().join("platforms.toml"),
        "[platform.card]\nrunner = \"slurm\"\n",
    )
    .unwrap();
    let (code, out, err) = list(directory.path(), &[]);
    assert_eq!((code, out.as_str()), (2, ""));
    for part in [
        "platforms.toml:2:10",
        "programs.toml:8:6",
        "did you mean `heap`?",
        "2 problems in 2 files",
    ] {
        assert!(err.contains(part), "{part} in {err}");
    }
}

#[test]
fn rules_that_can_not_be_had_are_a_mistake_of_the_suite() {
    let directory = cases(&PROGRAMS.replace("argv = [\"true\"", "rules = \"simple\", argv = [\"true\""));
    let (code, _, err) = list(directory.path(), &[]);
    assert_eq!(code, 2);
    for part in [
        "unknown rule set `simple`",
        "did you mean `simpler`?",
        "1 problem in 1 file",
    ] {
        assert!(err.contains(part), "{part} in {err}");
    }
}

#[test]
fn help_is_complete() {
    let directory = cases(PROGRAMS);
    let (code, out, _) = list(directory.path(), &["--help"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!("list_help", out);
}
