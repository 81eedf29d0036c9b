//! `cargo xtask report`: one run, told for one reader.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::{Context, Failure, comparing};
use crate::{
    exit::Exit,
    record::Run,
    report::{Format, Report},
};

/// What `report` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run: id, directory or `latest`.
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
    /// How it is told.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Hold the run against this: `baseline`, `release`, or another run.
    #[arg(long, value_name = "REFERENCE", default_value = "baseline")]
    pub against: String,
    /// Include the verdict of this policy of `cases/gate.toml`.
    #[arg(long, value_name = "NAME", default_value = "ci")]
    pub policy: String,
    /// Write to this file instead of stdout.
    #[arg(long, short, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// Refuse any other run than this one: what is published must not be stale.
    #[arg(long, value_name = "ID")]
    pub expect_run: Option<String>,
}

/// Writes the report; a report of a red run is no failure of the report.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let gates = comparing::gate_file(context)?;
    let policy = gates
        .policy(&args.policy)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let with = comparing::compare_context(context, &gates)?;
    let (dir, run) = comparing::read_run(context, &args.run)?;
    expect_run(args.expect_run.as_deref(), &run)?;
    let mut comparison = comparing::against(context, &run, &args.against, &with)?;
    if args.against == "baseline" {
        comparing::confirm_from(&dir, &mut comparison)?;
    }
    let verdict = super::gate::verdict(policy, &comparison, &run, &with, context)?;
    let report = Report::new(&run, &comparison, Some(&verdict));
    match &args.output {
        None => report.render(args.format, context.out)?,
        Some(path) => {
            let mut file = fs_err::File::create(path)?;
            report
                .render(args.format, &mut file)
                .and_then(|()| file.flush())
                .context("failed to write the report")?;
        }
    }
    Ok(Exit::Pass)
}

/// Refuses a run of another id than the one that was asked for.
pub fn expect_run(expected: Option<&str>, run: &Run) -> anyhow::Result<()> {
    let found = run.provenance.run_id.as_str();
    match expected {
        Some(expected) if expected != found => Err(Failure::ending(
            Exit::NotComparable,
            format!("this is run `{found}`, not `{expected}`: nothing of another run is published"),
        )),
        _ => Ok(()),
    }
}
