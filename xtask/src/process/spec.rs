//! What a child is to be started with.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::budget::{PhasePlan, TimeLimits};
use super::capture::OutputLimits;
use super::environment::Environment;
use super::waits::Waits;

/// Where a child stands towards the terminal and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Started directly, in a process group of its own. For programs of this repository, which leave the terminal alone.
    Group,
    /// Started through the launcher of [`super::launcher`]: a session of its own, so there is no
    /// terminal that it could read, grab or be stopped by; limits are in force before its first instruction.
    Session,
}

/// A child to be started and supervised.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// The program: a path, or a name that is looked up in the child's own `PATH`.
    pub program: PathBuf,
    /// Its arguments, without the program itself.
    pub arguments: Vec<OsString>,
    /// Where it runs.
    pub directory: PathBuf,
    /// All of its environment (a tag for its descendants is added).
    pub environment: Environment,
    /// Towards the terminal.
    pub placement: Placement,
    /// Limit of its address space in bytes; allocations beyond it fail. A child with a limit is started
    /// through the launcher, whatever its placement.
    pub memory_limit_bytes: Option<u64>,
    /// Time limits.
    pub limits: TimeLimits,
    /// When it waits for others, which no limit counts.
    pub waits: Waits,
    /// From TERM to KILL.
    pub grace: Duration,
    /// The phases that the budgets refer to.
    pub phases: PhasePlan,
    /// The file that receives its output.
    pub log: PathBuf,
    /// How much of the output is kept.
    pub output: OutputLimits,
    /// The report that it writes, if it does: watched for signs of life and of phases.
    pub report: Option<PathBuf>,
}

impl ChildSpec {
    /// Five seconds from TERM to KILL: enough to flush, short beside every budget.
    pub const GRACE: Duration = Duration::from_secs(5);

    /// A child with nothing but a program, a directory and a log: no limits, the allowed environment.
    pub fn new(program: impl Into<PathBuf>, directory: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: directory.into(),
            environment: Environment::allowed(),
            placement: Placement::Group,
            memory_limit_bytes: None,
            limits: TimeLimits::default(),
            waits: Waits::default(),
            grace: Self::GRACE,
            phases: PhasePlan::run_only(),
            log: log.into(),
            output: OutputLimits::STANDARD,
            report: None,
        }
    }

    /// The same with more arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }
}
