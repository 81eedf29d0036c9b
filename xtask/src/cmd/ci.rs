//! `cargo xtask ci`: the project's own checks.

use xshell::Shell;

use super::Context;
use crate::{
    ci::{self, CHECKS, CheckEnd},
    exit::Exit,
};

/// What `ci` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Run only this check (repeatable).
    #[arg(long, value_name = "CHECK")]
    pub only: Vec<String>,
    /// Leave out this check (repeatable).
    #[arg(long, value_name = "CHECK")]
    pub skip: Vec<String>,
    /// Go on after a check that failed.
    #[arg(long)]
    pub keep_going: bool,
    /// List the checks and run none.
    #[arg(long)]
    pub list: bool,
}

/// Runs the selected checks; the last line counts them.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    if args.list {
        for check in CHECKS {
            writeln!(context.out, "{:8} {}", check.name, check.shows)?;
        }
        return Ok(Exit::Pass);
    }
    let checks = ci::select(&args.only, &args.skip).map_err(|error| super::Failure::usage(error.to_string()))?;
    let sh = Shell::new()?;
    sh.change_dir(&context.root);
    let (mut passed, mut failed, mut not_run) = (0, Vec::new(), 0);
    for check in checks {
        writeln!(context.err, "ci: {}: {}", check.name, check.shows)?;
        match ci::run(&sh, check) {
            CheckEnd::Passed(took) => {
                passed += 1;
                writeln!(context.err, "ci: {}: passed ({:.1} s)", check.name, took.as_secs_f64())?;
            }
            CheckEnd::NotRun(why) => {
                not_run += 1;
                writeln!(context.err, "ci: {}: not run: {why}", check.name)?;
            }
            CheckEnd::Failed(why) => {
                failed.push(check.name);
                writeln!(context.err, "ci: {}: FAILED: {why}", check.name)?;
                if !args.keep_going {
                    break;
                }
            }
        }
    }
    if !failed.is_empty() {
        writeln!(context.err, "ci: failed: {}", failed.join(", "))?;
    }
    if passed + failed.len() == 0 {
        writeln!(context.err, "ci: nothing was checked")?;
    }
    writeln!(
        context.out,
        "checks: {passed} passed, {} failed, {not_run} skipped",
        failed.len()
    )?;
    Ok(match (passed, failed.len()) {
        (0, 0) => Exit::NothingSelected,
        (_, 0) => Exit::Pass,
        _ => Exit::GateFailed,
    })
}
