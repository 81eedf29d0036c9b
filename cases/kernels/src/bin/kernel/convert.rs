//! From the runtime's and the comparison's types to report lines.

use kernels::compare::{Outcome, TensorVerdict};
use ring_runtime::{Fatal, Proof, Resource, RingId, RingUsage};

use crate::wire;

impl From<RingUsage> for wire::Usage {
    fn from(ring: RingUsage) -> Self {
        Self {
            heap_capacity_bytes: ring.heap_capacity,
            heap_high_water_bytes: ring.heap_high_water,
            task_window: ring.task_window.into(),
            tasks_high_water: ring.tasks_high_water.into(),
            dep_pool: ring.dep_pool.into(),
            dep_pool_high_water: ring.dep_pool_high_water.into(),
            tasks_submitted: ring.tasks_submitted.into(),
        }
    }
}

impl From<&TensorVerdict> for wire::Tensor {
    fn from(v: &TensorVerdict) -> Self {
        let verdict = match v.outcome {
            Outcome::Pass => "pass",
            Outcome::Mismatch => "mismatch",
            Outcome::Nan => "nan",
            Outcome::GoldenNan => "golden-nan",
        };
        Self {
            name: v.name.clone(),
            dtype: v.dtype.name(),
            shape: v.shape.clone(),
            rule: v.rule.clone(),
            verdict,
            total: v.total,
            mismatched: v.mismatched,
            allowed: v.allowed,
            max_abs_err: wire::number(v.max_abs_err),
            max_rel_err: wire::number(v.max_rel_err),
            first_index: v.first.as_ref().map(|f| f.index.clone()),
            actual: v.first.as_ref().map(|f| wire::number(f.actual)),
            expected: v.first.as_ref().map(|f| wire::number(f.expected)),
            nonfinite_actual: v.nonfinite_actual,
            nonfinite_expected: v.nonfinite_expected,
            first_row: v.first_row,
            nonfinite_rows: v.nonfinite_rows,
            all_nan_rows: v.all_nan_rows,
            message: v.message.clone(),
        }
    }
}

/// Name of the resource as the report spells it.
fn resource(resource: &Resource) -> &'static str {
    match resource {
        Resource::Scope { .. } | Resource::ScopeTasks { .. } => "scope",
        Resource::Heap(_) => "heap",
        Resource::Slots(_) => "slots",
        Resource::DepPool(_) => "dep_pool",
        Resource::FaninPool(_) => "fanin_pool",
        Resource::TensorMap { .. } => "tensormap",
        Resource::Arguments => "invalid_args",
        Resource::Cores { .. } => "sync_start",
        Resource::TensorData { .. } => "tensor_wait",
        Resource::Program => "explicit",
    }
}

/// Requested, free and capacity: bytes of a heap, entries or slots of the others.
fn amounts(resource: &Resource) -> [Option<u64>; 3] {
    match *resource {
        Resource::Heap(s) => [Some(s.requested), Some(s.free), Some(s.capacity)],
        Resource::Slots(s) => {
            let usable = s.window.saturating_sub(1);
            [
                Some(1),
                Some(usable.saturating_sub(s.active()).into()),
                Some(s.window.into()),
            ]
        }
        Resource::Scope { tasks, window, .. } => {
            let usable = u64::from(window).saturating_sub(1);
            [Some(1), Some(usable.saturating_sub(tasks as u64)), Some(window.into())]
        }
        Resource::DepPool(p) | Resource::FaninPool(p) => [
            Some(p.needed.into()),
            Some(p.capacity.saturating_sub(p.used).into()),
            Some(p.capacity.into()),
        ],
        Resource::TensorMap { needed, used, capacity } => [
            Some(needed as u64),
            Some(capacity.saturating_sub(used) as u64),
            Some(capacity as u64),
        ],
        Resource::ScopeTasks { capacity } => [Some(1), Some(0), Some(capacity as u64)],
        Resource::Cores { blocks, cores } => [Some(blocks as u64), None, Some(cores as u64)],
        Resource::TensorData { .. } | Resource::Arguments | Resource::Program => [None; 3],
    }
}

impl wire::Fatal {
    pub(crate) fn of(dispatch: u32, rank: usize, fatal: &Fatal) -> Self {
        let [requested, free, capacity] = amounts(&fatal.resource);
        Self {
            dispatch,
            rank,
            code: fatal.code.number(),
            name: fatal.code.name(),
            resource: resource(&fatal.resource),
            ring: fatal.ring.map(RingId::index),
            proof: fatal.proof.map(|p| match p {
                Proof::Immediate => "immediate",
                Proof::Structural => "structural",
                Proof::Backstop => "backstop",
            }),
            requested,
            free,
            capacity,
            task: fatal.task_name,
            head_task: fatal.head.as_ref().map(|h| format!("{} {}", h.id, h.name)),
            message: fatal.message.clone(),
        }
    }
}
