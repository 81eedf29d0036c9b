//! `cargo xtask classify`: what logs say happened, by the rules.

use std::path::PathBuf;

use super::{Context, Failure};
use crate::{
    classify::{self, EndStatus, Finding, LoadError, RuleSet, index},
    diagnostic::{Problem, Problems, Source},
    exit::Exit,
};
use rayon::prelude::*;

/// What `classify` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Read these logs.
    #[arg(value_name = "FILE", required_unless_present = "index")]
    pub files: Vec<PathBuf>,
    /// Read the logs that this table lists and compare with what it says of them.
    #[arg(long, value_name = "TSV", conflicts_with_all = ["files", "status", "command"])]
    pub index: Option<PathBuf>,
    /// Use this rule set: `simpler`, `pypto`, one of `cases/rules`, or a TOML file.
    #[arg(long, value_name = "NAME", default_value = "pypto")]
    pub rules: String,
    /// Say how the process ended: `exit:N`, `signal:NAME`, `timeout:BUDGET`.
    #[arg(long, value_name = "STATUS")]
    pub status: Option<EndStatus>,
    /// Say what its command line was.
    #[arg(long, value_name = "LINE")]
    pub command: Option<String>,
    /// Print a table or JSON.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: outcome, rule, and the quoted lines.
    Table,
    /// One object a file, one line each.
    Json,
}

/// Explains logs; with an index, ends with [`Exit::GateFailed`] on any disagreement.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let rules = load(&args.rules, context)?;
    if let Some(path) = &args.index {
        return run_index(args, path, &rules, context);
    }
    let about = classify::Context {
        status: args.status.clone(),
        command: args.command.clone(),
    };
    let findings: Vec<(String, anyhow::Result<Finding>)> = args
        .files
        .par_iter()
        .map(|path| {
            let finding = fs_err::read(path).map(|log| rules.classify(&log, &about));
            (path.display().to_string(), finding.map_err(Into::into))
        })
        .collect();
    for (file, finding) in findings {
        show(&file, &finding?, args.format, context)?;
    }
    Ok(Exit::Pass)
}

fn show(file: &str, finding: &Finding, format: Format, context: &mut Context<'_>) -> anyhow::Result<()> {
    let text = match format {
        Format::Table => classify::explain(file, finding),
        Format::Json => format!("{}\n", classify::json(file, finding)),
    };
    context.out.write_all(text.as_bytes())?;
    Ok(())
}

fn run_index(args: &Args, path: &std::path::Path, rules: &RuleSet, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let text = fs_err::read_to_string(path)?;
    let entries =
        index::parse(&text).map_err(|error| Failure::usage(format!("invalid index `{}`: {error}", path.display())))?;
    let directory = path.parent().unwrap_or(path);
    let judged: Vec<anyhow::Result<index::Judged>> = entries
        .into_par_iter()
        .map(|entry| {
            let log = fs_err::read(directory.join(&entry.file))?;
            let finding = rules.classify(&log, &entry.context());
            Ok(index::Judged { entry, finding })
        })
        .collect();
    let judged = judged.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    match args.format {
        Format::Table => write!(context.out, "{}", index::confusion(&judged))?,
        Format::Json => {
            for judged in &judged {
                show(&judged.entry.file, &judged.finding, Format::Json, context)?;
            }
        }
    }
    let wrong: Vec<_> = judged.iter().filter(|judged| judged.agrees() == Some(false)).collect();
    for judged in &wrong {
        writeln!(context.err, "{}", judged.disagreement())?;
    }
    let compared = judged.iter().filter(|judged| judged.agrees().is_some()).count();
    writeln!(
        context.err,
        "{} logs, {compared} compared, {} disagreements",
        judged.len(),
        wrong.len()
    )?;
    Ok(if wrong.is_empty() { Exit::Pass } else { Exit::GateFailed })
}

/// The rule set `name`, mistakes of its file shown where they stand.
pub(super) fn load(name: &str, context: &Context<'_>) -> anyhow::Result<RuleSet> {
    match classify::load(name, &context.cases) {
        Ok(rules) => Ok(rules),
        Err(LoadError::Invalid { path, text, source }) => {
            let file = Source::new(path.display().to_string(), text);
            let problem = |problem: classify::RuleProblem| {
                let shown = Problem::new(&file, problem.span, problem.message, "");
                match problem.help {
                    Some(help) => shown.help(help),
                    None => shown,
                }
            };
            let problems = source.problems.into_iter().map(problem).collect();
            let told = Problems::check(problems).map_or_else(|told| told.render(context.style), |()| String::new());
            Err(Failure::usage(format!("the rules have mistakes\n\n{told}")))
        }
        Err(error @ LoadError::Unknown { .. }) => Err(Failure::usage(error.to_string())),
        Err(error @ LoadError::Io(_)) => Err(error.into()),
    }
}
