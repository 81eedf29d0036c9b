//! Expansion of a matrix: the product of its axes, less what is excluded, plus what is included.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    axis::{self, Axis, AxisKey, Point},
    layer::Settings,
    read,
    stack::CaseTier,
};
use crate::{
    case_id::CaseId,
    diagnostic::Span,
    document::{At, Table, first_line},
};

/// A case before the suite's defaults: its id, its own tier of settings, and where it is declared.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The id.
    pub id: CaseId,
    /// The tier of the case.
    pub tier: CaseTier,
    /// The line that declares it.
    pub span: Span,
}

/// The cases of one `[[matrix]]` of `suite`, by id.
pub(super) fn read(suite: &str, table: &mut Table<'_>) -> Vec<Declared> {
    let sink = table.sink;
    let line = first_line(sink.source(), &table.span);
    let name = read_name(table);
    let settings = read::settings(table);
    let axes = if let Some(mut inner) = table.table("axes", "axes") {
        let axes = axis::axes(&mut inner);
        inner.finish();
        axes
    } else {
        table.require("axes", "axes = { ring.heap = [\"256MiB\", \"1GiB\"] }");
        Vec::new()
    };
    if axes.iter().any(|axis| axis.key == AxisKey::Platform)
        && let Some(platforms) = &settings.base.platforms
    {
        let message = "the platforms are declared twice";
        sink.report(platforms.span.clone(), message, "an axis varies them already");
    }
    let mut points = product(&axes);
    exclude(table, &axes, &mut points);
    include(table, &axes, &mut points);
    let overrides = overrides(table, &axes);
    if points.is_empty() && !axes.is_empty() && axes.iter().all(|axis| !axis.values.is_empty()) {
        sink.report(line.clone(), "the matrix expands to nothing", "no point of it is left");
    }
    let Some(name) = name else {
        return Vec::new();
    };
    let own = Arc::new(settings);
    let mut used = vec![false; overrides.len()];
    let cases = points.into_iter().filter_map(|point| {
        let mut tier = CaseTier {
            own: Arc::clone(&own),
            point: point.iter().map(|(_, value)| Arc::clone(&value.layer)).collect(),
            overrides: Vec::new(),
        };
        for (i, (at, settings)) in overrides.iter().enumerate() {
            if matches(&at.value, &point) {
                used[i] = true;
                tier.overrides.push(Arc::clone(settings));
            }
        }
        let axes: Vec<_> = point
            .iter()
            .map(|(key, value)| (key.label().to_owned(), value.label.clone()))
            .collect();
        let id = CaseId::new(suite, &name.value, &axes);
        let id = id
            .map_err(|error| sink.report(name.span.clone(), error.to_string(), "here"))
            .ok()?;
        Some(Declared {
            id,
            tier,
            span: line.clone(),
        })
    });
    let mut cases: Vec<_> = cases.collect();
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    for ((at, _), _) in overrides.iter().zip(used).filter(|(_, used)| !used) {
        sink.report(
            at.span.clone(),
            "the override matches no point of the matrix",
            "nothing like it",
        );
    }
    cases
}

/// The required `name` of a case or matrix, if it can stand in an id.
pub(super) fn read_name(table: &mut Table<'_>) -> Option<At<String>> {
    let name = table.text("name");
    if !table.has("name") {
        table.require("name", "name = \"…\"");
    }
    let name = name?;
    if crate::case_id::is_word(&name.value) {
        return Some(name);
    }
    let problem = table.sink.problem(
        name.span,
        format!("`{}` can't stand in a case id", name.value),
        "not one word",
    );
    table.sink.push(problem.help(
        "names are letters, digits, `_`, `-`, `.` and `+`, starting with a letter or digit, no two `_` in a row",
    ));
    None
}

fn product(axes: &[Axis]) -> Vec<Point> {
    let mut points = vec![Point::new()];
    for axis in axes {
        let extend = |point: &Point| -> Vec<Point> {
            let extended = axis.values.iter().map(|value| {
                let mut point = point.clone();
                point.push((axis.key.clone(), value.clone()));
                point
            });
            extended.collect()
        };
        points = points.iter().flat_map(extend).collect();
    }
    if axes.is_empty() { Vec::new() } else { points }
}

/// True when every axis that `pattern` names has the same value in `point`.
fn matches(pattern: &Point, point: &Point) -> bool {
    pattern
        .iter()
        .all(|(key, value)| point.iter().any(|(k, v)| k == key && v.label == value.label))
}

/// Reports axes of `point` that the matrix doesn't have.
fn check_axes(table: &Table<'_>, axes: &[Axis], point: &Point) {
    for (key, value) in point {
        if !axes.iter().any(|axis| axis.key == *key) {
            let message = format!("the matrix has no axis `{}`", key.label());
            let problem = table.sink.problem(value.span.clone(), message, "not an axis of it");
            let help = crate::suggest::help(key.label(), "axes", axes.iter().map(|axis| axis.key.label()));
            table.sink.push(problem.help(help));
        }
    }
}

fn exclude(table: &mut Table<'_>, axes: &[Axis], points: &mut Vec<Point>) {
    let all = points.clone();
    for mut inner in table.tables("exclude", "exclude") {
        let pattern = axis::point(&mut inner);
        let (sink, span) = (inner.sink, inner.span.clone());
        check_axes(&inner, axes, &pattern);
        inner.finish();
        if pattern.is_empty() || !all.iter().any(|point| matches(&pattern, point)) {
            sink.report(
                span,
                "the exclude matches nothing",
                "no point of the product is like it",
            );
        }
        points.retain(|point| !matches(&pattern, point));
    }
}

fn include(table: &mut Table<'_>, axes: &[Axis], points: &mut Vec<Point>) {
    for mut inner in table.tables("include", "include") {
        let point = axis::point(&mut inner);
        let (sink, span) = (inner.sink, inner.span.clone());
        check_axes(&inner, axes, &point);
        inner.finish();
        let given: BTreeSet<_> = point.iter().map(|(key, _)| key).collect();
        let missing: Vec<_> = axes.iter().filter(|axis| !given.contains(&axis.key)).collect();
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter().map(|axis| format!("`{}`", axis.key.label())).collect();
            let mut problem = sink.problem(
                span,
                format!("the include names no {}", names.join(", ")),
                "every axis needs a value",
            );
            for axis in missing {
                problem = problem.and_at(axis.span.clone(), "this axis");
            }
            sink.push(problem);
        } else if points.iter().any(|p| matches(&point, p)) {
            sink.report(span, "the include is there already", "the product has this point");
        } else {
            points.push(point);
        }
    }
}

fn overrides(table: &mut Table<'_>, axes: &[Axis]) -> Vec<(At<Point>, Arc<Settings>)> {
    let mut overrides = Vec::new();
    for mut inner in table.tables("override", "matrix override") {
        let span = first_line(inner.sink.source(), &inner.span);
        let settings = read::settings(&mut inner);
        if let Some(mut pattern) = inner.table("where", "where") {
            let point = axis::point(&mut pattern);
            check_axes(&pattern, axes, &point);
            pattern.finish();
            overrides.push((At::new(point, span), Arc::new(settings)));
        } else {
            inner.require("where", "where = { ring.heap = \"1GiB\" }");
        }
        inner.finish();
    }
    overrides
}
