//! What a report says, with the wire left behind.

use std::collections::BTreeMap;

use crate::record::{Clock, ResourceSizes, RingShortage, RingUsage, StallFacts, TensorFacts, WorkCounters};

/// Everything that a report says, in the order in which it was said where order matters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The program by its own name; empty where there was no `hello`.
    pub program: String,
    /// Content hash of the executable, hex.
    pub kernel_hash: Option<String>,
    /// Seed of the fixture.
    pub seed: Option<u64>,
    /// Parameters as the program resolved them.
    pub params: BTreeMap<String, String>,
    /// Stages that ended, with their host time in nanoseconds and whether they went well.
    pub stages: Vec<(String, u64, Option<bool>)>,
    /// The stage that had begun and not ended.
    pub open_stage: Option<String>,
    /// Ring sizes of each dispatch and rank: what the program was asked for, and what the runtime says.
    pub rings: Vec<RingReport>,
    /// Dispatches, failed ones as well.
    pub dispatches: Vec<DispatchFacts>,
    /// Failures of dispatches in the order in which they happened.
    pub troubles: Vec<Trouble>,
    /// Comparisons of outputs.
    pub tensors: Vec<Validation>,
    /// Samples in ns with the clock that took them; numbers that are none are kept as [`Report::bad_samples`].
    pub samples: Vec<(Clock, u64)>,
    /// How many samples were zero or impossibly long.
    pub bad_samples: usize,
    /// Peak resident memory of the process, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// The program's own verdict.
    pub verdict: Option<VerdictClaim>,
}

/// Ring sizes of one dispatch on one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct RingReport {
    /// 0 for the correctness dispatch.
    pub dispatch: u32,
    /// Rank.
    pub rank: u32,
    /// What the program says it was asked for.
    pub asked: ResourceSizes,
    /// What the runtime says is in force; `None` where it can't tell.
    pub effective: Option<ResourceSizes>,
}

/// One dispatch on one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct DispatchFacts {
    /// 0 for the correctness dispatch.
    pub index: u32,
    /// Rank.
    pub rank: u32,
    /// Occupancy per ring, where it was reported for all four.
    pub usage: Option<[RingUsage; 4]>,
    /// Counters.
    pub work: Option<WorkCounters>,
    /// Whether a task reached a core.
    pub launched: Option<bool>,
}

/// A failure of one dispatch.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// The runtime gave up.
    Fatal(FatalFacts),
    /// The runtime's watchdog fired.
    Stall {
        /// 0 for the correctness dispatch.
        dispatch: u32,
        /// `S1`, `S3`, `S4`, `S5` or `unknown`.
        class: String,
        /// Counters.
        facts: StallFacts,
    },
    /// A task's code panicked.
    Panic {
        /// 0 for the correctness dispatch.
        dispatch: u32,
        /// The task.
        task: Option<String>,
        /// The panic's text.
        message: String,
    },
}

/// A fatal code of the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct FatalFacts {
    /// 0 for the correctness dispatch.
    pub dispatch: u32,
    /// Rank.
    pub rank: u32,
    /// The runtime's code.
    pub code: i64,
    /// The runtime's name of the code, such as `HEAP_RING_DEADLOCK`.
    pub name: String,
    /// What ran out.
    pub shortage: RingShortage,
    /// One sentence.
    pub message: String,
}

/// The comparison of one output.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// Numbers.
    pub facts: TensorFacts,
    /// Non-finite values of the output.
    pub nonfinite_actual: u64,
    /// Non-finite values of the golden.
    pub nonfinite_expected: u64,
    /// The comparison's own words.
    pub message: Option<String>,
}

impl Validation {
    /// Whether it passed. A non-finite value never does, whatever the program claims.
    pub fn passed(&self) -> bool {
        self.facts.verdict == "pass" && self.nonfinite_actual == 0 && self.nonfinite_expected == 0
    }
}

/// What the program itself says of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictClaim {
    /// Outcome token.
    pub verdict: String,
    /// Cause token; empty where there is none.
    pub cause: String,
    /// One sentence.
    pub message: String,
}

impl Trouble {
    /// The dispatch that failed.
    pub fn dispatch(&self) -> u32 {
        match self {
            Self::Fatal(facts) => facts.dispatch,
            Self::Stall { dispatch, .. } | Self::Panic { dispatch, .. } => *dispatch,
        }
    }
}

impl Report {
    /// The first effective ring config that the runtime told, and whether all that it told agree with `asked`.
    pub fn effective(&self) -> Option<ResourceSizes> {
        self.rings.iter().find_map(|rings| rings.effective)
    }

    /// The first dispatch whose asked or effective sizes are not `asked`.
    pub fn differing_rings(&self, asked: &ResourceSizes) -> Option<&RingReport> {
        self.rings
            .iter()
            .find(|rings| rings.asked != *asked || rings.effective.is_some_and(|sizes| sizes != *asked))
    }

    /// Peak occupancy over all dispatches and ranks.
    pub fn peak_usage(&self) -> Option<[RingUsage; 4]> {
        let usages = self.dispatches.iter().filter_map(|dispatch| dispatch.usage);
        usages.reduce(|a, b| std::array::from_fn(|ring| peak(a[ring], b[ring])))
    }

    /// Counters of the correctness dispatch, summed over its ranks.
    pub fn work(&self) -> Option<WorkCounters> {
        let of_first = self
            .dispatches
            .iter()
            .filter(|dispatch| dispatch.index == 0)
            .filter_map(|dispatch| dispatch.work);
        of_first.reduce(|a, b| WorkCounters {
            tasks_submitted: a.tasks_submitted + b.tasks_submitted,
            tasks_dispatched: a.tasks_dispatched + b.tasks_dispatched,
        })
    }

    /// Whether a task of this dispatch reached a core, where that is known.
    pub fn launched(&self, dispatch: u32) -> Option<bool> {
        let of_this = self.dispatches.iter().filter(|facts| facts.index == dispatch);
        of_this.filter_map(|facts| facts.launched).reduce(|a, b| a || b)
    }
}

fn peak(a: RingUsage, b: RingUsage) -> RingUsage {
    RingUsage {
        heap_capacity_bytes: a.heap_capacity_bytes.max(b.heap_capacity_bytes),
        heap_high_water_bytes: a.heap_high_water_bytes.max(b.heap_high_water_bytes),
        task_window: a.task_window.max(b.task_window),
        tasks_high_water: a.tasks_high_water.max(b.tasks_high_water),
        dep_pool: a.dep_pool.max(b.dep_pool),
        dep_pool_high_water: a.dep_pool_high_water.max(b.dep_pool_high_water),
        tasks_submitted: a.tasks_submitted.max(b.tasks_submitted),
    }
}
