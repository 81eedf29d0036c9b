//! The project's own checks, as data: what `cargo xtask ci`, `.ci/run` and the workflows run.
//!
//! A check is a few cargo commands, run through xshell. A check that needs a tool which isn't there
//! is *not run*, and says so: it never counts as passed.

use std::time::{Duration, Instant};

use xshell::{Shell, cmd};

/// Where a check is run, and what for.
#[derive(Debug)]
pub struct Check {
    /// Name for `--only` and `--skip`.
    pub name: &'static str,
    /// What it shows, one line.
    pub shows: &'static str,
    /// The tool that it needs beside cargo, as a cargo subcommand.
    needs: Option<&'static str>,
    /// Commands, run in order until one fails.
    commands: &'static [Command],
}

/// One command: a program's arguments and the environment that it needs on top.
#[derive(Debug)]
struct Command {
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

const fn cargo(args: &'static [&'static str]) -> Command {
    Command { args, env: &[] }
}

/// Every check, in the order in which it pays to fail.
pub const CHECKS: &[Check] = &[
    Check {
        name: "fmt",
        shows: "the sources are formatted",
        needs: None,
        commands: &[cargo(&["fmt", "--all", "--check"])],
    },
    Check {
        name: "clippy",
        shows: "no lint fires, in any target",
        needs: None,
        commands: &[cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])],
    },
    Check {
        name: "doc",
        shows: "the documentation builds without warnings",
        needs: None,
        commands: &[Command {
            args: &[
                "doc",
                "--workspace",
                "--no-deps",
                "--locked",
                "--document-private-items",
            ],
            env: &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")],
        }],
    },
    Check {
        name: "test",
        shows: "the tests pass",
        needs: None,
        commands: &[cargo(&["test", "--workspace", "--locked"])],
    },
    Check {
        name: "long",
        shows: "the composed programs pass at their least heaps and deadlock below, stage by stage",
        needs: None,
        commands: &[
            cargo(&[
                "test",
                "--locked",
                "-p",
                "kernels",
                "--features",
                "long",
                "--test",
                "decode_layers",
                "--test",
                "moe_prefill",
                "--test",
                "prefill_layers",
            ]),
            cargo(&[
                "test",
                "--locked",
                "-p",
                "kernels",
                "--features",
                "long",
                "--lib",
                "ops::forward",
            ]),
        ],
    },
    Check {
        name: "loom",
        shows: "the runtime's synchronisation holds in every interleaving of its models",
        needs: None,
        commands: &[Command {
            args: &[
                "test",
                "--release",
                "--locked",
                "-p",
                "ring-runtime",
                "--target-dir",
                "target/loom",
                "--lib",
                "models",
            ],
            env: &[("RUSTFLAGS", "--cfg loom")],
        }],
    },
    Check {
        name: "faults",
        shows: "the harness still sees every way in which a case can end",
        needs: None,
        commands: &[cargo(&["xtask", "sweep", "--suite", "faults"])],
    },
    Check {
        name: "sweep",
        shows: "a short real sweep passes against the committed baseline",
        needs: None,
        commands: &[cargo(&["xtask", "sweep", "--quick", "--no-confirm"])],
    },
    Check {
        name: "deny",
        shows: "no dependency has an advisory, a foreign source or an unknown licence",
        needs: Some("deny"),
        commands: &[cargo(&["deny", "--locked", "check"])],
    },
];

/// How one check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckEnd {
    /// All its commands succeeded.
    Passed(Duration),
    /// A command failed.
    Failed(String),
    /// It could not be run here.
    NotRun(String),
}

/// Runs one check; its output goes where ours goes.
pub fn run(sh: &Shell, check: &Check) -> CheckEnd {
    if let Some(tool) = check.needs {
        let found = cmd!(sh, "cargo {tool} --version")
            .quiet()
            .ignore_stdout()
            .ignore_stderr()
            .run()
            .is_ok();
        if !found {
            return CheckEnd::NotRun(format!(
                "`cargo {tool}` is not installed: `cargo install cargo-{tool} --locked`"
            ));
        }
    }
    let start = Instant::now();
    for command in check.commands {
        let args = command.args;
        let run = cmd!(sh, "cargo {args...}").envs(command.env.iter().copied());
        if let Err(error) = run.run() {
            return CheckEnd::Failed(error.to_string());
        }
    }
    CheckEnd::Passed(start.elapsed())
}

/// Why a selection of checks is none.
#[derive(Debug, thiserror::Error)]
#[error("unknown check `{name}`; checks are {}", CHECKS.iter().map(|check| check.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownCheck {
    name: String,
}

/// The checks that `only` and `skip` leave, in order; empty `only` means all.
pub fn select(only: &[String], skip: &[String]) -> Result<Vec<&'static Check>, UnknownCheck> {
    for name in only.iter().chain(skip) {
        if !CHECKS.iter().any(|check| check.name == *name) {
            return Err(UnknownCheck { name: name.clone() });
        }
    }
    let wanted = |check: &&Check| {
        (only.is_empty() || only.iter().any(|name| name == check.name)) && !skip.iter().any(|name| name == check.name)
    };
    Ok(CHECKS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_keeps_the_order_and_refuses_unknown_names() {
        let names = |only: &[&str], skip: &[&str]| {
            let own = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
            select(&own(only), &own(skip)).map(|checks| checks.iter().map(|c| c.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["test", "fmt"], &[]).unwrap(), ["fmt", "test"]);
        assert!(!names(&[], &["test"]).unwrap().contains(&"test"));
        assert!(names(&["tests"], &[]).unwrap_err().to_string().contains("fmt, clippy"));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
    }
}
