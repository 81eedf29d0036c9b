//! Real sessions: process runs of kernels on this machine, with real delays inside the timed dispatches.
//!
//! Process runs are costly, so a pool of them is taken once, kernels and slowdowns in turn over the
//! whole time; sweeps are then drawn from it. The reference, the sweep and the fresh runs of one drawn
//! sweep are runs of different stretches of the pool, in the order in which they happened, so that
//! whatever drifts on the machine drifts between them too. Drawn sweeps share process runs, so the
//! intervals of the rates are those of as many sweeps as share none.

use std::io;
use std::path::Path;
use std::time::Instant;

use super::{CaseData, EFFECTS, Plan, Runs};
use crate::compare::Rules;
use crate::stats::{self, SplitMix};

/// A kernel to take process runs of.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name.
    pub kernel: String,
    /// Options of the case.
    pub options: Vec<String>,
}

/// Process runs of one kernel, one of each in every turn.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Without a slowdown, as the reference.
    base: Runs,
    /// Without a slowdown, as the sweep's program: a run is never held against itself.
    same: Runs,
    /// With each of [`EFFECTS`].
    slowed: [Runs; EFFECTS.len()],
}

impl Pool {
    /// Turns that were taken.
    pub fn turns(&self) -> usize {
        self.base.len()
    }

    fn program(&self, effect: Option<usize>) -> &Runs {
        effect.map_or(&self.same, |effect| &self.slowed[effect])
    }
}

/// Why no process runs could be taken.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The kernel can't be started.
    #[error("failed to run `{kernel}`")]
    Start {
        /// The kernel.
        kernel: String,
        /// Why.
        #[source]
        source: xshell::Error,
    },
    /// The report can't be read.
    #[error("failed to read the report of `{kernel}`")]
    Report {
        /// The kernel.
        kernel: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No timed dispatch.
    #[error("`{0}` reported no sample")]
    NoSamples(String),
}

/// One process run: its samples, ns.
fn process_run(binary: &Path, subject: &Subject, rounds: usize, delay_ns: u64) -> Result<Vec<f64>, PoolError> {
    let kernel = subject.kernel.clone();
    let report = |source| PoolError::Report {
        kernel: kernel.clone(),
        source,
    };
    let file = tempfile::NamedTempFile::new().map_err(report)?;
    let (name, options, path) = (&subject.kernel, &subject.options, file.path());
    let (rounds, delay) = (rounds.to_string(), delay_ns.to_string());
    let start = |source| PoolError::Start {
        kernel: kernel.clone(),
        source,
    };
    // The runtime's defaults, which the kernels of an audit fit in.
    let (heap, slots) = (
        [268_435_456; 4].map(|n: u32| n.to_string()).join(","),
        [16384; 4].map(|n: u32| n.to_string()).join(","),
    );
    let shell = xshell::Shell::new().map_err(start)?;
    xshell::cmd!(
        shell,
        "{binary} run {name} {options...} --seed 0 --ring-heap {heap} --ring-task-window {slots} --ring-dep-pool {slots} --warmup 1 --rounds {rounds} --delay-ns {delay} --report {path}"
    )
    .quiet()
    .ignore_stdout()
    .ignore_stderr()
    .run()
    .map_err(start)?;
    let text = std::fs::read_to_string(path).map_err(report)?;
    let samples: Vec<f64> = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|event| event["event"] == "sample")
        .filter_map(|event| event["device_ns"].as_f64())
        .collect();
    if samples.is_empty() {
        return Err(PoolError::NoSamples(kernel));
    }
    Ok(samples)
}

/// When no more process runs are taken.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// After so many turns.
    pub turns: usize,
    /// After this time; a turn that was begun is finished.
    pub until: Option<Instant>,
}

/// How many earlier process runs without a delay say what a share of the kernel's time is now.
const RECENT: usize = 5;

