//! The layers that decide one case, strongest first, read without being merged.
//!
//! A matrix may have very many points that share all but a few values; so layers are shared, and a
//! setting is looked up when it is needed.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    budget::BudgetLayer,
    layer::{Layer, Settings},
};
use crate::{diagnostic::Span, document::At, platform::PlatformName, ring::RingLayer};

/// The settings of one case: its own table, the values of its point, and the overrides that match it.
#[derive(Clone, Debug)]
pub struct CaseTier {
    /// The table of the case or matrix.
    pub(super) own: Arc<Settings>,
    /// One layer per axis.
    pub(super) point: Vec<Arc<Layer>>,
    /// Overrides in declared order: a later one is stronger.
    pub(super) overrides: Vec<Arc<Settings>>,
}

impl CaseTier {
    /// Its tables, strongest first.
    pub fn settings(&self) -> impl Iterator<Item = &Settings> {
        self.overrides.iter().rev().chain([&self.own]).map(Arc::as_ref)
    }

    /// All its layers, in no order.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        let point = self.point.iter().map(Arc::as_ref);
        self.settings().flat_map(Settings::layers).chain(point)
    }

    fn push<'a>(&'a self, platform: Option<&PlatformName>, stack: &mut Vec<&'a Layer>) {
        for settings in self.settings() {
            push_on(settings, platform, stack);
        }
        stack.extend(self.overrides.iter().rev().map(|settings| &settings.base));
        stack.extend(self.point.iter().map(Arc::as_ref));
        stack.push(&self.own.base);
    }
}

fn push_on<'a>(settings: &'a Settings, platform: Option<&PlatformName>, stack: &mut Vec<&'a Layer>) {
    stack.extend(
        platform
            .and_then(|name| settings.on.get(name))
            .map(|layer| &layer.value),
    );
}

/// Layers in the order in which they decide, strongest first.
#[derive(Clone, Debug)]
pub struct Stack<'a> {
    /// Those of quick runs, which alone say how often a quick run dispatches.
    quick: Vec<&'a Layer>,
    /// All others.
    full: Vec<&'a Layer>,
    is_quick: bool,
}

impl<'a> Stack<'a> {
    /// The stack of a full run: `case` over `defaults`, on `platform` or wherever nothing is said of it.
    pub(super) fn full(case: &'a CaseTier, defaults: &'a Settings, platform: Option<&PlatformName>) -> Self {
        let mut full = Vec::with_capacity(8);
        case.push(platform, &mut full);
        push_on(defaults, platform, &mut full);
        full.push(&defaults.base);
        Self {
            quick: Vec::new(),
            full,
            is_quick: false,
        }
    }

    /// The stack of a quick run.
    pub(super) fn quick(case: &'a CaseTier, defaults: &'a Settings, platform: Option<&PlatformName>) -> Self {
        let quick = case.settings().chain([defaults]).map(|settings| &settings.quick);
        Self {
            quick: quick.collect(),
            is_quick: true,
            ..Self::full(case, defaults, platform)
        }
    }

    /// The layers of one tier alone.
    pub(super) fn case_tier(case: &'a CaseTier, platform: Option<&PlatformName>) -> Self {
        let mut full = Vec::with_capacity(4);
        case.push(platform, &mut full);
        Self {
            quick: Vec::new(),
            full,
            is_quick: false,
        }
    }

    /// The layers of the suite's defaults alone.
    pub(super) fn suite_tier(defaults: &'a Settings, platform: Option<&PlatformName>) -> Self {
        let mut full = Vec::with_capacity(2);
        push_on(defaults, platform, &mut full);
        full.push(&defaults.base);
        Self {
            quick: Vec::new(),
            full,
            is_quick: false,
        }
    }

    fn layers(&self) -> impl DoubleEndedIterator<Item = &'a Layer> {
        self.quick.iter().chain(&self.full).copied()
    }

    /// What the strongest layer that isn't silent says.
    pub fn first<T>(&self, of: impl Fn(&'a Layer) -> Option<T>) -> Option<T> {
        self.layers().find_map(of)
    }

    /// Entries by name, each from the strongest layer that has it.
    pub fn entries<V>(&self, of: impl Fn(&'a Layer) -> &'a BTreeMap<String, At<V>>) -> BTreeMap<&'a str, &'a At<V>> {
        let mut merged = BTreeMap::new();
        for layer in self.layers().rev() {
            merged.extend(of(layer).iter().map(|(name, value)| (name.as_str(), value)));
        }
        merged
    }

    /// The tags of all layers, sorted.
    pub fn tags(&self) -> Vec<&'a str> {
        let mut tags: Vec<_> = self
            .layers()
            .flat_map(|layer| &layer.tags)
            .map(|tag| tag.value.as_str())
            .collect();
        tags.sort_unstable();
        tags.dedup();
        tags
    }

    /// The budgets, merged one by one.
    pub fn budgets(&self) -> BudgetLayer {
        self.layers()
            .fold(BudgetLayer::default(), |strong, layer| strong.over(layer.budgets))
    }

    /// The rings, merged ring by ring.
    pub fn ring(&self) -> RingLayer {
        self.layers()
            .fold(RingLayer::default(), |strong, layer| strong.over(layer.ring))
    }

    /// Where the strongest ring config stands.
    pub fn ring_span(&self) -> Option<&'a Span> {
        self.first(|layer| layer.ring_span.as_ref())
    }

    /// How often is dispatched before timing.
    pub fn warmup(&self) -> Option<u32> {
        self.bench(|layer| layer.warmup.as_ref())
    }

    /// How often is dispatched and timed.
    pub fn rounds(&self) -> Option<u32> {
        self.bench(|layer| layer.rounds.as_ref())
    }

    /// How often a full run dispatches says nothing of a quick one.
    fn bench(&self, of: impl Fn(&'a Layer) -> Option<&'a At<u32>>) -> Option<u32> {
        let layers = if self.is_quick { &self.quick } else { &self.full };
        layers.iter().find_map(|layer| of(layer)).map(|at| at.value)
    }
}
