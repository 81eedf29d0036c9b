//! The `command` runner: any program, told about its case through its argv, environment or a file.

use std::path::{Path, PathBuf};

use super::embedded::limits;
use super::reading::{self, Rules};
use super::samples;
use super::{Assignment, LaunchError, Observation, Runner};
use crate::classify::{self, Context};
use crate::launcher;
use crate::outcome::{NoVerdictCause, Outcome, SetupCause};
use crate::plan::PlannedCase;
use crate::process::{ChildSpec, Ended, Environment, PhasePlan, Placement};
use crate::record::{Clock, Evidence, Latency};
use crate::ring::{Resource, RingNumbers};
use crate::size::Bytes;
use crate::suite::runner::{self, CommandSpec, ReadBack, RingChannel, RunnerSpec, SampleSource};
use crate::suite::template::{Parameter, Template};

/// The rules of a command that names none.
const DEFAULT_RULES: &str = "simpler";

/// Name of the file with the ring config, in the attempt's own directory.
const RING_FILE: &str = "rings.json";

/// Starts what the case's `command` table says.
#[derive(Clone, Debug)]
pub struct Command {
    rules: Rules,
}

impl Command {
    /// A runner whose rule sets stand under `cases`.
    pub fn new(cases: &Path) -> Self {
        Self {
            rules: Rules::of(cases),
        }
    }
}

impl Runner for Command {
    fn launch(&self, assignment: &Assignment<'_>) -> Result<ChildSpec, LaunchError> {
        let case = assignment.case;
        let spec = spec(case)?;
        self.rules
            .load(rules_name(spec))
            .map_err(|error| refuse(SetupCause::Configuration, error.to_string()))?;
        let argv = argv(spec, assignment)?;
        let (program, arguments) = argv
            .split_first()
            .ok_or_else(|| refuse(SetupCause::Configuration, "the argv is empty".into()))?;
        let directory = directory(spec, assignment);
        if !directory.is_dir() {
            let message = format!("no working directory `{}`", directory.display());
            return Err(refuse(SetupCause::Environment, message));
        }
        remove_old(spec, assignment)?;
        // A program that is named with a directory is meant from the workspace root, wherever it runs.
        let program = if program.contains('/') {
            assignment.root.join(program)
        } else {
            PathBuf::from(program)
        };
        let mut child = ChildSpec::new(program, directory, &assignment.paths.log).args(arguments);
        child.environment = environment(spec, assignment);
        if let RingChannel::JsonFile { .. } = spec.rings {
            let path = assignment.paths.scratch.join(RING_FILE);
            let made = std::fs::create_dir_all(&assignment.paths.scratch);
            let write = made.and_then(|()| std::fs::write(&path, ring_json(&case.rings.numbers())));
            write.map_err(|error| {
                refuse(
                    SetupCause::Environment,
                    format!("failed to write `{}`: {error}", path.display()),
                )
            })?;
        }
        child.placement = Placement::Session;
        child.memory_limit_bytes = case.memory_limit.map(Bytes::get);
        child.limits = limits(case);
        child.phases = PhasePlan::run_only();
        child.report = Some(assignment.paths.report.clone());
        launcher::place(child, assignment)
    }

    fn observe(&self, assignment: &Assignment<'_>, ended: &Ended, log: &[u8]) -> Observation {
        let Ok(spec) = spec(assignment.case) else {
            return Observation::default();
        };
        let Ok(rules) = self.rules.load(rules_name(spec)) else {
            return Observation::default();
        };
        let command = argv(spec, assignment).map(|argv| argv.join(" ")).ok();
        let resolved = launcher::resolve(assignment, reading::status(ended), log);
        let context = Context {
            status: Some(resolved.status.clone()),
            command,
        };
        let (mut observation, finding) = reading::observe(assignment, &rules, &context, log);
        launcher::add(&mut observation, resolved);
        match &spec.read_back {
            ReadBack::None | ReadBack::Report => {}
            ReadBack::Log => {
                observation.effective = finding.effective.into_iter().map(|(_, sizes)| sizes).collect();
                nothing_read_back(&mut observation, "no line `Ring buffer sizes: …` in the log");
            }
            ReadBack::ScopeStats(file) => {
                let why = read_scope_stats(&mut observation, file, spec, assignment);
                nothing_read_back(&mut observation, &why);
            }
        }
        let samples = match &spec.samples {
            SampleSource::None | SampleSource::Report => return observation,
            SampleSource::Log { pattern, unit, clock } => (clock, samples::of_log(log, pattern, *unit)),
            // A program that wasn't asked for a benchmark needn't write one down.
            SampleSource::Json { .. } if assignment.case.bench.rounds == 0 => return observation,
            SampleSource::Json {
                file,
                pointer,
                unit,
                clock,
            } => match path_of(file, spec, assignment) {
                Ok(path) => (clock, samples::of_json(&path, pointer, *unit)),
                Err(_) => return observation,
            },
        };
        match samples {
            (clock, Ok(samples)) => observation.latency = Latency::new(clock_of(*clock), samples),
            (_, Err(evidence)) => not_to_be_believed(&mut observation, *evidence),
        }
        observation
    }
}

