//! `cargo xtask audit`: prove the latency verdicts.

use super::{Context, comparing};
use crate::{
    audit::{self, Noise, Plan},
    exit::Exit,
};

/// What `audit` takes.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Draw this many sweeps per slowdown.
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub sweeps: usize,
    /// Cases per sweep; the global `--cases` is a directory.
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub size: usize,
    /// Process runs of the reference.
    #[arg(long, value_name = "K", default_value_t = 8)]
    pub base_runs: usize,
    /// Process runs of a sweep; by default once 1 and once 8.
    #[arg(long, value_name = "K")]
    pub repeat: Option<usize>,
    /// Timed dispatches per process run.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub rounds: usize,
    /// Seed of everything that is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Prints false alarms and detection rates, with their intervals.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let rules = comparing::gate_file(context)?.rules;
    let repeats = args.repeat.map_or_else(|| vec![1, 8], |repeat| vec![repeat]);
    for now_runs in repeats {
        let plan = Plan {
            cases: args.size,
            base_runs: args.base_runs,
            now_runs,
            rounds: args.rounds,
            sweeps: args.sweeps,
            seed: args.seed,
        };
        for noise in Noise::ALL {
            let scores = audit::synthetic(&plan, &rules, noise);
            audit::write(context.out, noise.token(), &plan, &scores)?;
        }
    }
    Ok(Exit::Pass)
}
