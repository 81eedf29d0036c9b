//! What is still to be started, in order.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use crate::outcome::Outcome;
use crate::plan::Plan;
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

#[derive(Debug)]
pub(super) struct Queue {
    jobs: VecDeque<(Job, u32)>,
}

impl Queue {
    /// Every process run of every case of `plan` but those that `done` has a verdict for.
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
        let mut jobs = VecDeque::new();
        for repeat in 0..repeat.get() as u32 {
            for (index, case) in plan.cases.iter().enumerate() {
                // A case that is skipped is so once, not once per process run.
                let skipped_already = repeat > 0 && case.disposition != crate::plan::Disposition::Run;
                if !skipped_already && !judged(case.id.as_str(), repeat) {
                    jobs.push_back((
                        Job {
                            repeat,
                            case: index,
                            attempt: 1,
                        },
                        0,
                    ));
                }
            }
        }
        Self { jobs }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(super) fn get(&self, at: usize) -> Option<Job> {
        self.jobs.get(at).map(|(job, _)| *job)
    }

    pub(super) fn remove(&mut self, at: usize) {
        // Whoever stands before it has been overtaken.
        for (_, overtaken) in self.jobs.iter_mut().take(at) {
            *overtaken += 1;
        }
        self.jobs.remove(at);
    }

    pub(super) fn push(&mut self, job: Job) {
        self.jobs.push_back((job, 0));
    }

    /// Whether a later job may still start before the one at `at`.
    pub(super) fn may_be_overtaken(&self, at: usize) -> bool {
        self.jobs.get(at).is_some_and(|(_, overtaken)| *overtaken < PATIENCE)
    }
}
