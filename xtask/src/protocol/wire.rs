//! Lines of a report as they are written, major 1.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The event word, read before anything else.
#[derive(Debug, Deserialize)]
pub(super) struct Tagged {
    pub(super) event: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: Version,
    #[serde(default)]
    pub(super) program: String,
    #[serde(default)]
    pub(super) kernel_hash: Option<String>,
    #[serde(default)]
    pub(super) seed: Option<u64>,
    #[serde(default)]
    pub(super) params: BTreeMap<String, Value>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Version {
    pub(super) major: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct StageEvent {
    pub(super) stage: String,
    pub(super) phase: String,
    #[serde(default)]
    pub(super) elapsed_ns: Option<u64>,
    #[serde(default)]
    pub(super) ok: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Sizes {
    pub(super) heap: [u64; 4],
    pub(super) task_window: [u64; 4],
    pub(super) dep_pool: [u64; 4],
}

#[derive(Debug, Deserialize)]
pub(super) struct Rings {
    #[serde(default)]
    pub(super) dispatch: u32,
    #[serde(default)]
    pub(super) rank: u32,
    pub(super) asked: Sizes,
    #[serde(default)]
    pub(super) effective: Option<Sizes>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Dispatch {
    pub(super) index: u32,
    #[serde(default)]
    pub(super) rank: u32,
    #[serde(default)]
    pub(super) usage: Vec<Usage>,
    #[serde(default)]
    pub(super) tasks: Option<Tasks>,
    #[serde(default)]
    pub(super) launched: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    pub(super) heap_capacity_bytes: u64,
    pub(super) heap_high_water_bytes: u64,
    pub(super) task_window: u64,
    pub(super) tasks_high_water: u64,
    pub(super) dep_pool: u64,
    pub(super) dep_pool_high_water: u64,
    pub(super) tasks_submitted: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tasks {
    pub(super) submitted: u64,
    pub(super) dispatched: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Sample {
    pub(super) device_ns: u64,
    #[serde(default)]
    pub(super) clock: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Fatal {
    #[serde(default)]
    pub(super) dispatch: u32,
    #[serde(default)]
    pub(super) rank: u32,
    pub(super) code: i64,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) resource: String,
    #[serde(default)]
    pub(super) ring: Option<u8>,
    #[serde(default)]
    pub(super) proof: Option<String>,
    #[serde(default)]
    pub(super) requested: Option<u64>,
    #[serde(default)]
    pub(super) free: Option<u64>,
    #[serde(default)]
    pub(super) capacity: Option<u64>,
    #[serde(default)]
    pub(super) task: Option<String>,
    #[serde(default)]
    pub(super) head_task: Option<String>,
    #[serde(default)]
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Stall {
    #[serde(default)]
    pub(super) dispatch: u32,
    pub(super) class: String,
    #[serde(default)]
    pub(super) completed: Option<u64>,
    #[serde(default)]
    pub(super) total: Option<u64>,
    #[serde(default)]
    pub(super) running: Option<u64>,
    #[serde(default)]
    pub(super) ready: Option<u64>,
    #[serde(default)]
    pub(super) waiting: Option<u64>,
    #[serde(default)]
    pub(super) orch_done: Option<bool>,
    /// A name or an id: writers differ.
    #[serde(default)]
    pub(super) stuck_task: Option<Value>,
    #[serde(default)]
    pub(super) stuck_core: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Panic {
    #[serde(default)]
    pub(super) dispatch: u32,
    #[serde(default)]
    pub(super) task: Option<Value>,
    #[serde(default)]
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Tensor {
    pub(super) name: String,
    #[serde(default)]
    pub(super) rule: String,
    pub(super) verdict: String,
    #[serde(default)]
    pub(super) total: u64,
    #[serde(default)]
    pub(super) mismatched: u64,
    #[serde(default)]
    pub(super) allowed: u64,
    #[serde(default)]
    pub(super) max_abs_err: Option<Value>,
    #[serde(default)]
    pub(super) max_rel_err: Option<Value>,
    #[serde(default)]
    pub(super) first_index: Option<Vec<u64>>,
    #[serde(default)]
    pub(super) actual: Option<Value>,
    #[serde(default)]
    pub(super) expected: Option<Value>,
    #[serde(default)]
    pub(super) nonfinite_actual: Option<u64>,
    #[serde(default)]
    pub(super) nonfinite_expected: Option<u64>,
    #[serde(default)]
    pub(super) first_row: Option<u64>,
    #[serde(default)]
    pub(super) all_nan_rows: Option<u64>,
    #[serde(default)]
    pub(super) message: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Memory {
    pub(super) peak_rss_bytes: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct VerdictEvent {
    pub(super) verdict: String,
    #[serde(default)]
    pub(super) cause: Option<String>,
    #[serde(default)]
    pub(super) message: Option<String>,
}
