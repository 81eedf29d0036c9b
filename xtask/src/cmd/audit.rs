//! `cargo xtask audit`: prove the latency verdicts.

use std::time::{Duration, Instant};

use super::{Context, Failure, comparing};
use crate::{
    audit::{
        self, Noise, Plan,
        real::{self, Pool, Subject},
    },
    duration,
    exit::Exit,
    host_class::HostClass,
    kernel_binary::KernelBinary,
    provenance,
};

/// Kernels of half a millisecond to ten, as most of the matrix is, that take little time besides; with the rounds that their cases declare.
const KERNELS: [&str; 3] = ["hc_pre --rounds 20", "rmsnorm --rounds 100", "gate --rounds 100"];

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
    /// Take at most this many process runs of each kernel and slowdown on this machine, instead of drawing synthetic ones.
    #[arg(long, value_name = "N")]
    pub real: Option<usize>,
    /// Take process runs on this machine for this long, such as `15m`.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub within: Option<Duration>,
    /// Print the machine and the command above the tables, ready for `results/AUDIT.md`.
    #[arg(long)]
    pub markdown: bool,
    /// Take process runs of this kernel, with its options after it: `"rmsnorm --param mode=decode --rounds 100"` (repeatable).
    #[arg(long, value_name = "KERNEL", default_values_t = KERNELS.map(str::to_owned))]
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
        independent: None,
    };
    let repeats = args.repeat.map_or_else(|| vec![1, 8], |repeat| vec![repeat]);
    if args.markdown {
        write!(context.out, "{}", preamble())?;
    }
    if args.real.is_some() || args.within.is_some() {
        let most = repeats.iter().max().copied().unwrap_or(1);
        let least = real::turns_of_a_sweep(&plan(most), &rules);
        if args.real.is_some_and(|count| count < least) {
            return Err(Failure::usage(format!(
                "a sweep takes {least} process runs of each kernel: `--real {least}` or more"
            )));
        }
        return on_this_machine(args, least, &repeats, &rules, &plan, context);
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
    least: usize,
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
        if turn.is_multiple_of(10) {
            // A closed stderr keeps nobody from measuring.
            let _ = writeln!(err, "turn {}", turn + 1);
        }
    };
    let limit = real::Limit {
        turns: args.real.unwrap_or(usize::MAX),
        until: args.within.map(|within| Instant::now() + within),
    };
    let launch = real::Launch {
        binary: binary.path(),
        rounds: args.rounds,
    };
    let pools = real::take(launch, &subjects, limit, &mut told)?;
    let turns = pools.iter().map(Pool::turns).min().unwrap_or(0);
    if turns < least {
        return Err(Failure::usage(format!(
            "a sweep takes {least} process runs of each kernel, and time was left for {turns}: give `--within` more time, or fewer or smaller kernels"
        )));
    }
    for &now_runs in repeats {
        let mut plan = Plan {
            cases: pools.len(),
            ..plan(now_runs)
        };
        let independent = real::disjoint_sweeps(&pools, &plan, rules);
        plan.independent = Some(independent);
        let scores = audit::score(&plan, rules, |seed, effect| {
            real::sweep(&pools, None, &plan, rules, seed, effect)
        });
        let title = format!(
            "kernels on this machine, drawn from {turns} turns, intervals as of {independent} sweeps that share no run"
        );
        audit::write(context.out, &title, &plan, &scores)?;
        let alone = subjects.iter().enumerate().map(|(slowed, subject)| {
            let scores = audit::score(&plan, rules, |seed, effect| {
                real::sweep(&pools, Some(slowed), &plan, rules, seed, effect)
            });
            (subject.to_string(), scores)
        });
        audit::write_by_kernel(context.out, &plan, &alone.collect::<Vec<_>>())?;
    }
    Ok(Exit::Pass)
}

/// What the tables below it were measured with: a command that can be typed again, and where.
fn preamble() -> String {
    let typed: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let host = HostClass::detect();
    let facts: Vec<String> = host
        .facts()
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    format!(
        "Measured {} with `cargo xtask {}` on {}.\n\n",
        provenance::now(),
        typed.join(" "),
        facts.join(", ")
    )
}
