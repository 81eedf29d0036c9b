//! The `pypto` runner: one program of a pypto-lib checkout, started through an entry of ours.
//!
//! The entry (`entry.py`, beside this file) wraps the harness calls of the checkout in memory, so that the ring config
//! of the case reaches every dispatch, and reports through the line protocol. Nothing in the checkout is changed.

use std::path::{Path, PathBuf};

use super::command::{devices, refuse, value};
use super::embedded::limits;
use super::reading::{self, Rules};
use super::{Assignment, LaunchError, Observation, Runner};
use crate::classify::{BenchReport, Context, parse_scope_stats};
use crate::launcher;
use crate::outcome::{NoVerdictCause, Outcome, SetupCause};
use crate::process::{ChildSpec, Ended, Environment, Phase, PhasePlan, Placement, Sign};
use crate::record::{Clock, Evidence, EvidenceLine, Latency, ResourceSizes};
use crate::ring::Resource;
use crate::size::Bytes;
use crate::suite::runner::{PyptoSpec, RunnerSpec, ScopeStats};

/// The entry, as it is written into each attempt's own directory.
const ENTRY: &str = include_str!("pypto/entry.py");

/// Variable of the platform, the case or the caller that names the checkout.
pub const CHECKOUT: &str = "PYPTO_LIB";

/// Variable that names the interpreter; `python3` without it.
pub const PYTHON: &str = "PYPTO_PYTHON";

/// The stage whose begin ends the setup.
const FIRST_DISPATCH_STAGE: &str = "runtime";

/// Variables that no case may set: they would stand beside the ring config that is forced.
const RING_VARIABLES: &str = "PTO2_RING_";

/// Variables of a simulator or device installation that programs need.
const INSTALLATION: &[&str] = &[
    "ASCEND_HOME_PATH",
    "ASCEND_TOOLKIT_HOME",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
];

/// Starts programs of a checkout.
#[derive(Clone, Debug)]
pub struct Pypto {
    rules: Rules,
}

impl Pypto {
    /// A runner whose rule sets stand under `cases`.
    pub fn new(cases: &Path) -> Self {
        Self {
            rules: Rules::of(cases),
        }
    }
}

impl Runner for Pypto {
    fn launch(&self, assignment: &Assignment<'_>) -> Result<ChildSpec, LaunchError> {
        let spec = spec(assignment)?;
        let checkout = checkout(assignment)?;
        let case = assignment.case;
        if let Some(name) = case.env.keys().find(|name| name.starts_with(RING_VARIABLES)) {
            let message =
                format!("the case sets `{name}`; its ring config goes into `rings`, which reaches every dispatch");
            return Err(refuse(SetupCause::Configuration, message));
        }
        let scratch = &assignment.paths.scratch;
        let (entry, config) = (scratch.join("entry.py"), scratch.join("case.json"));
        write(&entry, ENTRY)?;
        write(&config, &entry_config(spec, assignment, &checkout)?.to_string())?;
        let python = setting(assignment, PYTHON).unwrap_or_else(|| "python3".into());
        let python = if python.contains('/') {
            assignment.root.join(python)
        } else {
            python.into()
        };
        let mut child = ChildSpec::new(python, &checkout, &assignment.paths.log);
        child = child.args(["-u".into(), entry.into_os_string(), config.into_os_string()]);
        child.environment = environment(assignment);
        child.placement = Placement::Session;
        child.limits = limits(case);
        child.memory_limit_bytes = case.memory_limit.map(Bytes::get);
        child.phases = PhasePlan {
            first: Phase::Setup,
            signs: vec![(Phase::Run, Sign::ReportStage(FIRST_DISPATCH_STAGE.into()))],
        };
        child.report = Some(assignment.paths.report.clone());
        launcher::place(child, assignment)
    }

    fn observe(&self, assignment: &Assignment<'_>, ended: &Ended, log: &[u8]) -> Observation {
        let Ok(rules) = self.rules.load("pypto") else {
            return Observation::default();
        };
        let resolved = launcher::resolve(assignment, reading::status(ended), log);
        let context = Context {
            status: Some(resolved.status.clone()),
            command: None,
        };
        let (mut observation, finding) = reading::observe(assignment, &rules, &context, log);
        launcher::add(&mut observation, resolved);
        observation.effective = finding.effective.into_iter().map(|(_, sizes)| sizes).collect();
        if let Some(directory) = scope_stats(assignment) {
            let passed = matches!(observation.finding, Some((Outcome::Pass, _)));
            match read_scope_stats(&directory) {
                Ok(sizes) => observation.effective.extend(sizes),
                // A run that failed writes none on the simulator.
                Err(why) if passed => {
                    let evidence = Evidence {
                        summary: format!("the rings in force can't be read back: {why}"),
                        source: "read-back".into(),
                        ..Evidence::default()
                    };
                    observation.finding = Some((Outcome::NoVerdict(NoVerdictCause::Unreadable), evidence));
                }
                Err(_) => {}
            }
        }
        match latency(&finding.benches) {
            Ok(latency) => observation.latency = latency,
            Err(evidence) => {
                if matches!(observation.finding, Some((Outcome::Pass, _))) {
                    observation.finding = Some((Outcome::NoVerdict(NoVerdictCause::Unreadable), *evidence));
                }
            }
        }
        observation
    }
}

