//! Reads the settings of a case from TOML.

use std::collections::BTreeMap;

use jiff::civil::Date;
use toml::de::DeValue;

use super::{
    budget::BudgetLayer,
    expect::{Expectation, Reported, Retry},
    layer::{Layer, Settings, Skip},
    read_runner,
    runner::RunnerKind,
};
use crate::{
    document::{At, Node, Sink, Table, as_table, choose, read_integer, read_text, wrong_kind},
    duration,
    outcome::{Outcome, OutcomeKind},
    plan::Level,
    platform::PlatformName,
    ring,
    size::Bytes,
};

/// Where a layer stands, which decides the keys that it may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Suite defaults, a case, a matrix.
    Base,
    /// An override for one platform.
    On,
    /// An override for quick runs.
    Quick,
}

/// The settings in `table`, with its `on` and `quick` tables; other keys are left to the caller.
pub(super) fn settings(table: &mut Table<'_>) -> Settings {
    let base = layer(table, Place::Base);
    let mut on = BTreeMap::new();
    for (name, node) in table.entries("on") {
        let Some(mut inner) = as_table(table.sink, "on", node, "platform override") else {
            continue;
        };
        let layer = layer(&mut inner, Place::On);
        inner.finish();
        if let Some(name) = platform_name(table.sink, &name) {
            on.insert(name.value, At::new(layer, name.span));
        }
    }
    let quick = table.table("quick", "quick override").map(|mut inner| {
        let layer = layer(&mut inner, Place::Quick);
        inner.finish();
        layer
    });
    Settings {
        base,
        on,
        quick: quick.unwrap_or_default(),
    }
}

fn layer(table: &mut Table<'_>, place: Place) -> Layer {
    let mut layer = Layer {
        params: params(table),
        memory: size(table, "memory"),
        memory_limit: size(table, "memory_limit"),
        ..Layer::default()
    };
    if let Some((budgets, span)) = budgets(table) {
        layer.budgets = budgets;
        layer.budgets_span = Some(span);
    }
    if let Some(mut bench) = table.table("bench", "bench") {
        layer.warmup = bench.count("warmup", 0);
        layer.rounds = bench.count("rounds", 0);
        bench.finish();
    }
    if place == Place::Quick {
        return layer;
    }
    if place == Place::Base {
        layer.description = table.text("description");
        layer.platforms = platforms(table);
        layer.tags = tags(table);
    }
    layer.kernel = table.text("kernel");
    if let Some((rings, span)) = ring::read_layer(table) {
        layer.ring = rings;
        layer.ring_span = Some(span);
    }
    layer.ranks = table.count("ranks", 1);
    layer.devices = table.count("devices", 0);
    layer.pin = pin(table);
    layer.level = table.choice("level", &Level::ALL.map(|level| (level.token(), level)));
    layer.tolerances = tolerances(table);
    layer.skip = skip(table, place);
    layer.expect = expect(table);
    layer.retry = retry(table);
    layer.env = env(table);
    layer.runner = table.choice("runner", &RunnerKind::ALL.map(|kind| (kind.token(), kind)));
    layer.command = read_runner::command(table);
    layer.pypto = read_runner::pypto(table);
    layer
}

/// The platform that `name` could be; whether it is declared is checked when all files are read.
pub(crate) fn platform_name(sink: &Sink, name: &At<String>) -> Option<At<PlatformName>> {
    let parsed = PlatformName::new(&name.value).map(|platform| At::new(platform, name.span.clone()));
    if parsed.is_none() {
        sink.report(
            name.span.clone(),
            format!("`{}` is no platform name", name.value),
            "not one word",
        );
    }
    parsed
}

fn platforms(table: &mut Table<'_>) -> Option<At<Vec<At<PlatformName>>>> {
    let span = table.node("platforms")?.span();
    let names = table.texts("platforms")?;
    if names.is_empty() {
        table.sink.report(
            span.clone(),
            "`platforms` is empty: the case would exist nowhere",
            "name one, or leave it out",
        );
    }
    let names = names
        .iter()
        .filter_map(|name| platform_name(table.sink, name))
        .collect();
    Some(At::new(names, span))
}

fn tags(table: &mut Table<'_>) -> Vec<At<String>> {
    let tags = table.texts("tags").unwrap_or_default();
    for tag in &tags {
        if !crate::case_id::is_word(&tag.value) {
            let message = format!("`{}` is no tag", tag.value);
            table
                .sink
                .report(tag.span.clone(), message, "one word of letters, digits, `_`, `-`, `.`");
        }
    }
    tags
}

