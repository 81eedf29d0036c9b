//! Replays all rows and tells agreement from disagreement.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::execute::{Rings, execute};
use crate::graph::Graph;
use crate::verdict::{Row, Verdict};

/// The original's own backstop, for the second look.
const FULL_BACKSTOP: Duration = Duration::from_millis(500);

/// Why a row is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Quirk {
    /// Fan-in spill reclaim with a small window reads a newer task's slot.
    SpillAlias,
    /// The verdict depends on the mark that an earlier occupant left in an allocation's slot.
    StaleMark,
    /// The sum of a task's outputs wraps at 2 GiB.
    WrappedSum,
}

impl Quirk {
    fn of(row: &Row, graph: &Graph) -> Option<Self> {
        if row.stale_mark_sensitive {
            Some(Self::StaleMark)
        } else if graph.exceeds_two_gib() {
            Some(Self::WrappedSum)
        } else if row.differs_from_rules {
            Some(Self::SpillAlias)
        } else {
            None
        }
    }

    /// What we do about it, and why.
    pub(crate) fn policy(self) -> &'static str {
        match self {
            Self::SpillAlias => {
                "repaired: the original frees a live task's spilled edges when its reclaim is more than a window behind, \
                 so wrong producers are released later; here spilled edges are freed exactly as their tasks retire"
            }
            Self::StaleMark => {
                "copied as far as it is defined: a reclaim that lands on an allocation frees nothing; the original frees \
                 up to whatever mark an earlier occupant, even of an earlier run, left in the slot"
            }
            Self::WrappedSum => {
                "repaired: outputs of 2 GiB or more are rejected with code 5; the original's 32-bit sum wraps"
            }
        }
    }
}

/// How one row came out.
pub(crate) struct Outcome {
    pub(crate) row: usize,
    pub(crate) expected: Verdict,
    pub(crate) ours: Verdict,
    pub(crate) quirk: Option<Quirk>,
    pub(crate) second_look: bool,
}

impl Outcome {
    pub(crate) fn agrees(&self) -> bool {
        self.expected.agrees(&self.ours)
    }
}

/// How a replay is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Backstop of allocations in the first look.
    pub(crate) alloc: Duration,
    /// Rows in flight.
    pub(crate) jobs: usize,
}

/// Runs `count` pieces of work on several threads.
fn in_parallel(count: usize, jobs: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    work(index);
                }
            });
        }
    });
}

/// Runs one configuration. A backstop under a shortened limit may be the machine's fault and not the
/// ring's, so a disagreement that comes from one is looked at again under the full limit.
fn judge(graph: &Graph, rings: &Rings, settings: Settings, expected: impl Fn(&Verdict) -> bool) -> (Verdict, bool) {
    let first = execute(graph, rings, settings.alloc);
    if expected(&first) || first.proof != Some("backstop") || settings.alloc >= FULL_BACKSTOP {
        return (first, false);
    }
    (execute(graph, rings, FULL_BACKSTOP), true)
}

/// Replays all rows; the outcomes are in the order of the rows.
pub(crate) fn replay(graphs: &BTreeMap<String, Graph>, rows: &[Row], settings: Settings) -> Vec<Outcome> {
    let outcomes = Mutex::new(Vec::with_capacity(rows.len()));
    in_parallel(rows.len(), settings.jobs, |index| {
        let row = &rows[index];
        let graph = &graphs[&row.graph];
        let rings = Rings {
            heap: row.heap,
            window: row.window,
            dep_pool: row.dep_pool,
        };
        let expected = row.verdict();
        let quirk = Quirk::of(row, graph);
        let (ours, second_look) = judge(graph, &rings, settings, |ours| quirk.is_some() || expected.agrees(ours));
        let outcome = Outcome {
            row: index,
            expected,
            ours,
            quirk,
            second_look,
        };
        outcomes.lock().expect("no panics under the lock").push(outcome);
    });
    let mut outcomes = outcomes.into_inner().expect("no panics under the lock");
    outcomes.sort_by_key(|outcome| outcome.row);
    outcomes
}

/// Checks the least passing heaps; returns how many statements were checked, and those that are not true here.
pub(crate) fn thresholds(graphs: &BTreeMap<String, Graph>, settings: Settings) -> (usize, Vec<String>) {
    let mut checks = Vec::new();
    for graph in graphs.values().filter(|graph| !graph.exceeds_two_gib()) {
        for threshold in &graph.thresholds {
            checks.push((graph, threshold.ring, threshold.least_pass, true));
            if threshold.least_pass > 1024 {
                checks.push((graph, threshold.ring, threshold.least_pass - 1024, false));
            }
            for &larger in &threshold.larger_heaps_that_fail {
                checks.push((graph, threshold.ring, larger, false));
            }
        }
    }
    let wrong = Mutex::new(Vec::new());
    in_parallel(checks.len(), settings.jobs, |index| {
        let (graph, ring, bytes, passes) = checks[index];
        let mut rings = Rings {
            heap: [4_194_304; 4],
            window: [512; 4],
            dep_pool: [2048; 4],
        };
        rings.heap[ring] = bytes;
        let (ours, _) = judge(graph, &rings, settings, |ours| (ours.code == 0) == passes);
        if (ours.code == 0) != passes {
            let mut line = String::new();
            let should = if passes { "pass" } else { "fail" };
            write!(
                line,
                "{} ring {ring} heap {bytes}: should {should}, ours {ours:?}",
                graph.id
            )
            .expect("a string takes everything");
            wrong.lock().expect("no panics under the lock").push(line);
        }
    });
    let mut wrong = wrong.into_inner().expect("no panics under the lock");
    wrong.sort();
    (checks.len(), wrong)
}
