//! The harness with one detector switched off: `blindfold DETECTOR COMMAND…`; without arguments, the names of all.
//!
//! It is the whole command line of `xtask`, for tests alone: `xtask::detector` says why this is a program.

use std::process::ExitCode;

use xtask::detector::Detector;

fn main() -> ExitCode {
    if let Some(code) = xtask::process::helper_role() {
        return code;
    }
    let mut arguments = std::env::args_os();
    let (program, name) = (arguments.next(), arguments.next());
    let Some(name) = name else {
        return list();
    };
    let Some(detector) = Detector::from_name(&name.to_string_lossy()) else {
        return ExitCode::from(2);
    };
    #[expect(clippy::disallowed_methods, reason = "this program is the test build")]
    xtask::detector::blind(detector);
    xtask::cmd::main(program.into_iter().chain(arguments)).into()
}

fn list() -> ExitCode {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let told = Detector::all()
        .iter()
        .try_for_each(|detector| writeln!(out, "{detector}"));
    told.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
