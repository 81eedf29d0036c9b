//! What the harness knows of the kernels: what their binary says of itself.
//!
//! Nothing here links a kernel. The wire structs below are the harness's own reading of
//! `kernel list --format json`; fields that it doesn't know are ignored.

use std::collections::BTreeMap;

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
    /// Tolerances that a case may change.
    pub tolerances: Vec<String>,
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
    /// The values that it may have; empty where they are not listed.
    pub choices: Vec<String>,
    /// The least value of a number.
    pub min: Option<f64>,
    /// The largest value of a number.
    pub max: Option<f64>,
}

impl ParamInfo {
    /// Why `value` is none of its values, in words that follow "`value` is".
    pub fn refusal(&self, value: &str) -> Option<String> {
        if !self.choices.is_empty() {
            let known = self.choices.iter().any(|choice| choice == value);
            return (!known).then(|| format!("none of its values: {}", self.choices.join(", ")));
        }
        let (min, max) = match (self.min, self.max) {
            (None, None) => return None,
            (min, max) => (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY)),
        };
        match value.parse::<f64>() {
            Ok(number) if (min..=max).contains(&number) => None,
            Ok(_) => Some(format!("out of range: from {min} to {max}")),
            Err(_) => Some("no number".into()),
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
    #[serde(default)]
    tolerances: Vec<Value>,
    spec_ring_bytes: Option<[u64; 4]>,
}

#[derive(Deserialize)]
struct WireParam {
    name: String,
    #[serde(default)]
    default: Value,
    #[serde(default)]
    choices: Vec<Value>,
    min: Option<f64>,
    max: Option<f64>,
}

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
        let params = wire.params.into_iter().map(|param| ParamInfo {
            name: param.name,
            default: text(&param.default),
            choices: param.choices.iter().filter_map(text).collect(),
            min: param.min,
            max: param.max,
        });
        let tolerance = |value: &Value| text(value.get("name").unwrap_or(value));
        Self {
            level: wire
                .level
                .and_then(|level| Level::ALL.into_iter().find(|l| l.token() == level)),
            ranks: wire.ranks.unwrap_or(1).max(1),
            params: params.collect(),
            tolerances: wire.tolerances.iter().filter_map(tolerance).collect(),
            spec_ring_bytes: wire.spec_ring_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_and_what_is_new_in_it_ignored() {
        let text = r#"[{"name": "rmsnorm", "level": "L2", "ranks": 1, "colour": "red", "spec_ring_bytes": [0, 512, 0, 0],
            "params": [{"name": "mode", "default": "decode", "choices": ["decode", "prefill"], "help": "shape"},
                       {"name": "layers", "default": 2, "min": 1, "max": 61}],
            "tolerances": ["atol", {"name": "rtol", "default": 0.001}]}]"#;
        let kernels = Kernels::from_json(text).unwrap();
        let kernel = kernels.get("rmsnorm").unwrap();
        assert_eq!((kernel.level, kernel.ranks), (Some(Level::L2), 1));
        assert_eq!(kernel.tolerances, ["atol", "rtol"]);
        assert_eq!(kernel.params[1].default.as_deref(), Some("2"));
        assert_eq!(kernel.params[0].refusal("decode"), None);
        assert_eq!(
            kernel.params[0].refusal("all").as_deref(),
            Some("none of its values: decode, prefill")
        );
        assert_eq!(kernel.params[1].refusal("61"), None);
        assert_eq!(
            kernel.params[1].refusal("62").as_deref(),
            Some("out of range: from 1 to 61")
        );
        assert_eq!(kernel.params[1].refusal("many").as_deref(), Some("no number"));
    }
}
