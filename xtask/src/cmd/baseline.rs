//! `cargo xtask baseline`: accept a run as the expectation, show it, tag it as a release.

use anyhow::Context as _;
use globset::{Glob, GlobSetBuilder};

use super::{Context, Failure, comparing};
use crate::{
    baseline::{self, Baseline, Found, Reference, Request},
    compare::LatencySummary,
    count::counted,
    exit::Exit,
    host_class::HostClass,
    record::Nanos,
    stats,
};

/// What `baseline` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What is done with the baseline.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// Make a run's results the expectation, and show what moves.
    Accept(AcceptArgs),
    /// Show the expectation of this host.
    Show(ShowArgs),
    /// Keep the accepted baseline as that of a release.
    Tag(TagArgs),
}

/// What `baseline accept` takes.
#[derive(clap::Args, Debug)]
pub struct AcceptArgs {
    /// The run: id, directory or `latest`.
    #[arg(value_name = "RUN", default_value = "latest")]
    pub run: String,
    /// Accept only cases that match this glob (repeatable).
    #[arg(long, value_name = "GLOB")]
    pub only: Vec<String>,
    /// Accept in spite of what speaks against it, and record why.
    #[arg(long, value_name = "TEXT")]
    pub because: Option<String>,
    /// Show what would move and write nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// What `baseline show` takes.
#[derive(clap::Args, Debug)]
pub struct ShowArgs {
    /// Show the baseline of this platform.
    #[arg(long, value_name = "NAME", default_value = "host")]
    pub platform: String,
    /// Show the last release instead.
    #[arg(long)]
    pub release: bool,
}

/// What `baseline tag` takes.
#[derive(clap::Args, Debug)]
pub struct TagArgs {
    /// Name of the release.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Tag the baseline of this platform.
    #[arg(long, value_name = "NAME", default_value = "host")]
    pub platform: String,
}

/// Runs the action.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    match &args.action {
        Action::Accept(args) => accept(args, context),
        Action::Show(args) => show(args, context),
        Action::Tag(args) => tag(args, context),
    }
}

fn accept(args: &AcceptArgs, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    if args.because.as_ref().is_some_and(|because| because.trim().is_empty()) {
        return Err(Failure::usage("`--because` needs a reason"));
    }
    let (_, run) = comparing::read_run(context, &args.run)?;
    let gates = comparing::gate_file(context)?;
    let with = comparing::compare_context(context, &gates)?;
    let mut globs = GlobSetBuilder::new();
    for pattern in &args.only {
        globs.add(Glob::new(pattern).map_err(|error| Failure::usage(error.to_string()))?);
    }
    let globs = globs.build().map_err(|error| Failure::usage(error.to_string()))?;
    let request = Request {
        selection: (!args.only.is_empty()).then_some(globs),
        typed: args.only.clone(),
        because: args.because.clone(),
        renamed: with.renamed,
        accepted: crate::wall_clock::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    };
    let dir = comparing::baseline_dir(context);
    let host = HostClass::from_facts(&run.provenance.host);
    let current = baseline::find(&dir, &run.provenance.platform, &host, Reference::Accepted)
        .context("failed to load the baseline")?;
    let current = match current {
        Found::SameClass(baseline) => Some(baseline),
        // Another class has a file of its own.
        Found::OtherClass(_) | Found::Nothing => None,
    };
    let accepted = match baseline::accept(current, &run, &request) {
        Ok(accepted) => accepted,
        Err(refusals) => {
            for refusal in &refusals {
                writeln!(context.err, "refused: {refusal}")?;
            }
            let overruled = refusals.iter().all(baseline::Refusal::can_be_overruled);
            let advice = if overruled {
                "say why it is accepted all the same with `--because TEXT`"
            } else {
                "no reason helps with this"
            };
            return Err(Failure::usage(format!(
                "run `{}` is not accepted: {advice}",
                run.provenance.run_id
            )));
        }
    };
    for moved in &accepted.moves {
        writeln!(context.out, "{moved}")?;
    }
    for case in &accepted.left_out {
        writeln!(
            context.err,
            "left out: {case} did not end in a way that can be expected"
        )?;
    }
    for overruled in &accepted.overruled {
        writeln!(context.err, "overruled: {overruled}")?;
    }
    warn_of_few_runs(&accepted.baseline, &gates.rules, context)?;
    let unmoved = accepted.baseline.rows.len();
    if args.dry_run {
        writeln!(
            context.err,
            "{} rows would move, {unmoved} rows in all",
            accepted.moves.len()
        )?;
        return Ok(Exit::Pass);
    }
    let paths = baseline::save(&dir, &accepted.baseline).context("failed to write the baseline")?;
    writeln!(
        context.err,
        "{} rows moved, {unmoved} rows in all: review and commit `{}`",
        accepted.moves.len(),
        paths[1].display()
    )?;
    Ok(Exit::Pass)
}

