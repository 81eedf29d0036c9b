//! The launcher: this program started as `xtask __exec LIMIT PROGRAM ARGUMENT…`, which becomes PROGRAM.
//!
//! It does what must happen in the child but before the program: leave the terminal (a session of
//! its own), take the memory limit, and ask the kernel for KILL when the harness dies. Doing that
//! between fork and exec instead (`pre_exec`) would be unsafe code in the harness and would give up
//! `posix_spawn`; a second exec costs about a millisecond, and only foreign programs pay it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit, setsid};

use super::spawn;

/// The first argument that makes this program a launcher.
pub const WORD: &str = "__exec";

/// How the line begins that a launcher prints when the program could not be started; exit code 127 goes with it.
pub const FAILED: &str = "ringsweep-launcher: failed to start";

/// The exit code that goes with [`FAILED`].
pub const FAILED_CODE: u8 = 127;

/// Arguments of a launcher that becomes `program`; those of the program follow.
pub(super) fn arguments(program: &Path, memory_limit_bytes: Option<u64>) -> [OsString; 3] {
    let limit = memory_limit_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    [WORD.into(), limit.into(), program.into()]
}

/// Becomes the program that `arguments` (behind [`WORD`]) name; returns only when that failed.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(limit), Some(program)) = (arguments.next(), arguments.next()) else {
        return failed(Path::new("?"), "the launcher is called by the harness only");
    };
    let program = PathBuf::from(program);
    if let Err(error) = prepare(&limit.to_string_lossy()) {
        return failed(&program, &error.to_string());
    }
    let error = spawn::command(&program).args(arguments).exec();
    failed(&program, &error.to_string())
}

fn prepare(limit: &str) -> std::io::Result<()> {
    setsid()?;
    if let Ok(bytes) = limit.parse::<u64>() {
        setrlimit(
            Resource::As,
            Rlimit {
                current: Some(bytes),
                maximum: Some(bytes),
            },
        )?;
    }
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

fn failed(program: &Path, reason: &str) -> ExitCode {
    use std::io::Write;
    // Standard error is the case's log here; nobody is left to tell when it can't be written.
    let _ = writeln!(std::io::stderr(), "{FAILED} `{}`: {reason}", program.display());
    ExitCode::from(FAILED_CODE)
}
