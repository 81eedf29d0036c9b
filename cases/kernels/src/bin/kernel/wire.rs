//! The lines of the report, protocol 1.0. Field names carry units; see ARCHITECTURE, "Kernel report".

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Version of the protocol: minor versions add fields and events.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// The version that is written here.
pub(crate) const VERSION: Version = Version { major: 1, minor: 0 };

/// One line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    Hello {
        protocol: Version,
        program: &'a str,
        pid: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        case: Option<&'a str>,
        kernel_hash: Option<String>,
        seed: u64,
        platform: &'static str,
        params: BTreeMap<String, Value>,
    },
    Stage(Stage),
    Rings {
        dispatch: u32,
        rank: usize,
        asked: RingConfig,
        effective: Option<RingConfig>,
        source: &'static str,
    },
    Dispatch {
        index: u32,
        kind: &'static str,
        rank: usize,
        device_ns: Option<u64>,
        usage: Option<[Usage; 4]>,
        tasks: Option<Tasks>,
        launched: Option<bool>,
    },
    Sample {
        index: u32,
        device_ns: u64,
        clock: &'static str,
    },
    Fatal(Box<Fatal>),
    Stall {
        dispatch: u32,
        rank: usize,
        class: &'static str,
        completed: u64,
        total: u64,
        running: u64,
        ready: u64,
        waiting: u64,
        orch_done: bool,
        stuck_task: Option<String>,
        stuck_core: Option<usize>,
    },
    Panic {
        dispatch: u32,
        rank: usize,
        task: Option<String>,
        message: String,
    },
    Tensor(Box<Tensor>),
    Memory {
        peak_rss_bytes: u64,
    },
    Verdict {
        verdict: &'static str,
        cause: &'a str,
        message: &'a str,
    },
}

/// Begin or end of a stage.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the protocol names the fields")]
pub(crate) struct Stage {
    pub(crate) stage: &'static str,
    pub(crate) phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) elapsed_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ok: Option<bool>,
}

/// Capacities of the four rings: heap in bytes, the others in slots and entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RingConfig {
    pub(crate) heap: [u64; 4],
    pub(crate) task_window: [u32; 4],
    pub(crate) dep_pool: [u32; 4],
}

/// Use of one ring in one dispatch.
#[derive(Debug, Serialize)]
pub(crate) struct Usage {
    pub(crate) heap_capacity_bytes: u64,
    pub(crate) heap_high_water_bytes: u64,
    pub(crate) task_window: u64,
    pub(crate) tasks_high_water: u64,
    pub(crate) dep_pool: u64,
    pub(crate) dep_pool_high_water: u64,
    pub(crate) tasks_submitted: u64,
}

/// Task counts of one dispatch.
#[derive(Debug, Serialize)]
pub(crate) struct Tasks {
    pub(crate) submitted: u64,
    pub(crate) dispatched: u64,
    pub(crate) dependency_only: u64,
    pub(crate) allocations: u64,
}

/// What the rings or the program failed on.
#[derive(Debug, Serialize)]
pub(crate) struct Fatal {
    pub(crate) dispatch: u32,
    pub(crate) rank: usize,
    pub(crate) code: u8,
    pub(crate) name: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) ring: Option<usize>,
    pub(crate) proof: Option<&'static str>,
    pub(crate) requested: Option<u64>,
    pub(crate) free: Option<u64>,
    pub(crate) capacity: Option<u64>,
    pub(crate) task: Option<&'static str>,
    pub(crate) head_task: Option<String>,
    pub(crate) message: String,
}

/// Comparison of one output. Errors are strings where they are not finite.
#[derive(Debug, Serialize)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) rule: String,
    pub(crate) verdict: &'static str,
    pub(crate) total: u64,
    pub(crate) mismatched: u64,
    pub(crate) allowed: u64,
    pub(crate) max_abs_err: Value,
    pub(crate) max_rel_err: Value,
    pub(crate) first_index: Option<Vec<usize>>,
    pub(crate) actual: Option<Value>,
    pub(crate) expected: Option<Value>,
    pub(crate) nonfinite_actual: u64,
    pub(crate) nonfinite_expected: u64,
    pub(crate) first_row: Option<u64>,
    pub(crate) nonfinite_rows: u64,
    pub(crate) all_nan_rows: u64,
    pub(crate) message: String,
}

/// A number, or its name where JSON has none.
pub(crate) fn number(value: f64) -> Value {
    let name = if value.is_nan() {
        "NaN"
    } else if value == f64::INFINITY {
        "inf"
    } else if value == f64::NEG_INFINITY {
        "-inf"
    } else {
        return Value::from(value);
    };
    Value::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_lacks_are_named() {
        assert_eq!(number(1.5), Value::from(1.5));
        assert_eq!(
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(number),
            ["NaN", "inf", "-inf"].map(Value::from)
        );
    }

    #[test]
    fn a_line_is_tagged_with_its_event() {
        let stage = Stage {
            stage: "fixture",
            phase: "end",
            elapsed_ns: Some(7),
            ok: Some(true),
        };
        let line = serde_json::to_string(&Event::Stage(stage)).unwrap();
        assert_eq!(
            line,
            r#"{"event":"stage","stage":"fixture","phase":"end","elapsed_ns":7,"ok":true}"#
        );
    }
}
