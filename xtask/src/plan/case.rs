//! One case of a plan.

use std::{collections::BTreeMap, fmt};

use crate::{
    case_id::CaseId,
    ring::RingConfig,
    size::Bytes,
    suite::{
        budget::Budgets,
        expect::{Expectation, Retry},
        runner::RunnerSpec,
    },
};

/// A case as it will be run.
#[derive(Clone, Debug)]
pub struct PlannedCase {
    /// Its id.
    pub id: CaseId,
    /// What it is, for listings.
    pub description: Option<String>,
    /// What is done with it.
    pub disposition: Disposition,
    /// How it is started.
    pub runner: RunnerSpec,
    /// Its kernel's parameters, for any runner.
    pub params: BTreeMap<String, String>,
    /// One device or several ranks; `None` where nobody says.
    pub level: Option<Level>,
    /// How many ranks it has, each with rings of its own; at least 1.
    pub ranks: u32,
    /// How many device slots it takes; 0 on platforms without devices.
    pub devices: u32,
    /// The devices that it must have; empty for any.
    pub pin: Vec<u32>,
    /// Its declared peak memory, all ranks together.
    pub memory: Option<Bytes>,
    /// Address space that each of its processes may have; allocations beyond it fail.
    pub memory_limit: Option<Bytes>,
    /// The rings of every dispatch.
    pub rings: RingConfig,
    /// Its time limits.
    pub budgets: Budgets,
    /// The sizes of its benchmark.
    pub bench: Bench,
    /// The seed of its inputs.
    pub seed: u64,
    /// Variables that it declares, over those of the platform.
    pub env: BTreeMap<String, String>,
    /// Words to select it by, sorted.
    pub tags: Vec<String>,
    /// A known failure.
    pub expect: Option<Expectation>,
    /// When it is tried again.
    pub retry: Option<Retry>,
}

/// What is done with a planned case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It is started.
    Run,
    /// It is recorded as skipped; the declared reason.
    Skip(String),
}

/// How many dispatches follow the correctness dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bench {
    /// Dispatches that are not timed.
    pub warmup: u32,
    /// Timed dispatches; 0 means no benchmark.
    pub rounds: u32,
}

/// How many devices a program spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// One device.
    L2,
    /// Several ranks.
    L3,
}

impl Level {
    /// Both levels.
    pub const ALL: [Self; 2] = [Self::L2, Self::L3];

    /// The word in listings.
    pub const fn token(self) -> &'static str {
        match self {
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.token())
    }
}
