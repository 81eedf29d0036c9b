//! The plan: what will be done, after suites, platform and command line are resolved.
//!
//! A plan holds no policy: every number that a runner, the dispatcher or a record needs stands in it.

mod case;
mod resolve;

pub use case::{Bench, Disposition, Level, PlannedCase};
pub use resolve::{PlanError, PlanRequest};

use std::fmt;

use crate::{case_id::CaseId, platform::Platform};

/// The content hash of the declared matrix: every case of the suites in scope, whatever is selected of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatrixHash(pub [u8; 32]);

impl fmt::Display for MatrixHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MatrixHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An ordered list of cases with all that it takes to run and judge them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The platform of the run.
    pub platform: Platform,
    /// The suites in scope, sorted.
    pub suites: Vec<String>,
    /// The hash of what those suites declare.
    pub matrix: MatrixHash,
    /// How many cases the suites in scope declare for this platform: the denominator.
    pub declared: usize,
    /// The selected cases, in declaration order within a suite, suites sorted by name.
    pub cases: Vec<PlannedCase>,
    /// Ids that were renamed: from, to.
    pub renamed: Vec<(CaseId, CaseId)>,
}

impl Plan {
    /// True when a filter left out declared cases.
    pub fn is_partial(&self) -> bool {
        self.cases.len() < self.declared
    }

    /// The cases that are to be started.
    pub fn runnable(&self) -> impl Iterator<Item = &PlannedCase> {
        self.cases.iter().filter(|case| case.disposition == Disposition::Run)
    }
}
