//! `list` over a small workspace whose `kernel` binary is built, asked and broken for real.

use std::path::Path;

use xshell::{Shell, cmd};

const KERNEL: &str = r##"fn main() {
    println!(r#"[{{"name": "pair", "level": "L3", "ranks": 2, "params": [{{"name": "mode", "default": "a", "choices": ["a", "b"]}}]}}]"#);
}
"##;

/// A workspace with a package `kernels`, a binary `kernel` of this source, and one suite.
fn workspace(kernel: &str, suite: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"kernels\"]\n");
    write(
        "Cargo.lock",
        "version = 4\n\n[[package]]\nname = \"kernels\"\nversion = \"0.1.0\"\n",
    );
    write(
        "kernels/Cargo.toml",
        "[package]\nname = \"kernels\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[[bin]]\nname = \"kernel\"\npath = \"main.rs\"\n",
    );
    write("kernels/main.rs", kernel);
    write("cases/s.toml", suite);
    directory
}

/// Exit code, stdout and stderr of `list` in the workspace at `root`.
fn list(root: &Path) -> (i32, String, String) {
    let shell = Shell::new().unwrap();
    let program = env!("CARGO_BIN_EXE_xtask");
    let command = cmd!(shell, "{program} list")
        .env("CARGO_MANIFEST_DIR", root.join("xtask"))
        .env_remove("CARGO_TARGET_DIR");
    let output = command.ignore_status().quiet().output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const SUITE: &str = "[suite]\nname = \"s\"\n\n[[case]]\nname = \"one\"\nkernel = \"pair\"\nparams.mode = \"b\"\n";

#[test]
fn kernels_tell_levels_and_ranks() {
    let workspace = workspace(KERNEL, SUITE);
    let (code, out, err) = list(workspace.path());
    assert_eq!(code, 0, "{err}");
    let row: Vec<_> = out.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["s/one", "L3", "2"]);
    assert!(!err.contains("unchecked"), "{err}");
}

#[test]
fn kernels_and_parameters_that_do_not_exist_are_mistakes() {
    let suite = SUITE.replace("\"b\"", "\"c\"") + "\n[[case]]\nname = \"two\"\nkernel = \"piar\"\n";
    let workspace = workspace(KERNEL, &suite);
    let (code, _, err) = list(workspace.path());
    assert_eq!(code, 2);
    for part in [
        "did you mean `pair`?",
        "`c` is none of its values: a, b",
        "2 problems in 1 file",
    ] {
        assert!(err.contains(part), "{part} in {err}");
    }
}

#[test]
fn kernels_that_do_not_build_leave_a_listing_with_a_warning() {
    let workspace = workspace("fn main() { nothing() }", SUITE);
    let (code, out, err) = list(workspace.path());
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("s/one"));
    assert!(
        err.contains("warning: kernels and their parameters go unchecked: failed to build"),
        "{err}"
    );
    assert!(err.contains("cannot find function `nothing`"), "{err}");
}