/// A pass whose declared read-back says nothing is not known to have run at the sizes that were asked for.
fn nothing_read_back(observation: &mut Observation, why: &str) {
    if observation.effective.is_empty() {
        let evidence = Evidence {
            summary: format!("the rings in force can't be read back: {why}"),
            source: "read-back".into(),
            ..Evidence::default()
        };
        not_to_be_believed(observation, evidence);
    }
}

/// Something that was declared can't be read, so a claim of success isn't: it is neither dropped nor guessed.
fn not_to_be_believed(observation: &mut Observation, evidence: Evidence) {
    if let Some((Outcome::Pass, _)) = observation.finding {
        observation.finding = Some((Outcome::NoVerdict(NoVerdictCause::Unreadable), evidence));
    }
}

pub(super) fn refuse(cause: SetupCause, message: String) -> LaunchError {
    LaunchError { cause, message }
}

fn spec(case: &PlannedCase) -> Result<&CommandSpec, LaunchError> {
    match &case.runner {
        RunnerSpec::Command(spec) => Ok(spec),
        other @ (RunnerSpec::Embedded(_) | RunnerSpec::Pypto(_)) => Err(refuse(
            SetupCause::Configuration,
            format!("the command runner can't start a `{}` case", other.kind()),
        )),
    }
}

fn rules_name(spec: &CommandSpec) -> &str {
    spec.rules.as_deref().unwrap_or(DEFAULT_RULES)
}

fn argv(spec: &CommandSpec, assignment: &Assignment<'_>) -> Result<Vec<String>, LaunchError> {
    let render = |template: &Template| template.render(|parameter| value(parameter, assignment));
    spec.argv.iter().map(render).collect()
}

/// The text that stands for `parameter`.
pub(super) fn value(parameter: &Parameter, assignment: &Assignment<'_>) -> Result<String, LaunchError> {
    let case = assignment.case;
    let rings = case.rings.numbers();
    let path = |path: &Path| path.display().to_string();
    Ok(match parameter {
        Parameter::Case => case.id.to_string(),
        Parameter::Suite => case.id.suite().into(),
        Parameter::Name => case.id.name().into(),
        Parameter::Kernel => match &case.runner {
            RunnerSpec::Embedded(embedded) => embedded.kernel.clone(),
            RunnerSpec::Pypto(pypto) => pypto.program.clone(),
            RunnerSpec::Command(_) => case
                .params
                .get("kernel")
                .cloned()
                .unwrap_or_else(|| case.id.name().into()),
        },
        Parameter::Platform => assignment.platform.name.as_str().into(),
        Parameter::Device => devices(assignment),
        Parameter::Ranks => case.ranks.to_string(),
        Parameter::Seed => case.seed.to_string(),
        Parameter::Warmup => case.bench.warmup.to_string(),
        Parameter::Rounds => case.bench.rounds.to_string(),
        Parameter::RingHeap => rings.list(Resource::Heap),
        Parameter::RingTaskWindow => rings.list(Resource::TaskWindow),
        Parameter::RingDepPool => rings.list(Resource::DepPool),
        Parameter::RingJson => ring_json(&rings),
        Parameter::RingFile => path(&assignment.paths.scratch.join(RING_FILE)),
        Parameter::Report => path(&assignment.paths.report),
        Parameter::Param(name) => case.params.get(name).cloned().ok_or_else(|| {
            let message = format!("the argv names `{{param.{name}}}`, and the case has no parameter `{name}`");
            refuse(SetupCause::Configuration, message)
        })?,
    })
}

