//! A plan as people and programs read it.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};

use crate::{
    outcome::Budget,
    plan::{Disposition, Level, Plan, PlannedCase},
    ring::{RINGS, Resource, RingValue},
    size::Bytes,
    suite::{expect::Expectation, runner::RunnerSpec},
};

/// One row a case.
pub fn table(plan: &Plan) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "case",
        "level",
        "ranks",
        "heap of ring 0..3",
        "memory",
        "params",
        "tags",
        "note",
    ]);
    for case in &plan.cases {
        let level = case.level.map_or("-", Level::token);
        table.add_row([
            Cell::new(&case.id),
            Cell::new(level),
            Cell::new(case.ranks).set_alignment(CellAlignment::Right),
            Cell::new(heaps(&case.rings.heap)),
            Cell::new(case.memory.map_or_else(|| "-".into(), Bytes::human)).set_alignment(CellAlignment::Right),
            Cell::new(params(case)),
            Cell::new(case.tags.join(" ")),
            Cell::new(note(case)),
        ]);
    }
    // Trailing blanks of the last column would end up in every diff of a saved listing.
    let lines: Vec<_> = table.lines().map(|line| line.trim().to_owned()).collect();
    lines.join("\n")
}

/// One line about the whole plan.
pub fn summary(plan: &Plan) -> String {
    let skipped = plan.cases.len() - plan.runnable().count();
    let selected = plan.cases.len();
    format!(
        "{selected} of {} cases on platform `{}`, {skipped} skipped, suites {}, matrix {}",
        plan.declared,
        plan.platform.name,
        plan.suites.join(" "),
        &plan.matrix.to_string()[..16]
    )
}

/// `256 MiB ×4`, or the four sizes.
fn heaps(heap: &[RingValue; RINGS]) -> String {
    let sizes = heap.map(|ring| Bytes::new(ring.value).human());
    if sizes.iter().all(|size| *size == sizes[0]) {
        return format!("{} ×{RINGS}", sizes[0]);
    }
    sizes.join(", ")
}

fn params(case: &PlannedCase) -> String {
    let params: Vec<_> = case
        .params
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    params.join(" ")
}

fn note(case: &PlannedCase) -> String {
    let mut notes = Vec::new();
    if let Disposition::Skip(reason) = &case.disposition {
        notes.push(format!("skipped: {reason}"));
    }
    if let Some(expect) = &case.expect {
        notes.push(format!("expects {}", expected(expect)));
    }
    notes.join("; ")
}

/// `deadlock/heap-ring on ring 1 until 2027-01-31 (#12)`.
fn expected(expect: &Expectation) -> String {
    let mut text = expect.outcome.token().to_owned();
    if let Some(cause) = &expect.cause {
        text = format!("{text}/{cause}");
    }
    if let Some(ring) = expect.ring {
        text = format!("{text} on ring {ring}");
    }
    if let Some(until) = expect.until {
        text = format!("{text} until {until}");
    }
    if let Some(issue) = &expect.issue {
        text = format!("{text} ({issue})");
    }
    text
}

/// The plan as one JSON object; sizes in bytes, durations in milliseconds.
pub fn json(plan: &Plan) -> String {
    let cases: Vec<_> = plan.cases.iter().map(json_case).collect();
    let value = json!({
        "platform": plan.platform.name.as_str(),
        "suites": plan.suites,
        "matrix_hash": plan.matrix.to_string(),
        "declared": plan.declared,
        "selected": plan.cases.len(),
        "cases": cases,
    });
    serde_json::to_string_pretty(&value).expect("maps have string keys")
}

fn json_case(case: &PlannedCase) -> Value {
    let rings = Resource::ALL.map(|resource| {
        let values = case.rings.get(resource);
        let values = values.map(|ring| json!({"value": ring.value, "tier": ring.tier.token()}));
        (resource.token().to_owned(), json!(values))
    });
    let budgets = Budget::ALL.iter().map(|&budget| {
        let ms = u64::try_from(case.budgets.get(budget).as_millis()).unwrap_or(u64::MAX);
        (format!("{}_ms", budget.token()), json!(ms))
    });
    let expect = case.expect.as_ref().map(|expect| {
        json!({
            "outcome": expect.outcome.token(),
            "cause": expect.cause,
            "ring": expect.ring,
            "issue": expect.issue,
            "until": expect.until.map(|until| until.to_string()),
        })
    });
    let program = match &case.runner {
        RunnerSpec::Embedded(spec) => spec.kernel.clone(),
        RunnerSpec::Pypto(spec) => spec.program.clone(),
        RunnerSpec::Command(spec) => spec.argv.first().map(ToString::to_string).unwrap_or_default(),
    };
    let tolerances = match &case.runner {
        RunnerSpec::Embedded(spec) => json!(spec.tolerances),
        RunnerSpec::Pypto(_) | RunnerSpec::Command(_) => json!({}),
    };
    json!({
        "id": case.id.as_str(),
        "suite": case.id.suite(),
        "name": case.id.name(),
        "axes": case.id.axes().map(|(axis, value)| (axis.to_owned(), json!(value))).collect::<serde_json::Map<_, _>>(),
        "description": case.description,
        "runner": case.runner.kind().token(),
        "program": program,
        "params": case.params,
        "tolerances": tolerances,
        "level": case.level.map(Level::token),
        "ranks": case.ranks,
        "devices": case.devices,
        "pin": case.pin,
        "memory_bytes": case.memory.map(Bytes::get),
        "rings": rings.into_iter().collect::<serde_json::Map<_, _>>(),
        "budgets": budgets.collect::<serde_json::Map<_, _>>(),
        "warmup": case.bench.warmup,
        "rounds": case.bench.rounds,
        "seed": case.seed,
        "env": case.env,
        "tags": case.tags,
        "skip": match &case.disposition {
            Disposition::Run => None,
            Disposition::Skip(reason) => Some(reason),
        },
        "expect": expect,
        "retry": case.retry.as_ref().map(|retry| json!({
            "on": retry.on.iter().map(|kind| kind.token()).collect::<Vec<_>>(),
            "attempts": retry.attempts,
        })),
    })
}
