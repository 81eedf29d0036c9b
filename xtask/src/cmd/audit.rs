//! `cargo xtask audit`: prove the latency verdicts.

use super::{Context, Failure, comparing};
use crate::{
    audit::{
        self, Noise, Plan,
        real::{self, Subject},
    },
    exit::Exit,
    kernel_binary::KernelBinary,
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
    /// Take this many process runs of each kernel and slowdown on this machine, instead of drawing synthetic ones.
    #[arg(long, value_name = "N")]
    pub real: Option<usize>,
    /// Take process runs of this kernel, with its options after it: `"rmsnorm --param mode=decode"` (repeatable).
    #[arg(long, value_name = "KERNEL", default_values_t = ["hc_pre".to_owned(), "hc_post".to_owned(), "rmsnorm".to_owned()])]
    pub kernel: Vec<String>,
    /// Seed of everything that is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Prints false alarms and detection rates, with their intervals.
pub fn run(args: &Args, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    let rules = comparing::gate_file(context)?.rules;
    let plan = |now_runs| Plan {
        cases: args.size,
        base_runs: args.base_runs,
        now_runs,
        rounds: args.rounds,
        sweeps: args.sweeps,
        seed: args.seed,
    };
    let repeats = args.repeat.map_or_else(|| vec![1, 8], |repeat| vec![repeat]);
    if let Some(count) = args.real {
        let most = repeats.iter().max().copied().unwrap_or(1);
        let least = args.base_runs + most + 2 * rules.confirm_repeats;
        if count < least {
            return Err(Failure::usage(format!(
                "a sweep takes {least} process runs of each kernel: `--real {least}` or more"
            )));
        }
        return on_this_machine(args, count, &repeats, &rules, &plan, context);
    }
    for now_runs in repeats {
        let plan = plan(now_runs);
        for noise in Noise::ALL {
            let scores = audit::synthetic(&plan, &rules, noise);
            audit::write(context.out, noise.token(), &plan, &scores)?;
        }
    }
    Ok(Exit::Pass)
}

fn on_this_machine(
    args: &Args,
    count: usize,
    repeats: &[usize],
    rules: &crate::compare::Rules,
    plan: &dyn Fn(usize) -> Plan,
    context: &mut Context<'_>,
) -> anyhow::Result<Exit> {
    let subjects: Vec<Subject> = args
        .kernel
        .iter()
        .filter_map(|typed| {
            let mut words = typed.split_whitespace().map(str::to_owned);
            let kernel = words.next()?;
            let options = words.collect();
            Some(Subject { kernel, options })
        })
        .collect();
    let binary = KernelBinary::build(&context.root)?;
    let err = &mut *context.err;
    let mut told = |turn: usize| {
        // A closed stderr keeps nobody from measuring.
        let _ = writeln!(err, "turn {} of {count}", turn + 1);
    };
    let pools = real::take(binary.path(), &subjects, count, args.rounds, &mut told)?;
    for &now_runs in repeats {
        let plan = Plan {
            cases: pools.len(),
            ..plan(now_runs)
        };
        let scores = audit::score(&plan, rules, |seed, effect| {
            real::sweep(&pools, &plan, rules, seed, effect)
        });
        let title = format!("kernels on this machine, drawn from {count} process runs of each");
        audit::write(context.out, &title, &plan, &scores)?;
    }
    Ok(Exit::Pass)
}
