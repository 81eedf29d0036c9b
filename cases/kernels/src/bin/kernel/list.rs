//! `kernel list`: what there is to run.

use std::io::{self, Write};
use std::process::ExitCode;

use kernels::kernel::{KernelInfo, ParamKind, ParamSpec};
use kernels::registry;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::Format;

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    summary: &'static str,
    level: &'static str,
    ranks: usize,
    modes: Vec<&'static str>,
    params: Vec<Value>,
    tolerances: Vec<&'static str>,
    outputs: Vec<Value>,
    gflop: Value,
    spec_ring_bytes: Option<[u64; 4]>,
}

fn param(spec: &ParamSpec) -> Value {
    let (kind, default, choices, range) = match spec.kind {
        ParamKind::Choice { choices } => ("choice", json!(choices[0]), json!(choices), Value::Null),
        ParamKind::Int { min, max, default } => ("int", json!(default), Value::Null, json!([min, max])),
        ParamKind::Tolerance { min, max, default } => ("tolerance", json!(default), Value::Null, json!([min, max])),
    };
    json!({ "name": spec.name, "kind": kind, "default": default, "choices": choices, "range": range, "help": spec.help })
}

fn entry(info: &'static KernelInfo) -> Entry {
    let modes = info
        .params
        .iter()
        .filter(|s| s.name == "mode")
        .flat_map(|s| match s.kind {
            ParamKind::Choice { choices } => choices,
            ParamKind::Int { .. } | ParamKind::Tolerance { .. } => &[],
        });
    let is_tolerance = |s: &&ParamSpec| matches!(s.kind, ParamKind::Tolerance { .. });
    Entry {
        name: info.name,
        summary: info.summary,
        level: info.level.name(),
        ranks: info.ranks,
        modes: modes.copied().collect(),
        params: info.params.iter().map(param).collect(),
        tolerances: info.params.iter().filter(is_tolerance).map(|s| s.name).collect(),
        outputs: info
            .outputs
            .iter()
            .map(|o| json!({ "name": o.name, "dtype": o.dtype.name(), "shape": o.shape, "rule": o.rule }))
            .collect(),
        gflop: json!({ "f32": info.gflop.f32, "bf16": info.gflop.bf16, "int8": info.gflop.int8 }),
        spec_ring_bytes: info.ring_bytes,
    }
}

fn print(format: Format, out: &mut dyn Write) -> io::Result<()> {
    let entries: Vec<Entry> = registry::all().iter().map(|k| entry(k.info())).collect();
    match format {
        Format::Json => {
            serde_json::to_writer(&mut *out, &entries)?;
            writeln!(out)
        }
        Format::Text => {
            for e in entries {
                writeln!(out, "{:<28} {} x{}  {}", e.name, e.level, e.ranks, e.summary)?;
            }
            Ok(())
        }
    }
}

/// Prints the list; a reader that stops reading is no error.
pub(crate) fn main(format: Format) -> ExitCode {
    match print(format, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
