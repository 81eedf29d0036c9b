//! Real sessions: process runs of kernels on this machine, with real delays inside the timed dispatches.
//!
//! Process runs are costly, so a pool of them is taken once, kernels and slowdowns interleaved over the
//! whole time; sweeps are then drawn from it. The reference, the sweep and the fresh runs of one drawn
//! sweep are runs of different stretches of the pool, in the order in which they happened, so that
//! whatever drifts on the machine drifts between them too. Drawn sweeps share process runs: the
//! intervals of the rates are those of independent sweeps, and the pool's size is printed beside them.

use std::io;
use std::path::Path;

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

/// Process runs of one kernel: without a slowdown (entry 0), then with each of [`EFFECTS`].
pub type Pool = Vec<Runs>;

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

/// Takes `count` process runs of every subject, without a slowdown and with each of [`EFFECTS`], all interleaved.
pub fn take(
    binary: &Path,
    subjects: &[Subject],
    count: usize,
    rounds: usize,
    told: &mut dyn FnMut(usize),
) -> Result<Vec<Pool>, PoolError> {
    let mut delays = Vec::new();
    for subject in subjects {
        // The delay is a share of what the kernel takes here and now.
        let mut medians = Vec::new();
        for _ in 0..3 {
            medians.extend(stats::median(&process_run(binary, subject, rounds, 0)?));
        }
        let centre = stats::median(&medians).unwrap_or(0.0);
        delays.push(EFFECTS.map(|effect| (centre * effect) as u64));
    }
    let mut pools: Vec<Pool> = vec![vec![Runs::new(); 1 + EFFECTS.len()]; subjects.len()];
    for turn in 0..count {
        told(turn);
        for entry in 0..=EFFECTS.len() {
            for (index, subject) in subjects.iter().enumerate() {
                let delay = if entry == 0 { 0 } else { delays[index][entry - 1] };
                pools[index][entry].push(process_run(binary, subject, rounds, delay)?);
            }
        }
    }
    Ok(pools)
}

/// One sweep drawn from the pools: stretches for the reference, the sweep and the fresh runs, in this order.
pub fn sweep(pools: &[Pool], plan: &Plan, rules: &Rules, seed: u64, effect: f64) -> Vec<CaseData> {
    let mut rng = SplitMix::new(seed);
    let entry = EFFECTS
        .iter()
        .position(|e| e.to_bits() == effect.to_bits())
        .map_or(0, |at| at + 1);
    // Which kernel is slowed down is drawn too: case 0 of the sweep.
    let first = rng.below(pools.len());
    let available = pools[first][0].len();
    let lengths = [plan.base_runs, plan.now_runs, 2 * rules.confirm_repeats];
    let spare = available.saturating_sub(lengths.iter().sum());
    let mut gaps = [rng.below(spare + 1), rng.below(spare + 1), rng.below(spare + 1)];
    gaps.sort_unstable();
    let starts = [gaps[0], gaps[1] + lengths[0], gaps[2] + lengths[0] + lengths[1]];
    (0..pools.len())
        .map(|case| {
            let pool = &pools[(first + case) % pools.len()];
            let program = if case == 0 { &pool[entry] } else { &pool[0] };
            let stretch =
                |runs: &Runs, at: usize, length: usize| runs.iter().skip(at).take(length).cloned().collect::<Runs>();
            // A/B/B/A over the stretch of the fresh runs.
            let turns = starts[2]..starts[2] + lengths[2];
            let is_base = |turn: usize| matches!((turn - starts[2]) % 4, 0 | 3);
            let of = |runs: &Runs, base: bool| -> Runs {
                let turns = turns.clone().filter(|&turn| is_base(turn) == base);
                turns.filter_map(|turn| runs.get(turn).cloned()).collect()
            };
            CaseData {
                base: stretch(&pool[0], starts[0], lengths[0]),
                now: stretch(program, starts[1], lengths[1]),
                fresh_base: of(&pool[0], true),
                fresh_now: of(program, false),
            }
        })
        .collect()
}
