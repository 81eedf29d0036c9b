//! The verdicts' file: what one run of the original did with a graph under a configuration.

use std::collections::BTreeMap;

use ring_runtime::{Proof, Resource, RunEnd, RunReport};
use serde::Deserialize;

/// Numbers of a fatal message that must match exactly. The others depend on how far tasks had come.
const STRICT: [&str; 7] = [
    "requested",
    "top",
    "tail",
    "last_alive",
    "current",
    "needed",
    "scope_task_count",
];

/// One row.
#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    pub(crate) graph: String,
    pub(crate) platform: String,
    pub(crate) heap: [u64; 4],
    pub(crate) window: [u32; 4],
    pub(crate) dep_pool: [u32; 4],
    pub(crate) pass: bool,
    pub(crate) orch_error_code: u8,
    #[serde(default)]
    resource: Option<String>,
    #[serde(default)]
    ring: Option<usize>,
    #[serde(default)]
    proof: Option<String>,
    #[serde(default)]
    fail_op: Option<usize>,
    #[serde(default)]
    numbers: Option<Numbers>,
    #[serde(default)]
    pub(crate) differs_from_rules: bool,
    #[serde(default)]
    pub(crate) stale_mark_sensitive: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Numbers {
    requested: Option<u64>,
    top: Option<u64>,
    tail: Option<u64>,
    used: Option<u64>,
    available: Option<u64>,
    last_alive: Option<u64>,
    current: Option<u64>,
    needed: Option<u64>,
    pool_used: Option<u64>,
    pool_top: Option<u64>,
    pool_tail: Option<u64>,
    pool_current: Option<u64>,
    pool_last_alive: Option<u64>,
    scope_task_count: Option<u64>,
}

/// A verdict in comparable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) code: u8,
    resource: Option<String>,
    ring: Option<usize>,
    fail_op: Option<usize>,
    numbers: BTreeMap<&'static str, u64>,
    pub(crate) proof: Option<&'static str>,
    /// A fact about our run that no row has: a stall, a panic.
    other: Option<String>,
}

impl Row {
    /// What the original said.
    pub(crate) fn verdict(&self) -> Verdict {
        let numbers = self.numbers.clone().unwrap_or_default();
        let numbers = [
            ("requested", numbers.requested),
            ("top", numbers.top),
            ("tail", numbers.tail),
            ("used", numbers.used),
            ("available", numbers.available),
            ("last_alive", numbers.last_alive),
            ("current", numbers.current),
            ("needed", numbers.needed),
            ("pool_used", numbers.pool_used),
            ("pool_top", numbers.pool_top),
            ("pool_tail", numbers.pool_tail),
            ("pool_current", numbers.pool_current),
            ("pool_last_alive", numbers.pool_last_alive),
            ("scope_task_count", numbers.scope_task_count),
        ];
        Verdict {
            code: if self.pass { 0 } else { self.orch_error_code },
            resource: self.resource.clone(),
            ring: self.ring,
            fail_op: self.fail_op,
            numbers: numbers.into_iter().filter_map(|(name, n)| Some((name, n?))).collect(),
            proof: match self.proof.as_deref() {
                Some("immediate") => Some("immediate"),
                Some("structural") => Some("structural"),
                Some("backstop") => Some("backstop"),
                Some(_) | None => None,
            },
            other: None,
        }
    }
}

impl Verdict {
    /// What our runtime said; `fail_op` is the operation that was being executed last.
    pub(crate) fn of(report: &RunReport, fail_op: usize) -> Self {
        let mut verdict = Self {
            code: 0,
            resource: None,
            ring: None,
            fail_op: None,
            numbers: BTreeMap::new(),
            proof: None,
            other: None,
        };
        match &report.end {
            RunEnd::Passed => {}
            RunEnd::Fatal(fatal) => {
                verdict.code = fatal.code.number();
                verdict.resource = Some(fatal.resource.name().to_owned());
                verdict.ring = fatal.ring.map(ring_runtime::RingId::index);
                verdict.fail_op = Some(fail_op);
                verdict.numbers = numbers(&fatal.resource);
                verdict.proof = fatal.proof.map(|proof| match proof {
                    Proof::Immediate => "immediate",
                    Proof::Structural => "structural",
                    Proof::Backstop => "backstop",
                });
            }
            end @ (RunEnd::Stalled(_) | RunEnd::Panicked(_) | RunEnd::Stopped | RunEnd::Poisoned) => {
                verdict.other = Some(format!("{end:?}"));
            }
        }
        verdict
    }

    /// Whether the two agree in all that must be equal.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let strict = |v: &Self| {
            let mut v = v.clone();
            v.proof = None;
            v.numbers.retain(|name, _| STRICT.contains(name));
            v
        };
        strict(self) == strict(other)
    }

    /// Whether all numbers agree, those that depend on timing included.
    pub(crate) fn same_numbers(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }
}

fn numbers(resource: &Resource) -> BTreeMap<&'static str, u64> {
    let mut numbers = BTreeMap::new();
    match resource {
        Resource::Heap(state) | Resource::Slots(state) => {
            if matches!(resource, Resource::Heap(_)) {
                numbers.insert("requested", state.requested);
            }
            numbers.extend([
                ("top", state.top),
                ("tail", state.tail),
                // The original takes the remainder, so a linear fill to the last byte prints as 0.
                ("used", state.used % state.capacity),
                ("available", state.free),
                ("last_alive", state.last_alive.into()),
                ("current", state.current.into()),
            ]);
        }
        Resource::DepPool(state) | Resource::FaninPool(state) => numbers.extend([
            ("needed", state.needed.into()),
            ("pool_used", state.used.into()),
            ("pool_top", state.top),
            ("pool_tail", state.tail),
            ("pool_current", state.current.into()),
            ("pool_last_alive", state.last_alive.into()),
        ]),
        Resource::Scope { tasks, .. } => {
            numbers.insert("scope_task_count", *tasks as u64);
        }
        Resource::TensorMap { .. }
        | Resource::ScopeTasks { .. }
        | Resource::Cores { .. }
        | Resource::TensorData { .. }
        | Resource::Arguments
        | Resource::Program => {}
    }
    numbers
}
