//! The embedded runner: the `kernel` binary of this repository, reporting through the line protocol.

use std::path::PathBuf;

use super::{Assignment, LaunchError, Observation, Runner};
use crate::outcome::{Budget, SetupCause};
use crate::plan::PlannedCase;
use crate::process::{ChildSpec, Ended, Environment, PhasePlan, TimeLimits};
use crate::protocol;
use crate::ring::Resource;
use crate::size::Bytes;
use crate::suite::runner::RunnerSpec;
use crate::turns::Pipes;

/// The stage whose begin ends the setup: from there on, dispatches run.
const FIRST_DISPATCH_STAGE: &str = "runtime";

/// Starts `kernel run …`.
#[derive(Clone, Debug)]
pub struct Embedded {
    binary: PathBuf,
    turns: Option<Pipes>,
}

impl Embedded {
    /// A runner that starts `binary`.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            turns: None,
        }
    }

    /// The same, with timed dispatches in turn with another program's.
    #[must_use]
    pub fn taking_turns(self, pipes: Pipes) -> Self {
        Self {
            turns: Some(pipes),
            ..self
        }
    }
}

impl Runner for Embedded {
    fn launch(&self, assignment: &Assignment<'_>) -> Result<ChildSpec, LaunchError> {
        let case = assignment.case;
        let RunnerSpec::Embedded(embedded) = &case.runner else {
            let message = format!("the embedded runner can't start a `{}` case", case.runner.kind());
            return Err(LaunchError {
                cause: SetupCause::Configuration,
                message,
            });
        };
        let paths = assignment.paths;
        let mut child = ChildSpec::new(&self.binary, assignment.root, &paths.log);
        child = child.args(["run", embedded.kernel.as_str()]);
        for (name, value) in &case.params {
            child = child.args(["--param".to_owned(), format!("{name}={value}")]);
        }
        for (name, value) in &embedded.tolerances {
            child = child.args(["--param".to_owned(), format!("{name}={value}")]);
        }
        let rings = case.rings.numbers();
        for resource in Resource::ALL {
            // The binary has no defaults: all twelve numbers are told, and come back in its report.
            child = child.args([
                format!("--ring-{}", resource.token().replace('_', "-")),
                rings.list(resource),
            ]);
        }
        child = child.args(["--seed".to_owned(), case.seed.to_string()]);
        child = child.args(["--warmup".to_owned(), case.bench.warmup.to_string()]);
        child = child.args(["--rounds".to_owned(), case.bench.rounds.to_string()]);
        child = child.args(["--case".to_owned(), case.id.to_string()]);
        child = child.args(["--report".into(), paths.report.clone().into_os_string()]);
        if let Some(pipes) = &self.turns {
            child = child.args(["--turns".to_owned(), pipes.argument()]);
            child.waits = pipes.waits.clone();
        }
        child.environment = environment(assignment);
        child.limits = limits(case);
        child.memory_limit_bytes = case.memory_limit.map(Bytes::get);
        child.phases = PhasePlan::setup_until_report(FIRST_DISPATCH_STAGE);
        child.report = Some(paths.report.clone());
        Ok(child)
    }

    fn observe(&self, assignment: &Assignment<'_>, _ended: &Ended, _log: &[u8]) -> Observation {
        // A report that can't be read back is as good as one that was never written.
        let bytes = std::fs::read(&assignment.paths.report).unwrap_or_default();
        Observation {
            report: Some(protocol::read(&bytes)),
            ..Observation::default()
        }
    }
}

/// The environment of a case: the allow-list, what the platform passes on and sets, what the case sets.
pub fn environment(assignment: &Assignment<'_>) -> Environment {
    let also: Vec<&str> = assignment.platform.env_pass.iter().map(String::as_str).collect();
    Environment::from_surroundings(std::env::vars_os(), &also)
        .with_all(assignment.platform.env.clone())
        .with_all(assignment.case.env.clone())
        .with("RINGSWEEP_CASE", assignment.case.id.as_str())
        .with("RINGSWEEP_REPORT", assignment.paths.report.clone())
}

/// The budgets of a case, all in force.
pub fn limits(case: &PlannedCase) -> TimeLimits {
    let of = |budget| Some(case.budgets.get(budget));
    TimeLimits {
        queue: of(Budget::Queue),
        setup: of(Budget::Setup),
        run: of(Budget::Run),
        silence: of(Budget::Silence),
        total: of(Budget::Total),
    }
}
