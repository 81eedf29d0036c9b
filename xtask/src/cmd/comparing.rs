//! What the commands that look at runs share: finding runs, references and policies.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{Context, Failure};
use crate::{
    baseline::{self, Baseline, Reference},
    catalogue::{Catalogue, LoadError},
    compare::{self, Comparison},
    exit::Exit,
    format,
    gate::GateFile,
    host_class::HostClass,
    kernels::Kernels,
    plan::MatrixHash,
    record::{Run, RunStatus},
    run_dir,
    suite::file::Scope,
};

/// The gate file that is used where the directory of the suites holds none.
const BUILT_IN: &str = include_str!("../../../cases/gate.toml");

/// Where baselines are.
pub fn baseline_dir(context: &Context<'_>) -> PathBuf {
    context.results.join("baseline")
}

/// Reads the gate file beside the suites.
pub fn gate_file(context: &Context<'_>) -> anyhow::Result<GateFile> {
    let path = context.cases.join("gate.toml");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BUILT_IN.to_owned(),
        Err(error) => return Err(error).with_context(|| format!("failed to read `{}`", path.display())),
    };
    GateFile::parse(&text).map_err(|error| Failure::usage(format!("`{}` has mistakes\n{error}", path.display())))
}

/// Rules, renames and suites for a comparison, from what stands under `cases`.
///
/// The suites are read without asking the kernels, so that looking at results builds nothing.
pub fn compare_context(context: &Context<'_>, gates: &GateFile) -> anyhow::Result<compare::Context> {
    let mut made = compare::Context::new(gates.rules.clone());
    let Some(catalogue) = catalogue(context)? else {
        return Ok(made);
    };
    for suite in &catalogue.suites {
        let renamed = suite
            .renamed
            .iter()
            .map(|(from, to)| (from.value.clone(), to.value.clone()));
        made.renamed.extend(renamed);
        if suite.scope == Scope::ByName {
            made.by_name.insert(suite.name.clone());
        }
    }
    Ok(made)
}

/// Hash of the suites of this tree that `run` took cases from; `None` where there are none.
pub fn matrix_hash(context: &Context<'_>, run: &Run) -> anyhow::Result<Option<MatrixHash>> {
    let Some(catalogue) = catalogue(context)? else {
        return Ok(None);
    };
    let named = |name: &str| run.provenance.planned.iter().any(|case| case.suite() == name);
    let suites: Vec<_> = catalogue.suites.iter().filter(|suite| named(&suite.name)).collect();
    Ok((!suites.is_empty()).then(|| crate::catalogue::matrix_hash(suites)))
}

fn catalogue(context: &Context<'_>) -> anyhow::Result<Option<Catalogue>> {
    match Catalogue::load(&context.cases, || Kernels::Unknown("not asked".into())) {
        Ok(catalogue) => Ok(Some(catalogue)),
        Err(LoadError::Empty(_)) => Ok(None),
        Err(LoadError::Problems(problems)) => Err(Failure::usage(format!(
            "the suites have mistakes\n\n{}",
            problems.render(context.style)
        ))),
        Err(error @ LoadError::Io(_)) => {
            Err(error).with_context(|| format!("failed to load `{}`", context.cases.display()))
        }
    }
}

/// The directory of the run that `text` names: a path, a run id below `results/runs`, or `latest`.
pub fn run_dir(context: &Context<'_>, text: &str) -> anyhow::Result<PathBuf> {
    run_dir::find(&context.results, text).map_err(|error| Failure::usage(format!("{:#}", anyhow::Error::from(error))))
}

/// Reads the run that `text` names, and where it stands.
pub fn read_run(context: &Context<'_>, text: &str) -> anyhow::Result<(PathBuf, Run)> {
    let dir = run_dir(context, text)?;
    let run = format::read::run(&dir).map_err(|error| {
        // A file that can't be read can't be compared; the text says which and why.
        Failure::ending(Exit::NotComparable, format!("{:#}", anyhow::Error::from(error)))
    })?;
    Ok((dir, run))
}

/// The reference for `run`, of its host class or else of another.
pub fn baseline(context: &Context<'_>, run: &Run, reference: Reference) -> anyhow::Result<Option<Baseline>> {
    let host = HostClass::from_facts(&run.provenance.host);
    let found = baseline::find(&baseline_dir(context), &run.provenance.platform, &host, reference)
        .map_err(|error| Failure::ending(Exit::NotComparable, format!("{:#}", anyhow::Error::from(error))))?;
    Ok(found.into_baseline())
}

/// `run` against the accepted baseline, or against nothing where there is none.
pub fn against_accepted(context: &Context<'_>, run: &Run, with: &compare::Context) -> anyhow::Result<Comparison> {
    Ok(match baseline(context, run, Reference::Accepted)? {
        Some(baseline) => compare::against_baseline(run, &baseline, with),
        None => compare::without_reference(run, with),
    })
}

/// Where the fresh runs of a run's suspects are.
pub fn confirm_dir(run_dir: &Path) -> PathBuf {
    run_dir.join("confirm")
}

/// Takes the fresh runs of suspects, if there are any, into the comparison.
///
/// Runs of the reference's program count only if they are of the commit that the reference is from: a
/// baseline may have been accepted since.
pub fn confirm_from(run_dir: &Path, comparison: &mut Comparison) -> anyhow::Result<()> {
    let side = |name: &str| -> anyhow::Result<Option<Run>> {
        let dir = confirm_dir(run_dir).join("runs").join(name);
        if !dir.join("run.json").is_file() {
            return Ok(None);
        }
        let run = format::read::run(&dir)?;
        // A side that was cut short has runs of some suspects only, at other times than the other side.
        Ok((run.provenance.status == RunStatus::Complete).then_some(run))
    };
    let Some(now) = side("now")? else {
        return Ok(());
    };
    let base = side("base")?.filter(|base| base.provenance.git_commit == comparison.base.commit);
    let mut base = base.map_or_else(Vec::new, |base| base.records);
    base.retain(|record| !comparison.earlier.contains(&record.case));
    let fresh = compare::Fresh::of(&base, &now.records);
    compare::confirm(comparison, &fresh);
    Ok(())
}

/// `run` against what `text` names: `baseline`, `release`, or another run.
pub fn against(context: &Context<'_>, run: &Run, text: &str, with: &compare::Context) -> anyhow::Result<Comparison> {
    match text {
        "baseline" => against_accepted(context, run, with),
        "release" => Ok(match baseline(context, run, Reference::Release)? {
            Some(baseline) => compare::against_baseline(run, &baseline, with),
            None => compare::without_reference(run, with),
        }),
        text => {
            let (_, base) = read_run(context, text)?;
            Ok(compare::against_run(run, &base, with))
        }
    }
}
