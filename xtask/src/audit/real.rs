//! Real sessions: process runs of kernels on this machine, with real delays inside the timed dispatches.
//!
//! Process runs are costly, so a pool of them is taken once, kernels and slowdowns in turn over the
//! whole time; sweeps are then drawn from it. The reference, the sweep and the fresh runs of one drawn
//! sweep are runs of different stretches of the pool, in the order in which they happened, so that
//! whatever drifts on the machine drifts between them too. Drawn sweeps share process runs, so the
//! intervals of the rates are those of as many sweeps as share none.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::{CaseData, EFFECTS, Plan, Runs};
use crate::compare::Rules;
use crate::stats::SplitMix;
use crate::turns::{Pipes, Turnstile};

/// A kernel to take process runs of.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name.
    pub kernel: String,
    /// Options of the case.
    pub options: Vec<String>,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kernel)?;
        self.options.iter().try_for_each(|option| write!(f, " {option}"))
    }
}

/// Process runs of one kernel, one of each in every turn.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Without a slowdown, as the reference.
    base: Runs,
    /// As the sweep's program: without a slowdown (a run is never held against itself), then with each of [`EFFECTS`].
    now: [Runs; PROGRAMS],
    /// The reference's program and each of those, in turn.
    pairs: [Vec<(Vec<f64>, Vec<f64>)>; PROGRAMS],
}

/// Programs that are held against the reference's.
const PROGRAMS: usize = 1 + EFFECTS.len();

impl Pool {
    /// Turns that were taken.
    pub fn turns(&self) -> usize {
        self.base.len()
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
    /// Two process runs can't take turns.
    #[error("failed to let two process runs of `{kernel}` take turns")]
    Turns {
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

/// How process runs are made.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The `kernel` binary.
    pub binary: &'a Path,
    /// Timed dispatches, where the subject's options don't say.
    pub rounds: usize,
}

impl Launch<'_> {
    fn rounds(&self, subject: &Subject) -> usize {
        let options = &subject.options;
        let at = options.iter().position(|option| option == "--rounds");
        let given = at.and_then(|at| options.get(at + 1)?.parse().ok());
        given.unwrap_or(self.rounds)
    }

    /// One process run whose timed dispatches are longer by the share `delay`: its samples, ns.
    fn alone(&self, subject: &Subject, delay: f64, pipes: Option<&Pipes>) -> Result<Vec<f64>, PoolError> {
        let kernel = subject.kernel.clone();
        let report = |source| PoolError::Report {
            kernel: kernel.clone(),
            source,
        };
        let file = tempfile::NamedTempFile::new().map_err(report)?;
        let (binary, name, options, path) = (self.binary, &subject.kernel, &subject.options, file.path());
        let start = |source| PoolError::Start {
            kernel: kernel.clone(),
            source,
        };
        // The runtime's defaults, which the kernels of an audit fit in.
        let (heap, slots) = (
            [268_435_456; 4].map(|n: u32| n.to_string()).join(","),
            [16384; 4].map(|n: u32| n.to_string()).join(","),
        );
        let rounds = (!options.iter().any(|option| option == "--rounds"))
            .then(|| ["--rounds".to_owned(), self.rounds.to_string()]);
        let rounds = rounds.iter().flatten();
        let turns = pipes.map(|pipes| ["--turns".to_owned(), pipes.argument()]);
        let turns = turns.iter().flatten();
        let delay = delay.to_string();
        let shell = xshell::Shell::new().map_err(start)?;
        xshell::cmd!(
            shell,
            "{binary} run {name} {options...} {rounds...} {turns...} --seed 0 --ring-heap {heap} --ring-task-window {slots} --ring-dep-pool {slots} --warmup 1 --delay {delay} --report {path}"
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

    /// A process run without a delay and one with it, their timed dispatches in turn.
    fn in_turn(&self, subject: &Subject, delay: f64) -> Result<(Vec<f64>, Vec<f64>), PoolError> {
        let failed = |source| PoolError::Turns {
            kernel: subject.kernel.clone(),
            source,
        };
        let directory = tempfile::tempdir().map_err(failed)?;
        let turnstile = Turnstile::create(directory.path()).map_err(failed)?;
        let ended = [AtomicBool::new(false), AtomicBool::new(false)];
        let runs = std::thread::scope(|scope| {
            let threads = [(0, 0.0), (1, delay)].map(|(side, delay)| {
                let (pipes, ended) = (&turnstile.pipes()[side], &ended[side]);
                scope.spawn(move || {
                    let run = self.alone(subject, delay, Some(pipes));
                    ended.store(true, Ordering::SeqCst);
                    run
                })
            });
            let has_ended = |side: usize| ended[side].load(Ordering::SeqCst);
            let rounds = u32::try_from(self.rounds(subject)).unwrap_or(u32::MAX);
            turnstile.preside(rounds, &has_ended, &mut || {});
            threads.map(|thread| thread.join().expect("a process run doesn't panic"))
        });
        let [base, now] = runs;
        Ok((base?, now?))
    }
}

/// When no more process runs are taken.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// After so many turns.
    pub turns: usize,
    /// After this time; a turn that was begun is finished.
    pub until: Option<Instant>,
}

/// Takes process runs of every subject, without a slowdown and with each of [`EFFECTS`], all in turn.
pub fn take(
    launch: Launch<'_>,
    subjects: &[Subject],
    limit: Limit,
    told: &mut dyn FnMut(usize),
) -> Result<Vec<Pool>, PoolError> {
    let mut pools: Vec<Pool> = vec![Pool::default(); subjects.len()];
    for turn in 0..limit.turns {
        if limit.until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        told(turn);
        for (subject, pool) in subjects.iter().zip(&mut pools) {
            pool.base.push(launch.alone(subject, 0.0, None)?);
            for program in 0..PROGRAMS {
                let delay = program.checked_sub(1).map_or(0.0, |effect| EFFECTS[effect]);
                pool.now[program].push(launch.alone(subject, delay, None)?);
                pool.pairs[program].push(launch.in_turn(subject, delay)?);
            }
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
///
/// Its case 0, the one that is slowed down, is kernel `slowed`, or drawn too.
pub fn sweep(
    pools: &[Pool],
    slowed: Option<usize>,
    plan: &Plan,
    rules: &Rules,
    seed: u64,
    effect: f64,
) -> Vec<CaseData> {
    let mut rng = SplitMix::new(seed);
    let entry = EFFECTS.iter().position(|e| e.to_bits() == effect.to_bits());
    let drawn = rng.below(pools.len());
    let first = slowed.unwrap_or(drawn);
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
            let program = entry.filter(|_| case == 0).map_or(0, |effect| 1 + effect);
            let stretch =
                |runs: &Runs, at: usize, length: usize| runs.iter().skip(at).take(length).cloned().collect::<Runs>();
            let turns = starts[2]..starts[2] + pairs;
            CaseData {
                base: stretch(&pool.base, starts[0], plan.base_runs),
                now: stretch(&pool.now[program], starts[1], plan.now_runs),
                fresh: turns
                    .filter_map(|turn| pool.pairs[program].get(turn).cloned())
                    .collect(),
            }
        })
        .collect()
}