/// Takes process runs of every subject, without a slowdown and with each of [`EFFECTS`], all in turn.
///
/// A delay is a share of what the kernel took of late: a slower program is slower by its share on a
/// busy machine too, so the delay grows with what the kernel takes.
pub fn take(
    binary: &Path,
    subjects: &[Subject],
    limit: Limit,
    rounds: usize,
    told: &mut dyn FnMut(usize),
) -> Result<Vec<Pool>, PoolError> {
    let mut recent: Vec<Vec<f64>> = Vec::new();
    for subject in subjects {
        let mut medians = Vec::new();
        for _ in 0..RECENT {
            medians.extend(stats::median(&process_run(binary, subject, rounds, 0)?));
        }
        recent.push(medians);
    }
    let mut pools: Vec<Pool> = vec![Pool::default(); subjects.len()];
    for turn in 0..limit.turns {
        if limit.until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        told(turn);
        for (index, subject) in subjects.iter().enumerate() {
            let centre = stats::median(&recent[index]).unwrap_or(0.0);
            // Forth and back, so that a drift over a turn favours no program.
            let pool = &mut pools[index];
            let mut programs = vec![(0.0, &mut pool.base), (0.0, &mut pool.same)];
            programs.extend(EFFECTS.iter().copied().zip(&mut pool.slowed));
            if turn % 2 == 1 {
                programs.reverse();
            }
            for (effect, runs) in programs {
                runs.push(process_run(binary, subject, rounds, (centre * effect) as u64)?);
            }
            recent[index].remove(0);
            recent[index].extend(pool.base.last().and_then(|samples| stats::median(samples)));
        }
    }
    Ok(pools)
}

/// Turns that one drawn sweep takes from the pools.
pub fn turns_of_a_sweep(plan: &Plan, rules: &Rules) -> usize {
    plan.base_runs + plan.now_runs + rules.confirm_repeats * rules.confirm_looks
}

/// How many sweeps can be drawn that share no process run of the slowed kernel. Drawn sweeps do share
/// runs, so the intervals of their rates are made as wide as those of so few.
///
/// Nearly all sweeps are decided at the first look, so that many turns make a sweep here.
pub fn disjoint_sweeps(pools: &[Pool], plan: &Plan, rules: &Rules) -> usize {
    let turns = pools.iter().map(Pool::turns).min().unwrap_or(0);
    pools.len() * (turns / (plan.base_runs + plan.now_runs + rules.confirm_repeats))
}

/// One sweep drawn from the pools: stretches for the reference, the sweep and the fresh runs, in this order.
pub fn sweep(pools: &[Pool], plan: &Plan, rules: &Rules, seed: u64, effect: f64) -> Vec<CaseData> {
    let mut rng = SplitMix::new(seed);
    let entry = EFFECTS.iter().position(|e| e.to_bits() == effect.to_bits());
    // Which kernel is slowed down is drawn too: case 0 of the sweep.
    let first = rng.below(pools.len());
    let available = pools[first].turns();
    let pairs = rules.confirm_repeats * rules.confirm_looks;
    let spare = available.saturating_sub(turns_of_a_sweep(plan, rules));
    let mut gaps = [rng.below(spare + 1), rng.below(spare + 1), rng.below(spare + 1)];
    gaps.sort_unstable();
    let starts = [
        gaps[0],
        gaps[1] + plan.base_runs,
        gaps[2] + plan.base_runs + plan.now_runs,
    ];
    (0..pools.len())
        .map(|case| {
            let pool = &pools[(first + case) % pools.len()];
            let program = pool.program(entry.filter(|_| case == 0));
            let stretch =
                |runs: &Runs, at: usize, length: usize| runs.iter().skip(at).take(length).cloned().collect::<Runs>();
            let turns = starts[2]..starts[2] + pairs;
            let pair = |turn: usize| Some((pool.base.get(turn)?.clone(), program.get(turn)?.clone()));
            CaseData {
                base: stretch(&pool.base, starts[0], plan.base_runs),
                now: stretch(program, starts[1], plan.now_runs),
                fresh: turns.filter_map(pair).collect(),
            }
        })
        .collect()
}
