//! What one layer of a suite (its defaults, a case, a platform override…) says of a case.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    budget::BudgetLayer,
    expect::{Expectation, Retry},
    runner::{CommandSpec, PyptoSpec, RunnerKind},
};
use crate::{diagnostic::Span, document::At, plan::Level, platform::PlatformName, ring::RingLayer, size::Bytes};

/// Settings of a case, each absent where the layer is silent.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// What the case is, for listings.
    pub description: Option<At<String>>,
    /// The kernel of the embedded runner.
    pub kernel: Option<At<String>>,
    /// Parameters by name.
    pub params: BTreeMap<String, At<String>>,
    /// The ring config.
    pub ring: RingLayer,
    /// Where the ring config stands.
    pub ring_span: Option<Span>,
    /// Ranks.
    pub ranks: Option<At<u32>>,
    /// Device slots.
    pub devices: Option<At<u32>>,
    /// Device ids that the case must have.
    pub pin: Option<At<Vec<u32>>>,
    /// Level, where no kernel list tells it.
    pub level: Option<At<Level>>,
    /// Peak memory.
    pub memory: Option<At<Bytes>>,
    /// Address space of each of its processes.
    pub memory_limit: Option<At<Bytes>>,
    /// Time limits.
    pub budgets: BudgetLayer,
    /// Where the time limits stand.
    pub budgets_span: Option<Span>,
    /// Warm-up dispatches.
    pub warmup: Option<At<u32>>,
    /// Timed dispatches.
    pub rounds: Option<At<u32>>,
    /// Tolerances by the kernel's names.
    pub tolerances: BTreeMap<String, At<f64>>,
    /// Words to select by; those of all layers add up.
    pub tags: Vec<At<String>>,
    /// The platforms on which the case exists.
    pub platforms: Option<At<Vec<At<PlatformName>>>>,
    /// Where and why it is skipped.
    pub skip: Option<At<Skip>>,
    /// A known failure.
    pub expect: Option<At<Expectation>>,
    /// When it is tried again.
    pub retry: Option<At<Retry>>,
    /// Environment variables.
    pub env: BTreeMap<String, At<String>>,
    /// The runner, where the platform's isn't wanted.
    pub runner: Option<At<RunnerKind>>,
    /// The program of the command runner.
    pub command: Option<At<Arc<CommandSpec>>>,
    /// The program of the pypto runner.
    pub pypto: Option<At<Arc<PyptoSpec>>>,
}

/// A declared skip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The platforms; empty for all.
    pub on: Vec<At<PlatformName>>,
    /// The reason, as recorded.
    pub reason: String,
}

/// A layer with what it says of single platforms and of quick runs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// For every platform.
    pub base: Layer,
    /// By platform, over `base`; where the platform is named.
    pub on: BTreeMap<PlatformName, At<Layer>>,
    /// For quick runs, over both.
    pub quick: Layer,
}

impl Settings {
    /// All its layers, in no order.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        let on = self.on.values().map(|layer| &layer.value);
        on.chain([&self.base, &self.quick])
    }
}