/// Where the dispatches of this attempt write scope statistics, if they are to.
fn scope_stats(assignment: &Assignment<'_>) -> Option<PathBuf> {
    let on = spec(assignment).is_ok_and(|spec| spec.scope_stats == ScopeStats::On);
    on.then(|| assignment.paths.scratch.join("scope"))
}

/// The sizes in the first line of every statistics file under `directory`; the names of the directories between carry
/// a time stamp.
fn read_scope_stats(directory: &Path) -> Result<Vec<ResourceSizes>, String> {
    let (mut open, mut sizes) = (vec![directory.to_owned()], Vec::new());
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            if kind.is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if entry.file_name() == "scope_stats.jsonl" {
                let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
                sizes.push(parse_scope_stats(&bytes).map_err(|error| error.to_string())?);
            }
        }
    }
    if sizes.is_empty() {
        return Err("no dispatch wrote scope statistics".into());
    }
    Ok(sizes)
}

/// The timed dispatches of a program with one benchmark; none where there are several, since which of them the case
/// means can't be told.
fn latency(benches: &[BenchReport]) -> Result<Option<Latency>, Box<Evidence>> {
    let [bench] = benches else { return Ok(None) };
    match bench.samples() {
        Ok(samples) => Ok(Latency::new(Clock::Device, samples)),
        Err(error) => Err(Box::new(Evidence {
            summary: format!("a sample can't be read: {error}"),
            source: "samples".into(),
            lines: vec![EvidenceLine {
                line: bench.line,
                text: "the benchmark that ends here".into(),
            }],
            ..Evidence::default()
        })),
    }
}

fn spec<'a>(assignment: &Assignment<'a>) -> Result<&'a PyptoSpec, LaunchError> {
    match &assignment.case.runner {
        RunnerSpec::Pypto(spec) => Ok(spec),
        other @ (RunnerSpec::Embedded(_) | RunnerSpec::Command(_)) => Err(refuse(
            SetupCause::Configuration,
            format!("the pypto runner can't start a `{}` case", other.kind()),
        )),
    }
}

/// A setting of the case, the platform or the caller, in that order.
fn setting(assignment: &Assignment<'_>, name: &str) -> Option<String> {
    let declared = assignment
        .case
        .env
        .get(name)
        .or_else(|| assignment.platform.env.get(name));
    declared.cloned().or_else(|| std::env::var(name).ok())
}

fn checkout(assignment: &Assignment<'_>) -> Result<PathBuf, LaunchError> {
    let path = setting(assignment, CHECKOUT).ok_or_else(|| {
        let message = format!("no pypto-lib checkout: set `{CHECKOUT}` in the platform's `env` or in the environment");
        refuse(SetupCause::Environment, message)
    })?;
    let path = assignment.root.join(path);
    if !path.join("golden").is_dir() {
        let message = format!("`{}` is no pypto-lib checkout: it has no `golden`", path.display());
        return Err(refuse(SetupCause::Environment, message));
    }
    Ok(path)
}

fn environment(assignment: &Assignment<'_>) -> Environment {
    let also: Vec<&str> = INSTALLATION
        .iter()
        .copied()
        .chain(assignment.platform.env_pass.iter().map(String::as_str))
        // Passing on by name doesn't pass on ring settings: that they leak in is what this runner is there to prevent.
        .filter(|name| !name.starts_with("PTO2_") && !name.starts_with("SIMPLER_"))
        .collect();
    Environment::from_surroundings(std::env::vars_os(), &also)
        .with_all(assignment.platform.env.clone())
        .with_all(assignment.case.env.clone())
        .with("PYTHONDONTWRITEBYTECODE", "1")
        .with("RINGSWEEP_CASE", assignment.case.id.as_str())
        .with("RINGSWEEP_REPORT", assignment.paths.report.clone())
}

fn entry_config(
    spec: &PyptoSpec,
    assignment: &Assignment<'_>,
    checkout: &Path,
) -> Result<serde_json::Value, LaunchError> {
    let case = assignment.case;
    let rings = case.rings.numbers();
    let sizes: serde_json::Map<_, _> = Resource::ALL
        .into_iter()
        .map(|resource| (resource.token().to_owned(), rings.get(resource).to_vec().into()))
        .collect();
    let mut argv = vec![
        "-p".to_owned(),
        assignment.platform.name.as_str().to_owned(),
        "-d".to_owned(),
        devices(assignment),
    ];
    for template in &spec.args {
        argv.push(template.render(|parameter| value(parameter, assignment))?);
    }
    let declared: serde_json::Map<_, _> = assignment
        .platform
        .env
        .iter()
        .chain(&case.env)
        .map(|(name, value)| (name.clone(), value.clone().into()))
        .collect();
    Ok(serde_json::json!({
        "checkout": checkout,
        "program": spec.program,
        "argv": argv,
        "rings": sizes,
        "warmup": case.bench.warmup,
        "rounds": case.bench.rounds,
        "seed": case.seed,
        "case": case.id.as_str(),
        "platform": assignment.platform.name.as_str(),
        "report": assignment.paths.report,
        "environment": declared,
        "scope_stats": scope_stats(assignment),
    }))
}

fn write(path: &Path, text: &str) -> Result<(), LaunchError> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(path, text)).map_err(|error| {
        refuse(
            SetupCause::Environment,
            format!("failed to write `{}`: {error}", path.display()),
        )
    })
}
