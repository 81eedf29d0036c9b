//! What is still to be started, in order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use super::memory_of;
use crate::outcome::Outcome;
use crate::plan::{Plan, PlannedCase};
use crate::record::CaseRecord;

/// One attempt of one process run of one case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Job {
    /// Process run, from 0; first in the order, so that repeats interleave.
    pub(super) repeat: u32,
    /// Index in the plan.
    pub(super) case: usize,
    /// From 1.
    pub(super) attempt: u32,
}

/// How often later jobs may go ahead of one that doesn't fit.
const PATIENCE: u32 = 16;

/// A job with what it has been through.
#[derive(Debug)]
struct Waiting {
    job: Job,
    /// How often a later one went ahead.
    overtaken: u32,
    /// Since when it is the next one and can't be started.
    since: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Queue {
    jobs: VecDeque<Waiting>,
}

impl Waiting {
    fn new(job: Job) -> Self {
        Self {
            job,
            overtaken: 0,
            since: None,
        }
    }
}

impl Queue {
    /// Every process run of every case of `plan` but those that `done` has a verdict for.
    ///
    /// Of each repeat the cases with the most memory come first. Where cases share the machine, the large ones need not
    /// wait for room among small ones; and memory that a process gives back is at hand for a smaller one after it, while
    /// a larger one after it would need fresh memory, which a virtual machine may have to ask its host for.
    pub(super) fn new(plan: &Plan, repeat: NonZeroUsize, done: &[CaseRecord]) -> Self {
        let mut last: BTreeMap<(&str, u32), &CaseRecord> = BTreeMap::new();
        for record in done {
            last.insert((record.case.as_str(), record.repeat), record);
        }
        // An interrupted attempt says nothing of the case, and a missing record is none.
        let judged = |id: &str, repeat: u32| {
            last.get(&(id, repeat))
                .is_some_and(|record| !matches!(record.outcome, Outcome::Interrupted | Outcome::Missing))
        };
        let mut order: Vec<(usize, &PlannedCase)> = plan.cases.iter().enumerate().collect();
        // A stable sort: equal ones stay as they are declared.
        order.sort_by_key(|(_, case)| Reverse(memory_of(case)));
        let mut jobs = VecDeque::new();
        for repeat in 0..repeat.get() as u32 {
            for &(index, case) in &order {
                // A case that is skipped is so once, not once per process run.
                let skipped_already = repeat > 0 && case.disposition != crate::plan::Disposition::Run;
                if !skipped_already && !judged(case.id.as_str(), repeat) {
                    jobs.push_back(Waiting::new(Job {
                        repeat,
                        case: index,
                        attempt: 1,
                    }));
                }
            }
        }
        Self { jobs }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn get(&self, at: usize) -> Option<Job> {
        self.jobs.get(at).map(|waiting| waiting.job)
    }

    /// Takes the job at `at` out; how long it has waited as the next one.
    pub(super) fn remove(&mut self, at: usize, now: Instant) -> Duration {
        // Whoever stands before it has been overtaken.
        for waiting in self.jobs.iter_mut().take(at) {
            waiting.overtaken += 1;
        }
        let removed = self.jobs.remove(at);
        let since = removed.and_then(|waiting| waiting.since).unwrap_or(now);
        now.saturating_duration_since(since)
    }

    pub(super) fn push(&mut self, job: Job) {
        self.jobs.push_back(Waiting::new(job));
    }

    /// Notes that the job at `at` can't be started `now`; since when it is so. Only the next one waits: those behind it
    /// would not be started yet anyway.
    pub(super) fn waits(&mut self, at: usize, now: Instant) -> Option<Instant> {
        let waiting = self.jobs.get_mut(at).filter(|_| at == 0)?;
        Some(*waiting.since.get_or_insert(now))
    }

    /// Whether a later job may still start before the one at `at`.
    pub(super) fn may_be_overtaken(&self, at: usize) -> bool {
        self.jobs.get(at).is_some_and(|waiting| waiting.overtaken < PATIENCE)
    }
}
