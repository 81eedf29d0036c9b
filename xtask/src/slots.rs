//! Slots of this machine: how many cases may run at once, and in how much memory.
//!
//! A case that benchmarks runs alone: its samples would otherwise time its neighbours. That is
//! coarser than letting only the dispatches exclude each other, but the harness can't pause a
//! program between its dispatches without touching what it measures. Cases that only check results
//! share the machine. [`Sharing::Overlap`] lifts the rule.

use std::num::NonZeroUsize;

/// Whether benchmarks may share the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// A case that benchmarks runs alone.
    BenchmarksAlone,
    /// It doesn't have to: asked for, by someone who knows that the samples suffer.
    Overlap,
}

/// What a case takes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Declared peak memory, bytes.
    pub memory_bytes: u64,
    /// Whether it takes samples.
    pub benchmarks: bool,
}

/// What is taken and what is left.
#[derive(Clone, Debug)]
pub struct Slots {
    jobs: NonZeroUsize,
    memory_bytes: Option<u64>,
    sharing: Sharing,
    running: Vec<Claim>,
}

impl Slots {
    /// Slots for `jobs` cases in `memory_bytes` altogether (`None`: not limited).
    pub fn new(jobs: NonZeroUsize, memory_bytes: Option<u64>, sharing: Sharing) -> Self {
        Self {
            jobs,
            memory_bytes,
            sharing,
            running: Vec::new(),
        }
    }

    /// Whether a case with `claim` may start now.
    ///
    /// On an idle machine it always may: a case that is larger than the machine was refused by the plan.
    pub fn admits(&self, claim: Claim) -> bool {
        if self.running.is_empty() {
            return true;
        }
        let alone = self.sharing == Sharing::BenchmarksAlone
            && (claim.benchmarks || self.running.iter().any(|running| running.benchmarks));
        let used: u64 = self.running.iter().map(|running| running.memory_bytes).sum();
        let fits = self
            .memory_bytes
            .is_none_or(|memory| used.saturating_add(claim.memory_bytes) <= memory);
        !alone && fits && self.running.len() < self.jobs.get()
    }

    /// Takes `claim`, which was admitted.
    pub fn take(&mut self, claim: Claim) {
        self.running.push(claim);
    }

    /// Gives back what a case that took `claim` held.
    pub fn give_back(&mut self, claim: Claim) {
        if let Some(at) = self.running.iter().position(|running| *running == claim) {
            self.running.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checks(memory_bytes: u64) -> Claim {
        Claim {
            memory_bytes,
            benchmarks: false,
        }
    }

    #[test]
    fn benchmarks_run_alone_unless_asked() {
        let bench = Claim {
            memory_bytes: 1,
            benchmarks: true,
        };
        let jobs = NonZeroUsize::new(4).unwrap();
        let mut slots = Slots::new(jobs, None, Sharing::BenchmarksAlone);
        slots.take(bench);
        assert!(!slots.admits(checks(1)) && !slots.admits(bench));
        slots.give_back(bench);
        slots.take(checks(1));
        assert!(slots.admits(checks(1)) && !slots.admits(bench));
        let mut slots = Slots::new(jobs, None, Sharing::Overlap);
        slots.take(bench);
        assert!(slots.admits(bench));
    }

    #[test]
    fn an_idle_machine_takes_any_case() {
        assert!(Slots::new(NonZeroUsize::MIN, Some(10), Sharing::Overlap).admits(checks(11)));
    }

    proptest! {
        #[test]
        fn memory_and_jobs_are_never_exceeded(
            requests in prop::collection::vec((1_u64..100, any::<bool>()), 1..60),
            jobs in 1_usize..6,
        ) {
            let jobs = NonZeroUsize::new(jobs).unwrap();
            let mut slots = Slots::new(jobs, Some(100), Sharing::Overlap);
            let mut running: Vec<Claim> = Vec::new();
            for (memory_bytes, ends) in requests {
                let claim = checks(memory_bytes);
                if slots.admits(claim) {
                    slots.take(claim);
                    running.push(claim);
                }
                prop_assert!(running.len() <= jobs.get());
                prop_assert!(running.iter().map(|claim| claim.memory_bytes).sum::<u64>() <= 100);
                if ends && let Some(claim) = running.pop() {
                    slots.give_back(claim);
                }
            }
        }
    }
}
