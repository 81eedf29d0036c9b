//! What one layer of a suite (its defaults, a case, a platform override…) says of a case.

use std::collections::BTreeMap;

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
    pub command: Option<At<CommandSpec>>,
    /// The program of the pypto runner.
    pub pypto: Option<At<PyptoSpec>>,
}

/// A declared skip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The platforms; empty for all.
    pub on: Vec<At<PlatformName>>,
    /// The reason, as recorded.
    pub reason: String,
}

impl Layer {
    /// `self`, with `weaker` where it is silent. Maps, budgets and rings merge entry by entry, tags
    /// add up; `skip`, `expect`, `retry`, `command` and `pypto` are taken whole.
    #[must_use]
    pub fn over(self, weaker: Self) -> Self {
        fn map<V>(strong: BTreeMap<String, V>, mut weak: BTreeMap<String, V>) -> BTreeMap<String, V> {
            weak.extend(strong);
            weak
        }
        let mut tags = weaker.tags;
        tags.extend(self.tags);
        Self {
            description: self.description.or(weaker.description),
            kernel: self.kernel.or(weaker.kernel),
            params: map(self.params, weaker.params),
            ring: self.ring.over(weaker.ring),
            ring_span: self.ring_span.or(weaker.ring_span),
            ranks: self.ranks.or(weaker.ranks),
            devices: self.devices.or(weaker.devices),
            pin: self.pin.or(weaker.pin),
            level: self.level.or(weaker.level),
            memory: self.memory.or(weaker.memory),
            budgets: self.budgets.over(weaker.budgets),
            budgets_span: self.budgets_span.or(weaker.budgets_span),
            warmup: self.warmup.or(weaker.warmup),
            rounds: self.rounds.or(weaker.rounds),
            tolerances: map(self.tolerances, weaker.tolerances),
            tags,
            platforms: self.platforms.or(weaker.platforms),
            skip: self.skip.or(weaker.skip),
            expect: self.expect.or(weaker.expect),
            retry: self.retry.or(weaker.retry),
            env: map(self.env, weaker.env),
            runner: self.runner.or(weaker.runner),
            command: self.command.or(weaker.command),
            pypto: self.pypto.or(weaker.pypto),
        }
    }
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
    /// What holds on `platform`, without the layer of quick runs.
    pub fn at(&self, platform: &PlatformName) -> Layer {
        match self.on.get(platform) {
            Some(on) => on.value.clone().over(self.base.clone()),
            None => self.base.clone(),
        }
    }

    /// `self`, with `weaker` where it is silent, place by place.
    #[must_use]
    pub fn over(self, weaker: Self) -> Self {
        let mut on = weaker.on;
        for (platform, layer) in self.on {
            let weak = on.remove(&platform).map(|at| at.value).unwrap_or_default();
            on.insert(platform, layer.map(|strong| strong.over(weak)));
        }
        Self {
            base: self.base.over(weaker.base),
            on,
            quick: self.quick.over(weaker.quick),
        }
    }
}
