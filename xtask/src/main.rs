//! The `cargo xtask` command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::cmd::main(std::env::args_os()).into()
}
