//! Exit codes of `cargo xtask`: the one place that numbers them.

use std::process::ExitCode;

/// How a command ended, as its caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All that was asked for holds.
    Pass = 0,
    /// The gate failed: something regressed, or a check found a difference.
    GateFailed = 1,
    /// Bad command line, suite, rule or gate file.
    Usage = 2,
    /// The run lacks records for declared cases.
    Incomplete = 3,
    /// No case matches the selection: nothing was measured.
    NothingSelected = 4,
    /// The two sides can't be compared (different matrix, platform or format).
    NotComparable = 5,
    /// A defect of the harness, or a failure of its surroundings (disk full, no permission).
    Internal = 70,
    /// Stopped by a signal; what had finished is recorded.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
