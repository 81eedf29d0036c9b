//! Runs one case of one kernel and reports how it ended.

mod cli;
mod convert;
mod hash;
mod human;
mod list;
mod memory;
mod report;
mod run;
mod turns;
mod verdict;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