fn pin(table: &mut Table<'_>) -> Option<At<Vec<u32>>> {
    let span = table.node("pin")?.span();
    let ids = table.list("pin")?.into_iter();
    let ids = ids.filter_map(|node| read_integer(table.sink, "pin", node, 0..=u64::from(u32::MAX)));
    let ids = ids
        .map(|id| u32::try_from(id.value).expect("the range is that of u32"))
        .collect();
    Some(At::new(ids, span))
}

/// A parameter's value as text; how it was typed makes no difference to the program.
pub(super) fn scalar(sink: &Sink, key: &str, node: Node<'_>) -> Option<String> {
    match node.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Float(float) => Some(float.as_str().to_owned()),
        DeValue::Integer(integer) => {
            let number = i64::from_str_radix(integer.as_str(), integer.radix());
            if number.is_err() {
                sink.report(node.span(), format!("`{key}` doesn't fit 64 bits"), "out of range");
            }
            number.ok().map(|number| number.to_string())
        }
        _ => {
            wrong_kind(sink, key, node, "a string, a number or a boolean");
            None
        }
    }
}

fn params(table: &mut Table<'_>) -> BTreeMap<String, At<String>> {
    let mut params = BTreeMap::new();
    for (name, node) in table.entries("params") {
        if let Some(value) = scalar(table.sink, &name.value, node) {
            params.insert(name.value, At::new(value, name.span.start..node.span().end));
        }
    }
    params
}

fn env(table: &mut Table<'_>) -> BTreeMap<String, At<String>> {
    let mut env = BTreeMap::new();
    for (name, node) in table.entries("env") {
        let span = name.span.start..node.span().end;
        if name.value.is_empty() || name.value.contains(['=', '\0']) {
            table
                .sink
                .report(name.span, "no name of a variable", "empty, or holds `=`");
        } else if name.value.starts_with("PTO2_RING_") {
            let problem = table.sink.problem(
                span,
                format!("`{}` would bypass the ring config", name.value),
                "not here",
            );
            table
                .sink
                .push(problem.help("declare `ring.heap`, `ring.task_window` or `ring.dep_pool`"));
        } else if let Some(value) = read_text(table.sink, &name.value, node) {
            env.insert(name.value, At::new(value.value, span));
        }
    }
    env
}

fn tolerances(table: &mut Table<'_>) -> BTreeMap<String, At<f64>> {
    let mut tolerances = BTreeMap::new();
    for (name, node) in table.entries("tolerances") {
        let number = match node.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(integer) => integer.as_str().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if f64::is_finite(number) && number >= 0.0 => {
                tolerances.insert(name.value, At::new(number, name.span.start..node.span().end));
            }
            _ => wrong_kind(table.sink, &name.value, node, "a finite number, zero or more"),
        }
    }
    tolerances
}

/// A size: a number of bytes, or a string with a binary unit.
pub(crate) fn size(table: &mut Table<'_>, key: &'static str) -> Option<At<Bytes>> {
    let node = table.node(key)?;
    match node.get_ref() {
        DeValue::String(text) => match text.parse::<Bytes>() {
            Ok(size) => Some(At::new(size, node.span())),
            Err(error) => {
                table
                    .sink
                    .report(node.span(), error.to_string(), format!("invalid `{key}`"));
                None
            }
        },
        DeValue::Integer(_) => read_integer(table.sink, key, node, 0..=u64::MAX).map(|size| size.map(Bytes::new)),
        _ => {
            table.wrong(key, node, "a size such as `\"1GiB\"`");
            None
        }
    }
}

/// What a duration looks like, for values of another kind.
pub(crate) const DURATION: &str = "a duration such as `\"90s\"`";

fn budgets(table: &mut Table<'_>) -> Option<(BudgetLayer, crate::diagnostic::Span)> {
    let mut inner = table.table("budgets", "budgets")?;
    let mut one = |key| inner.parsed(key, DURATION, duration::parse).map(|at| at.value);
    let layer = BudgetLayer {
        queue: one("queue"),
        setup: one("setup"),
        run: one("run"),
        silence: one("silence"),
        total: one("total"),
    };
    let span = inner.span.clone();
    inner.finish();
    Some((layer, span))
}

