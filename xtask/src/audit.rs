//! The proof of the latency verdicts: how often they raise a false alarm, and how often they see a
//! slowdown that is there.
//!
//! Two sources of numbers. *Synthetic* sessions draw from distributions that are known to break
//! comparisons: heavy tails, two modes, drift between sessions, autocorrelation. *Real* ones are process
//! runs of kernels on this machine, whose slowdowns are real delays inside the timed dispatches. Beside
//! our verdicts stand plain thresholds, Criterion's rule and the Mann–Whitney test at 0.05, on the same
//! samples.

use rayon::prelude::*;

use crate::compare::Rules;
use crate::stats::{Rate, SplitMix, wilson_of};

mod method;
mod noise;
pub mod real;
mod table;

pub use method::Method;
pub use noise::Noise;
pub use table::{write, write_by_kernel};

/// Slowdowns that are injected, as shares.
pub const EFFECTS: [f64; 4] = [0.03, 0.05, 0.10, 0.20];

/// What one audit does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Cases per sweep; one of them is slowed down, where any is.
    pub cases: usize,
    /// Process runs of the reference.
    pub base_runs: usize,
    /// Process runs of a sweep.
    pub now_runs: usize,
    /// Timed dispatches per process run.
    pub rounds: usize,
    /// Sweeps without a slowdown, and as many with each.
    pub sweeps: usize,
    /// Seed of everything.
    pub seed: u64,
    /// As how many independent sweeps the drawn ones count in intervals; `None` for all.
    pub independent: Option<usize>,
}

/// Timed dispatches of some process runs, ns.
pub type Runs = Vec<Vec<f64>>;

/// What a method may look at for one case.
#[derive(Clone, Debug)]
pub struct CaseData {
    /// Process runs that the reference holds.
    pub base: Runs,
    /// Process runs of the sweep.
    pub now: Runs,
    /// Fresh process runs of the reference's program and of the sweep's that ran next to each other, in turn.
    pub fresh: Vec<(Vec<f64>, Vec<f64>)>,
}

/// How a method did on one source of numbers.
#[derive(Clone, Debug)]
pub struct Scores {
    /// The method.
    pub method: Method,
    /// Sweeps without a slowdown in which any case was called slower.
    pub false_alarms: Rate,
    /// Sweeps in which the slowed case was called slower, per entry of [`EFFECTS`].
    pub detected: Vec<Rate>,
}

/// Scores of every method on sweeps that `make` draws: from a seed and the slowdown of case 0.
pub fn score(plan: &Plan, rules: &Rules, make: impl Fn(u64, f64) -> Vec<CaseData> + Sync) -> Vec<Scores> {
    let alarms = |effect: f64, stream: u64| -> Vec<Vec<Vec<bool>>> {
        (0..plan.sweeps)
            .into_par_iter()
            .map(|sweep| {
                let seed = SplitMix::new(plan.seed ^ stream << 40 ^ (sweep as u64) << 8).next_u64();
                let cases = make(seed, effect);
                Method::ALL
                    .iter()
                    .map(|method| method.alarms(&cases, rules, seed))
                    .collect()
            })
            .collect()
    };
    let quiet = alarms(0.0, 0);
    let loud: Vec<_> = EFFECTS
        .iter()
        .zip(1..)
        .map(|(&effect, stream)| alarms(effect, stream))
        .collect();
    let rate = |sweeps: &[Vec<Vec<bool>>], hit: &dyn Fn(&Vec<Vec<bool>>) -> bool| {
        let hits = sweeps.iter().filter(|sweep| hit(sweep)).count();
        wilson_of(hits, sweeps.len(), plan.independent.unwrap_or(sweeps.len()))
    };
    Method::ALL
        .iter()
        .enumerate()
        .map(|(index, &method)| Scores {
            method,
            false_alarms: rate(&quiet, &|sweep| sweep[index].iter().any(|alarm| *alarm)),
            detected: loud
                .iter()
                .map(|sweeps| rate(sweeps, &|sweep| sweep[index][0]))
                .collect(),
        })
        .collect()
}

/// Scores on synthetic sessions of one kind of noise.
pub fn synthetic(plan: &Plan, rules: &Rules, noise: Noise) -> Vec<Scores> {
    score(plan, rules, |seed, effect| noise.sweep(plan, rules, seed, effect))
}