/// Ids of the devices, with commas; the first ones where the platform hands out none, as simulators do.
pub(super) fn devices(assignment: &Assignment<'_>) -> String {
    let ids: Vec<u32> = match assignment.devices {
        [] => (0..assignment.case.ranks).collect(),
        devices => devices.to_vec(),
    };
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn ring_json(rings: &RingNumbers) -> String {
    let of: serde_json::Map<_, _> = Resource::ALL
        .into_iter()
        .map(|resource| (resource.token().to_owned(), rings.get(resource).to_vec().into()))
        .collect();
    serde_json::Value::Object(of).to_string()
}

fn environment(spec: &CommandSpec, assignment: &Assignment<'_>) -> Environment {
    let platform = assignment.platform;
    let also: Vec<&str> = platform
        .env_pass
        .iter()
        .chain(&spec.env_pass)
        .map(String::as_str)
        .collect();
    let mut environment = Environment::from_surroundings(std::env::vars_os(), &also)
        .with_all(platform.env.clone())
        .with_all(assignment.case.env.clone())
        .with("RINGSWEEP_CASE", assignment.case.id.as_str())
        .with("RINGSWEEP_REPORT", assignment.paths.report.clone());
    let rings = assignment.case.rings.numbers();
    match &spec.rings {
        RingChannel::Env(names) => {
            for (resource, name) in names {
                environment = environment.with(name, rings.list(*resource));
            }
        }
        RingChannel::JsonFile { env: Some(name) } => {
            environment = environment.with(name, assignment.paths.scratch.join(RING_FILE));
        }
        RingChannel::None | RingChannel::Argv(_) | RingChannel::JsonFile { env: None } => {}
    }
    environment
}

/// Reads the sizes from scope statistics; why not, where that failed.
fn read_scope_stats(
    observation: &mut Observation,
    file: &Template,
    spec: &CommandSpec,
    assignment: &Assignment<'_>,
) -> String {
    let path = match path_of(file, spec, assignment) {
        Ok(path) => path,
        Err(error) => return error.message,
    };
    let read = std::fs::read(&path).map_err(|error| error.to_string());
    match read.and_then(|bytes| classify::parse_scope_stats(&bytes).map_err(|error| error.to_string())) {
        Ok(sizes) => {
            observation.effective.push(sizes);
            String::new()
        }
        Err(error) => format!("`{}`: {error}", path.display()),
    }
}

fn directory(spec: &CommandSpec, assignment: &Assignment<'_>) -> PathBuf {
    let root = assignment.root;
    spec.cwd.as_ref().map_or(root.to_path_buf(), |cwd| root.join(cwd))
}

/// The file that a program writes and `file` names, from its working directory.
fn path_of(file: &Template, spec: &CommandSpec, assignment: &Assignment<'_>) -> Result<PathBuf, LaunchError> {
    let name = file.render(|parameter| value(parameter, assignment))?;
    Ok(directory(spec, assignment).join(name))
}

/// Removes what an earlier attempt left where this one is to write: a file of yesterday must not be read as today's.
fn remove_old(spec: &CommandSpec, assignment: &Assignment<'_>) -> Result<(), LaunchError> {
    let read_back = match &spec.read_back {
        ReadBack::ScopeStats(file) => Some(file),
        ReadBack::None | ReadBack::Report | ReadBack::Log => None,
    };
    let samples = match &spec.samples {
        SampleSource::Json { file, .. } => Some(file),
        SampleSource::None | SampleSource::Report | SampleSource::Log { .. } => None,
    };
    for file in read_back.into_iter().chain(samples) {
        let path = path_of(file, spec, assignment)?;
        match std::fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let message = format!("failed to remove the old `{}`: {error}", path.display());
                return Err(refuse(SetupCause::Environment, message));
            }
        }
    }
    Ok(())
}

fn clock_of(clock: runner::Clock) -> Clock {
    match clock {
        runner::Clock::Device => Clock::Device,
        runner::Clock::Host => Clock::Host,
    }
}
