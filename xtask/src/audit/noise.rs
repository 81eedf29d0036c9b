//! Synthetic sessions: what machines do to latencies, one vice at a time.

use super::{CaseData, Plan, Runs};
use crate::compare::Rules;
use crate::stats::SplitMix;

/// A kind of noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Normal: 1 % between process runs, 2 % within.
    Normal,
    /// Process runs of Student's t with 3 degrees of freedom at 1 %, one dispatch in 20 up to several times as long.
    HeavyTail,
    /// Three process runs in ten are 4 % slower: placement of pages or code.
    Bimodal,
    /// All cases of a session move by 2 % together, and by 2 % more over its length.
    Drift,
    /// Neighbouring process runs and dispatches resemble each other (0.7 and 0.9), at 1.5 % and 2 %.
    Autocorrelated,
}

impl Noise {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Normal,
        Self::HeavyTail,
        Self::Bimodal,
        Self::Drift,
        Self::Autocorrelated,
    ];

    /// The word for it.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::HeavyTail => "heavy tail",
            Self::Bimodal => "bimodal",
            Self::Drift => "drift",
            Self::Autocorrelated => "autocorrelated",
        }
    }

    /// One sweep against its reference; case 0 is slower by `effect`.
    ///
    /// The reference, the sweep and the fresh runs are three sessions; within the third both programs
    /// are interleaved A/B/B/A, so that a drift hits both.
    pub(super) fn sweep(self, plan: &Plan, rules: &Rules, seed: u64, effect: f64) -> Vec<CaseData> {
        let mut rng = SplitMix::new(seed);
        let [earlier, now, fresh] = std::array::from_fn(|_| self.session_offset(&mut rng));
        (0..plan.cases)
            .map(|case| {
                // Latencies from 50 µs to 50 ms, and each case with a spread of its own.
                let centre = 5e4 * 1e3_f64.powf(rng.unit());
                let wildness = 0.5 + rng.unit();
                let slow = if case == 0 { 1.0 + effect } else { 1.0 };
                let mut draw = |offset: f64, runs: usize, factors: &dyn Fn(usize) -> f64| {
                    self.runs(&mut rng, centre * offset, wildness, runs, plan.rounds, factors)
                };
                let base = draw(earlier, plan.base_runs, &|_| 1.0);
                let current = draw(now, plan.now_runs, &|_| slow);
                // A/B/B/A: runs 0, 3, 4, 7, … are the reference's.
                let is_base = |run: usize| matches!(run % 4, 0 | 3);
                let both = draw(fresh, 2 * rules.confirm_repeats * rules.confirm_looks, &|run| {
                    if is_base(run) { 1.0 } else { slow }
                });
                let turns = both.chunks_exact(2).enumerate().map(|(pair, runs)| {
                    let [first, second] = [runs[0].clone(), runs[1].clone()];
                    if is_base(2 * pair) {
                        (first, second)
                    } else {
                        (second, first)
                    }
                });
                CaseData {
                    base,
                    now: current,
                    fresh: turns.collect(),
                }
            })
            .collect()
    }

    fn session_offset(self, rng: &mut SplitMix) -> f64 {
        match self {
            Self::Drift => 1.0 + 0.02 * rng.normal(),
            Self::Normal | Self::HeavyTail | Self::Bimodal | Self::Autocorrelated => 1.0,
        }
    }

    /// Process runs of one case, in order.
    fn runs(
        self,
        rng: &mut SplitMix,
        centre: f64,
        wildness: f64,
        count: usize,
        rounds: usize,
        factor: &dyn Fn(usize) -> f64,
    ) -> Runs {
        let mut run_state = rng.normal();
        (0..count)
            .map(|run| {
                let level = match self {
                    Self::Normal => 0.01 * rng.normal(),
                    // A normal over the root of a mean of three squares.
                    Self::HeavyTail => {
                        let squares: f64 = (0..3).map(|_| rng.normal().powi(2)).sum();
                        0.01 * rng.normal() / (squares / 3.0).sqrt()
                    }
                    Self::Bimodal => 0.005 * rng.normal() + if rng.unit() < 0.3 { 0.04 } else { 0.0 },
                    Self::Drift => 0.01 * rng.normal() + 0.02 * run as f64 / count as f64,
                    Self::Autocorrelated => {
                        run_state = 0.7 * run_state + (1.0 - 0.7 * 0.7_f64).sqrt() * rng.normal();
                        0.015 * run_state
                    }
                };
                let mut state = rng.normal();
                let middle = centre * factor(run) * (level * wildness).exp();
                (0..rounds)
                    .map(|_| {
                        let wobble = match self {
                            Self::Autocorrelated => {
                                state = 0.9 * state + (1.0 - 0.9 * 0.9_f64).sqrt() * rng.normal();
                                0.02 * state
                            }
                            Self::HeavyTail if rng.unit() < 0.05 => 0.1 * rng.unit().powf(-0.7),
                            Self::Normal | Self::HeavyTail | Self::Bimodal | Self::Drift => 0.02 * rng.normal(),
                        };
                        middle * wobble.min(3.0).exp()
                    })
                    .collect()
            })
            .collect()
    }
}