/// A reference of one process run can prove no change of latency ever: better said now than in every diff.
fn warn_of_few_runs(
    baseline: &Baseline,
    rules: &crate::compare::Rules,
    context: &mut Context<'_>,
) -> std::io::Result<()> {
    let timed: Vec<usize> = baseline
        .rows
        .values()
        .filter_map(|row| Some(row.summary.latency.as_ref()?.run_medians_ns.len()))
        .collect();
    let need = stats::runs_needed(rules.alpha / timed.len().max(1) as f64, None).unwrap_or(1000);
    let few = timed.iter().filter(|&&runs| runs < need).count();
    if few > 0 {
        writeln!(
            context.err,
            "warning: {few} of {} timed cases have fewer process runs than the {need} that prove a change at the level of a sweep: sweep with `--repeat {need}`",
            timed.len()
        )?;
    }
    for (case, row) in &baseline.rows {
        if let Some(floor) = row.noise_floor.filter(|floor| *floor > rules.max_noise_floor) {
            writeln!(
                context.err,
                "warning: {case} moves by {:.0} % by itself: smaller changes of it can't be seen",
                floor * 100.0
            )?;
        }
    }
    Ok(())
}

fn load(context: &Context<'_>, platform: &str, reference: Reference) -> anyhow::Result<Baseline> {
    let dir = comparing::baseline_dir(context);
    let found = baseline::find(&dir, platform, &HostClass::detect(), reference)
        .map_err(|error| Failure::ending(Exit::NotComparable, format!("{:#}", anyhow::Error::from(error))))?;
    found.into_baseline().ok_or_else(|| {
        Failure::ending(
            Exit::NotComparable,
            format!("there is no baseline of platform `{platform}` in `{}`", dir.display()),
        )
    })
}

fn show(args: &ShowArgs, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let reference = if args.release {
        Reference::Release
    } else {
        Reference::Accepted
    };
    let baseline = load(context, &args.platform, reference)?;
    let here = HostClass::detect();
    for row in baseline.rows.iter().map(|(case, row)| {
        let latency = row.summary.latency.as_ref();
        let median = latency
            .and_then(LatencySummary::median_ns)
            .and_then(|ns| Nanos::from_f64(ns).ok());
        let runs = latency.map(|latency| format!("{} × {}", latency.run_medians_ns.len(), latency.rounds));
        let floor = row.noise_floor.map(|floor| format!("±{:.1} %", floor * 100.0));
        format!(
            "{}\t{case}\t{}\t{}\t{}",
            row.summary.outcome,
            median.map(|median| median.to_string()).unwrap_or_default(),
            runs.unwrap_or_default(),
            floor.unwrap_or_default()
        )
    }) {
        writeln!(context.out, "{}", row.trim_end())?;
    }
    let difference: Vec<String> = baseline
        .host
        .differences(&here)
        .iter()
        .map(ToString::to_string)
        .collect();
    if !difference.is_empty() {
        writeln!(
            context.err,
            "another host class than this host: {}: latencies are not compared here",
            difference.join(", ")
        )?;
    }
    writeln!(
        context.err,
        "{}: {}",
        baseline.label(),
        counted(baseline.rows.len(), "case")
    )?;
    for accept in &baseline.accepts {
        writeln!(
            context.err,
            "run {} accepted {} of commit {}{}",
            accept.run_id,
            accept.accepted,
            accept.commit.as_deref().unwrap_or("unknown"),
            accept
                .because
                .as_ref()
                .map(|because| format!(": {because}"))
                .unwrap_or_default()
        )?;
    }
    Ok(Exit::Pass)
}

fn tag(args: &TagArgs, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let mut baseline = load(context, &args.platform, Reference::Accepted)?;
    let differences = baseline.host.differences(&HostClass::detect());
    if !differences.is_empty() {
        writeln!(
            context.err,
            "note: tagging the baseline of another host class: {}",
            baseline.host
        )?;
    }
    baseline.release = Some(args.name.clone());
    let paths = baseline::save(&comparing::baseline_dir(context), &baseline).context("failed to write the release")?;
    writeln!(
        context.err,
        "{} kept as release {}: commit `{}`",
        counted(baseline.rows.len(), "case"),
        args.name,
        paths[0].display()
    )?;
    Ok(Exit::Pass)
}
