//! Runners: how a planned case becomes a child process, and what is read from what it left.
//!
//! A runner starts nothing itself; it says what to start ([`Runner::launch`]) and afterwards what
//! its own channels show ([`Runner::observe`]). Judging is [`crate::verdict`]'s matter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::outcome::{Outcome, SetupCause};
use crate::plan::{Plan, PlannedCase};
use crate::platform::Platform;
use crate::process::{ChildSpec, Ended};
use crate::protocol::{Damage, Report};
use crate::record::{Evidence, Latency, ResourceSizes};
use crate::suite::runner::RunnerKind;

pub mod command;
pub mod embedded;
pub mod pypto;
mod reading;
mod samples;

/// One attempt of a case, with everything that it was given.
#[derive(Clone, Copy, Debug)]
pub struct Assignment<'a> {
    /// The case.
    pub case: &'a PlannedCase,
    /// The platform of the run.
    pub platform: &'a Platform,
    /// Ids of the devices that it holds; empty on platforms without.
    pub devices: &'a [u32],
    /// The workspace root.
    pub root: &'a Path,
    /// Where its files go.
    pub paths: &'a AttemptPaths,
}

/// The files of one attempt; they exist in no other attempt's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptPaths {
    /// Raw output.
    pub log: PathBuf,
    /// The report; created empty before the child starts if its [`ChildSpec::report`] is set.
    pub report: PathBuf,
    /// A directory for whatever else the child needs or writes: a runner that uses it creates it, and
    /// it is removed afterwards.
    pub scratch: PathBuf,
}

/// Why a case can't be started as declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LaunchError {
    /// Cause of the `setup-error`.
    pub cause: SetupCause,
    /// One sentence.
    pub message: String,
}

/// What a runner's own channels show of an attempt that has ended.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// The report, and what is wrong with it; `None` for a runner without.
    pub report: Option<(Report, Option<Damage>)>,
    /// What the log shows, by the rules of the case: the outcome and its evidence.
    pub finding: Option<(Outcome, Evidence)>,
    /// Every effective ring config that was read back from somewhere else than the report.
    pub effective: Vec<ResourceSizes>,
    /// Samples from somewhere else than the report.
    pub latency: Option<Latency>,
}

/// How cases of one kind are started and read.
pub trait Runner: Send + Sync {
    /// What to start for `assignment`; its log, report and limits are the runner's to set.
    fn launch(&self, assignment: &Assignment<'_>) -> Result<ChildSpec, LaunchError>;

    /// What the attempt shows, now that it has `ended` and left `log`.
    fn observe(&self, assignment: &Assignment<'_>, ended: &Ended, log: &[u8]) -> Observation;
}

/// The runners of a plan, by kind.
pub type Runners = BTreeMap<RunnerKind, Box<dyn Runner>>;

/// Why a plan has a case that nobody can start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` needs the `kernel` binary")]
pub struct NoBinary(String);

/// A runner for every kind of case that `plan` starts; `cases` is the directory of the suites, `kernel`
/// the built binary, where there is one.
pub fn of_plan(plan: &Plan, cases: &Path, kernel: Option<&Path>) -> Result<Runners, NoBinary> {
    let mut runners = Runners::new();
    for case in plan.runnable() {
        let kind = case.runner.kind();
        if runners.contains_key(&kind) {
            continue;
        }
        let runner: Box<dyn Runner> = match kind {
            RunnerKind::Embedded => {
                let binary = kernel.ok_or_else(|| NoBinary(case.id.to_string()))?;
                Box::new(embedded::Embedded::new(binary))
            }
            RunnerKind::Pypto => Box::new(pypto::Pypto::new(cases)),
            RunnerKind::Command => Box::new(command::Command::new(cases)),
        };
        runners.insert(kind, runner);
    }
    Ok(runners)
}
