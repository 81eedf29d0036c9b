//! What the harness knows of the kernels: what their binary says of itself.
//!
//! Nothing here links a kernel. The wire structs below are the harness's own reading of
//! `kernel list --format json`; fields that it doesn't know are ignored.

use std::{collections::BTreeMap, ops::RangeInclusive};

use serde::Deserialize;
use serde_json::Value;

use crate::plan::Level;

/// The kernels that exist, or why nobody knows.
#[derive(Clone, Debug)]
pub enum Kernels {
    /// As listed by the binary, by name.
    Known(BTreeMap<String, KernelInfo>),
    /// The binary can't be built or asked; kernels and parameters go unchecked.
    Unknown(String),
}

/// One kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelInfo {
    /// One device or several ranks.
    pub level: Option<Level>,
    /// How many ranks it has.
    pub ranks: u32,
    /// Its parameters.
    pub params: Vec<ParamInfo>,
    /// Tolerances that a case may change; their values are passed to the binary like those of parameters.
    pub tolerances: Vec<ParamInfo>,
    /// Peak bytes per ring by its spec.
    pub spec_ring_bytes: Option<[u64; 4]>,
}

/// One parameter of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamInfo {
    /// Its name.
    pub name: String,
    /// Its value where a case sets none.
    pub default: Option<String>,
    /// What it takes.
    pub takes: Takes,
}

/// The values that a parameter takes.
#[derive(Clone, Debug, PartialEq)]
pub enum Takes {
    /// One of these words.
    Choice(Vec<String>),
    /// An integer in a range.
    Integer(RangeInclusive<i64>),
    /// A number in a range.
    Number(RangeInclusive<f64>),
    /// Whatever the kernel accepts: the list doesn't say, or says it in a way that is new.
    Any,
}

impl ParamInfo {
    /// Why `value` is none of its values, in words that follow "`value` is".
    pub fn refusal(&self, value: &str) -> Option<String> {
        match &self.takes {
            Takes::Choice(choices) if choices.iter().any(|choice| choice == value) => None,
            Takes::Choice(choices) => Some(format!("none of its values: {}", choices.join(", "))),
            Takes::Integer(range) => match value.parse::<i64>() {
                Ok(number) if range.contains(&number) => None,
                Ok(_) => Some(format!("out of range: from {} to {}", range.start(), range.end())),
                Err(_) => Some("no integer".into()),
            },
            Takes::Number(range) => match value.parse::<f64>() {
                Ok(number) if range.contains(&number) => None,
                Ok(_) => Some(format!("out of range: from {} to {}", range.start(), range.end())),
                Err(_) => Some("no number".into()),
            },
            Takes::Any => None,
        }
    }
}

impl Kernels {
    /// Reads what `kernel list --format json` printed.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        let kernels: Vec<WireKernel> = serde_json::from_str(text)?;
        let kernels = kernels.into_iter().map(|wire| (wire.name.clone(), wire.into()));
        Ok(Self::Known(kernels.collect()))
    }

    /// The kernel called `name`, as far as is known.
    pub fn get(&self, name: &str) -> Option<&KernelInfo> {
        match self {
            Self::Known(kernels) => kernels.get(name),
            Self::Unknown(_) => None,
        }
    }
}

#[derive(Deserialize)]
struct WireKernel {
    name: String,
    level: Option<String>,
    ranks: Option<u32>,
    #[serde(default)]
    params: Vec<WireParam>,
    spec_ring_bytes: Option<[u64; 4]>,
}

#[derive(Deserialize)]
struct WireParam {
    name: String,
    kind: Option<String>,
    #[serde(default)]
    default: Value,
    choices: Option<Vec<Value>>,
    range: Option<[Value; 2]>,
}

/// The kind of a parameter that is a tolerance.
const TOLERANCE: &str = "tolerance";

/// A JSON scalar as the command line would spell it.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

impl From<WireKernel> for KernelInfo {
    fn from(wire: WireKernel) -> Self {
        let is_tolerance = |param: &WireParam| param.kind.as_deref() == Some(TOLERANCE);
        let (tolerances, params): (Vec<_>, Vec<_>) = wire.params.into_iter().partition(is_tolerance);
        Self {
            level: wire
                .level
                .and_then(|level| Level::ALL.into_iter().find(|l| l.token() == level)),
            ranks: wire.ranks.unwrap_or(1).max(1),
            params: params.into_iter().map(ParamInfo::from).collect(),
            tolerances: tolerances.into_iter().map(ParamInfo::from).collect(),
            spec_ring_bytes: wire.spec_ring_bytes,
        }
    }
}

impl From<WireParam> for ParamInfo {
    fn from(wire: WireParam) -> Self {
        let integers = |[min, max]: &[Value; 2]| Some(min.as_i64()?..=max.as_i64()?);
        let numbers = |[min, max]: &[Value; 2]| Some(min.as_f64()?..=max.as_f64()?);
        let takes = match (&wire.choices, &wire.range) {
            (Some(choices), _) => Takes::Choice(choices.iter().filter_map(text).collect()),
            (None, Some(range)) if wire.kind.as_deref() == Some("int") => {
                integers(range).map_or(Takes::Any, Takes::Integer)
            }
            (None, Some(range)) => numbers(range).map_or(Takes::Any, Takes::Number),
            (None, None) => Takes::Any,
        };
        Self {
            default: text(&wire.default),
            name: wire.name,
            takes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_and_what_is_new_in_it_ignored() {
        let text = r#"[{"name": "rmsnorm", "level": "L2", "ranks": 1, "colour": "red", "spec_ring_bytes": [0, 512, 0, 0],
            "params": [{"name": "mode", "kind": "choice", "default": "decode", "choices": ["decode", "prefill"], "range": null, "help": "shape"},
                       {"name": "layers", "kind": "int", "default": 2, "choices": null, "range": [1, 61]},
                       {"name": "atol", "kind": "tolerance", "default": 0.001, "choices": null, "range": [0.0, 0.1]},
                       {"name": "new", "kind": "list", "default": [1]}],
            "tolerances": ["atol"]}]"#;
        let kernels = Kernels::from_json(text).unwrap();
        let kernel = kernels.get("rmsnorm").unwrap();
        assert_eq!((kernel.level, kernel.ranks), (Some(Level::L2), 1));
        assert_eq!(kernel.tolerances[0].takes, Takes::Number(0.0..=0.1));
        assert_eq!(kernel.params[1].default.as_deref(), Some("2"));
        let refusal = |param: usize, value: &str| kernel.params[param].refusal(value);
        assert_eq!(refusal(0, "decode"), None);
        assert_eq!(
            refusal(0, "all").as_deref(),
            Some("none of its values: decode, prefill")
        );
        assert_eq!(refusal(1, "61"), None);
        assert_eq!(refusal(1, "62").as_deref(), Some("out of range: from 1 to 61"));
        assert_eq!(refusal(1, "2.0").as_deref(), Some("no integer"));
        assert_eq!(refusal(2, "anything"), None);
    }
}
