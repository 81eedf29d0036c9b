//! The command line: what was typed.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run one case of one kernel on the embedded runtime.
#[derive(Debug, Parser)]
#[command(name = "kernel", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the kernels with their parameters, outputs and ring needs.
    List(ListArgs),
    /// Run one kernel: correctness dispatch, validation, then warm-up and timed dispatches under the same rings.
    Run(Box<RunArgs>),
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Choose the form.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
}

/// Form of a list.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// One line a kernel.
    Text,
    /// One JSON array.
    Json,
}

/// Four values, one per ring.
pub(crate) type Four<T> = [T; 4];

fn four<T: std::str::FromStr>(text: &str) -> Result<Four<T>, String>
where
    T::Err: std::fmt::Display,
{
    let values: Vec<T> = text
        .split(',')
        .map(|v| v.parse().map_err(|e| format!("`{v}`: {e}")))
        .collect::<Result<_, String>>()?;
    let n = values.len();
    values
        .try_into()
        .map_err(|_| format!("four values are needed, one per ring, not {n}"))
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a parameter is written name=value")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|e| format!("`{text}`: {e}"))?;
    if (0.0..=100.0).contains(&share) {
        Ok(share)
    } else {
        Err(format!("a share is between 0 and 100, not {text}"))
    }
}

fn turns(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let (take, done) = text.split_once(',').ok_or("two pipes are written TAKE,DONE")?;
    Ok((take.into(), done.into()))
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Kernel to run.
    pub(crate) name: String,
    /// Set a parameter of the kernel.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) params: Vec<(String, String)>,
    /// Draw the inputs from this seed.
    #[arg(long)]
    pub(crate) seed: u64,
    /// Set the heap of each ring, in bytes.
    #[arg(long, value_name = "A,B,C,D", value_parser = four::<u64>)]
    pub(crate) ring_heap: Four<u64>,
    /// Set the task slots of each ring.
    #[arg(long, value_name = "A,B,C,D", value_parser = four::<u32>)]
    pub(crate) ring_task_window: Four<u32>,
    /// Set the dependency pool entries of each ring.
    #[arg(long, value_name = "A,B,C,D", value_parser = four::<u32>)]
    pub(crate) ring_dep_pool: Four<u32>,
    /// Dispatch this often before the timed dispatches.
    #[arg(long, default_value_t = 0)]
    pub(crate) warmup: u32,
    /// Dispatch and time this often; 0 leaves the benchmark out.
    #[arg(long, default_value_t = 0)]
    pub(crate) rounds: u32,
    /// Run this many worker cores per rank [default: those of the machine, and at least 2 for several ranks].
    #[arg(long)]
    pub(crate) cores: Option<NonZeroUsize>,
    /// Append the report to this file [default: $RINGSWEEP_REPORT].
    #[arg(long, value_name = "PATH")]
    pub(crate) report: Option<PathBuf>,
    /// Name the case in the report.
    #[arg(long, value_name = "ID")]
    pub(crate) case: Option<String>,
    /// Give a run without progress up after this time.
    #[arg(long, value_name = "MS")]
    pub(crate) scheduler_timeout_ms: Option<u64>,
    /// Give an allocation without reclaim up after this time.
    #[arg(long, value_name = "MS")]
    pub(crate) alloc_timeout_ms: Option<u64>,
    /// Keep every timed dispatch busy for this share of what the one before took by itself, to audit that a slowdown shows.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub(crate) delay: f64,
    /// Take turns with another process: say over DONE that a timed dispatch may begin, wait for TAKE.
    #[arg(long, value_name = "TAKE,DONE", value_parser = turns)]
    pub(crate) turns: Option<(PathBuf, PathBuf)>,
}

/// Parses, runs, and maps the verdict to the exit status: 0 pass or no verdict, 1 anything else; 2 for bad arguments is clap's own.
pub(crate) fn main() -> ExitCode {
    match Cli::parse().command {
        Command::List(args) => crate::list::main(args.format),
        Command::Run(args) => crate::run::main(&args),
    }
}
