//! The `cargo xtask` command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = xtask::process::helper_role() {
        return code;
    }
    xtask::cmd::main(std::env::args_os()).into()
}
