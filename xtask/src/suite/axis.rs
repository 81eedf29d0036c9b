//! The axes of a matrix and single points on them.

use std::sync::Arc;

use toml::de::DeValue;

use super::{layer::Layer, read};
use crate::{
    case_id::is_word,
    diagnostic::Span,
    document::{At, Node, Sink, Table, read_integer, read_text},
    ring::{Resource, read_setting},
};

/// What an axis varies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum AxisKey {
    Kernel,
    Platform,
    Ranks,
    Ring(Resource),
    Param(String),
}

impl AxisKey {
    /// The axis in ids; a parameter stands by its own name.
    pub(super) fn label(&self) -> &str {
        match self {
            Self::Kernel => "kernel",
            Self::Platform => "platform",
            Self::Ranks => "ranks",
            Self::Ring(resource) => resource.token(),
            Self::Param(name) => name,
        }
    }

    fn is_reserved(name: &str) -> bool {
        matches!(name, "kernel" | "platform" | "ranks") || Resource::ALL.iter().any(|r| r.token() == name)
    }
}

/// One value of an axis.
#[derive(Clone, Debug)]
pub(super) struct AxisValue {
    /// Its text in ids, the same for all ways to write the value.
    pub(super) label: String,
    pub(super) span: Span,
    /// A layer that says this and nothing else.
    pub(super) layer: Arc<Layer>,
}

/// An axis with its values, in declared order.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) key: AxisKey,
    pub(super) span: Span,
    pub(super) values: Vec<Arc<AxisValue>>,
}

/// One value on each of some axes; the values are shared with the axes.
pub(super) type Point = Vec<(AxisKey, Arc<AxisValue>)>;

/// The axes in the table `axes`, sorted by label.
pub(super) fn axes(table: &mut Table<'_>) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    shape(table, |sink, key, span, node| {
        let DeValue::Array(nodes) = node.get_ref() else {
            crate::document::wrong_kind(sink, key.label(), node, "a list of values");
            return;
        };
        let mut values: Vec<Arc<AxisValue>> = Vec::new();
        for value in nodes.iter().filter_map(|node| value(sink, &key, node)) {
            match values.iter().find(|v| v.label == value.label) {
                Some(first) => {
                    let message = format!("`{}` stands twice on axis `{}`", value.label, key.label());
                    let problem = sink.problem(value.span, message, "the second");
                    sink.push(problem.and_at(first.span.clone(), "the first"));
                }
                None => values.push(Arc::new(value)),
            }
        }
        if nodes.is_empty() {
            let message = format!("axis `{}` is empty, so the matrix expands to nothing", key.label());
            sink.report(node.span(), message, "no values");
        }
        axes.push(Axis { key, span, values });
    });
    axes.sort_by(|a, b| a.key.label().cmp(b.key.label()));
    axes
}

/// The point in a table, sorted by label.
pub(super) fn point(table: &mut Table<'_>) -> Point {
    let mut point = Point::new();
    shape(table, |sink, key, _, node| {
        if let Some(value) = value(sink, &key, node) {
            point.push((key, Arc::new(value)));
        }
    });
    point.sort_by(|a, b| a.0.label().cmp(b.0.label()));
    point
}

/// Hands over each key of a table that has the shape of `axes`: kernel, platform, ranks, `ring.*`, `params.*`.
fn shape<'a>(table: &mut Table<'a>, mut each: impl FnMut(&'a Sink, AxisKey, Span, Node<'a>)) {
    let sink = table.sink;
    for (name, key) in [
        ("kernel", AxisKey::Kernel),
        ("platform", AxisKey::Platform),
        ("ranks", AxisKey::Ranks),
    ] {
        if let Some(node) = table.node(name) {
            each(sink, key, node.span(), node);
        }
    }
    if let Some(mut ring) = table.table("ring", "ring axes") {
        for resource in Resource::ALL {
            if let Some(node) = ring.node(resource.token()) {
                each(sink, AxisKey::Ring(resource), node.span(), node);
            }
        }
        ring.finish();
    }
    for (name, node) in table.entries("params") {
        if AxisKey::is_reserved(&name.value) || !is_word(&name.value) {
            let message = format!("a parameter axis can't be called `{}`", name.value);
            sink.report(name.span, message, "reserved, or not one word");
        } else {
            each(sink, AxisKey::Param(name.value), name.span, node);
        }
    }
}

fn value(sink: &Sink, key: &AxisKey, node: Node<'_>) -> Option<AxisValue> {
    let span = node.span();
    let mut layer = Layer::default();
    let label = match key {
        AxisKey::Kernel => {
            let kernel = read_text(sink, "kernel", node)?;
            let label = kernel.value.clone();
            layer.kernel = Some(kernel);
            label
        }
        AxisKey::Platform => {
            let name = read::platform_name(sink, &read_text(sink, "platform", node)?)?;
            let label = name.value.to_string();
            layer.platforms = Some(At::new(vec![name], span.clone()));
            label
        }
        AxisKey::Ranks => {
            let ranks = read_integer(sink, "ranks", node, 1..=u64::from(u32::MAX))?;
            let ranks = ranks.map(|ranks| u32::try_from(ranks).expect("the range is that of u32"));
            let label = ranks.value.to_string();
            layer.ranks = Some(ranks);
            label
        }
        AxisKey::Ring(resource) => {
            let setting = read_setting(sink, *resource, node)?;
            match resource {
                Resource::Heap => layer.ring.heap = Some(setting),
                Resource::TaskWindow => layer.ring.task_window = Some(setting),
                Resource::DepPool => layer.ring.dep_pool = Some(setting),
            }
            layer.ring_span = Some(span.clone());
            // A comma separates axes in an id.
            setting.show(*resource).to_string().replace(',', "_")
        }
        AxisKey::Param(name) => {
            let value = read::scalar(sink, name, node)?;
            layer.params.insert(name.clone(), At::new(value.clone(), span.clone()));
            value
        }
    };
    if !is_word(&label) {
        let message = format!("`{label}` can't stand in a case id");
        let problem = sink.problem(span, message, "not one word");
        sink.push(
            problem.help("axis values are letters, digits, `_`, `-`, `.` and `+`, starting with a letter or digit"),
        );
        return None;
    }
    Some(AxisValue {
        label,
        span,
        layer: Arc::new(layer),
    })
}