fn skip(table: &mut Table<'_>, place: Place) -> Option<At<Skip>> {
    let mut inner = table.table("skip", "skip")?;
    let on = match place {
        Place::Base => inner.texts("on").unwrap_or_default(),
        Place::On | Place::Quick => Vec::new(),
    };
    let on = on.iter().filter_map(|name| platform_name(inner.sink, name)).collect();
    let reason = inner.text("reason");
    if reason.is_none() {
        inner.require("reason", "reason = \"why\"");
    }
    let span = inner.span.clone();
    inner.finish();
    let reason = reason?.value;
    Some(At::new(Skip { on, reason }, span))
}

fn outcome_choices() -> [(&'static str, OutcomeKind); OutcomeKind::ALL.len()] {
    OutcomeKind::ALL.map(|kind| (kind.token(), kind))
}

fn expect(table: &mut Table<'_>) -> Option<At<Expectation>> {
    let mut inner = table.table("expect", "expect")?;
    let outcome = inner.choice("outcome", &outcome_choices());
    let cause = inner.text("cause");
    let ring = inner.integer("ring", 0..=3);
    let shows = inner.texts("shows").unwrap_or_default();
    let issue = inner.text("issue");
    let until = inner.node("until").and_then(|node| date(inner.sink, node));
    let reported = inner.choice("reported", &Reported::CHOICES);
    let (span, sink) = (inner.span.clone(), inner.sink);
    if !inner.has("outcome") {
        inner.require("outcome", "outcome = \"deadlock\"");
    }
    inner.finish();
    let outcome = outcome?;
    let never = matches!(
        outcome.value,
        OutcomeKind::Missing | OutcomeKind::Interrupted | OutcomeKind::Skipped
    );
    // A pass says something only with what it leaves: a leak, say.
    if never || (outcome.value == OutcomeKind::Pass && shows.is_empty()) {
        let message = format!("`{}` can't be expected", outcome.value);
        let problem = sink.problem(outcome.span, message, "not a failure of a case");
        sink.push(problem.help(
            "`expect` declares a known failure, or a pass whose evidence `shows` something; a case without it is expected to pass",
        ));
        return None;
    }
    if let Some(cause) = &cause
        && let Err(error) = Outcome::from_tokens(outcome.value.token(), &cause.value)
    {
        sink.report(cause.span.clone(), error.to_string(), "not a cause of this outcome");
    }
    let expectation = Expectation {
        outcome: outcome.value,
        cause: cause.map(|at| at.value),
        ring: ring.map(|at| u8::try_from(at.value).expect("the range is 0..=3")),
        shows: shows.into_iter().map(|at| at.value).collect(),
        issue: issue.map(|at| at.value),
        until,
        reported: reported.map(|at| at.value),
    };
    Some(At::new(expectation, span))
}

/// A day: `"2027-01-31"`, or TOML's own date.
fn date(sink: &Sink, node: Node<'_>) -> Option<Date> {
    let text = match node.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Datetime(datetime) => datetime.to_string(),
        _ => {
            wrong_kind(sink, "until", node, "a date such as `\"2027-01-31\"`");
            return None;
        }
    };
    let date = (text.len() == "YYYY-MM-DD".len()).then(|| text.parse().ok()).flatten();
    if date.is_none() {
        let problem = sink.problem(node.span(), format!("`{text}` is no date"), "not a day of the calendar");
        sink.push(
            problem.help("write `YYYY-MM-DD`, e.g. `\"2027-01-31\"`; the expectation holds to the end of that day"),
        );
    }
    date
}

fn retry(table: &mut Table<'_>) -> Option<At<Retry>> {
    let mut inner = table.table("retry", "retry")?;
    let attempts = inner.integer("attempts", 2..=10);
    let names = inner.texts("on").unwrap_or_default();
    let sink = inner.sink;
    let on: Vec<_> = names
        .iter()
        .filter_map(|name| {
            let kind = choose(sink, "outcome", name, &outcome_choices())?;
            if matches!(
                kind,
                OutcomeKind::Pass
                    | OutcomeKind::Missing
                    | OutcomeKind::Interrupted
                    | OutcomeKind::Skipped
                    | OutcomeKind::Blocked
            ) {
                sink.report(
                    name.span.clone(),
                    format!("`{kind}` is nothing to try again"),
                    "not here",
                );
                return None;
            }
            Some(kind)
        })
        .collect();
    if names.is_empty() {
        inner.require("on", "on = [\"timeout\"]");
    }
    let span = inner.span.clone();
    inner.finish();
    let attempts = attempts.map_or(2, |at| u32::try_from(at.value).expect("the range is 2..=10"));
    Some(At::new(Retry { on, attempts }, span))
}
