//! What may be typed: the commands, and the options that several of them share.
//!
//! Parsing only records what was typed; [`crate::plan`] applies defaults.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{
    cmd,
    platform::PlatformName,
    ring::{Resource, RingLayer, RingSetting, SettingError},
};

/// Regression sweeps of ring-heap kernels.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, propagate_version = true)]
pub struct Cli {
    /// Read suites and platforms from this directory.
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    pub cases: Option<PathBuf>,
    /// Keep runs and baselines in this directory.
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    pub results: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, each in a module of its own under `cmd`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the declared cases.
    List(Box<cmd::list::Args>),
    /// Show what changed from one run to another, case by case.
    Diff(cmd::diff::Args),
    /// Accept, show or tag the committed expectation.
    Baseline(cmd::baseline::Args),
    /// Decide whether a run passes for a purpose.
    Gate(cmd::gate::Args),
    /// Tell a run as a table, Markdown, JUnit, CSV, JSON, HTML or annotations.
    Report(cmd::report::Args),
    /// Write the suite of a directory of pypto-lib programs, or tell how the two have drifted apart.
    Import(cmd::import::Args),
    /// Explain logs: what happened, by which rule, in which lines.
    Classify(cmd::classify::Args),
    /// Run the declared cases, record what happened, and say what changed.
    Sweep(Box<cmd::sweep::Args>),
    /// Put the shards of one sweep together.
    Merge(cmd::merge::Args),
    /// Measure how often latency verdicts are wrong.
    Audit(cmd::audit::Args),
    /// Run the project's own checks.
    Ci(cmd::ci::Args),
}

/// Which cases of which platform.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Selection")]
pub struct SelectArgs {
    /// Take cases whose id, or part of it, matches this glob (repeatable: any of them).
    #[arg(value_name = "FILTER")]
    pub filters: Vec<String>,
    /// Leave out cases that match this glob.
    #[arg(long, value_name = "FILTER")]
    pub skip: Vec<String>,
    /// Take cases with this tag; several tags must all hold.
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    /// Take cases of this suite, also one that is run by name only.
    #[arg(long, value_name = "NAME")]
    pub suite: Vec<String>,
    /// Resolve cases for this platform [default: host].
    #[arg(long, value_name = "NAME", value_parser = platform_name)]
    pub platform: Option<PlatformName>,
}

/// The strongest tier of ring configuration.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Rings (one value, or four with commas; `0` in four keeps what the case declares)")]
pub struct RingArgs {
    /// Set the heap of each ring: `512MiB`, `306889728`, `default`.
    #[arg(long, value_name = "BYTES", value_parser = heap, allow_hyphen_values = true)]
    pub ring_heap: Option<RingSetting>,
    /// Set the task window of each ring: a power of two, `default`.
    #[arg(long, value_name = "SLOTS", value_parser = task_window, allow_hyphen_values = true)]
    pub ring_task_window: Option<RingSetting>,
    /// Set the dependency pool of each ring: entries, `default`.
    #[arg(long, value_name = "ENTRIES", value_parser = dep_pool, allow_hyphen_values = true)]
    pub ring_dep_pool: Option<RingSetting>,
}

impl RingArgs {
    /// The layer of the command line.
    pub fn layer(&self) -> RingLayer {
        RingLayer {
            heap: self.ring_heap,
            task_window: self.ring_task_window,
            dep_pool: self.ring_dep_pool,
        }
    }
}

/// The sizes of the benchmark and the seed.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Benchmark")]
pub struct BenchArgs {
    /// Time this many dispatches per case; 0 checks results only.
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Dispatch this often before timing.
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Seed the inputs of every case [default: 0].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Take the sizes that suites declare for quick runs: one timed dispatch, the same rings.
    #[arg(long)]
    pub quick: bool,
}

fn platform_name(text: &str) -> Result<PlatformName, String> {
    PlatformName::new(text).ok_or_else(|| "not the name of a platform".into())
}

fn heap(text: &str) -> Result<RingSetting, SettingError> {
    RingSetting::parse(Resource::Heap, text)
}

fn task_window(text: &str) -> Result<RingSetting, SettingError> {
    RingSetting::parse(Resource::TaskWindow, text)
}

fn dep_pool(text: &str) -> Result<RingSetting, SettingError> {
    RingSetting::parse(Resource::DepPool, text)
}
