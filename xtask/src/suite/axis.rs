//! The axes of a matrix and single points on them.

use toml::de::DeValue;

use super::{layer::Layer, read};
use crate::{
    case_id::is_word,
    diagnostic::Span,
    document::{At, Node, Sink, Table, read_integer, read_text},
    platform::PlatformName,
    ring::{Resource, RingSetting, read_setting},
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
    set: Set,
}

#[derive(Clone, Debug)]
enum Set {
    Kernel(String),
    Platform(PlatformName),
    Ranks(u32),
    Ring(Resource, RingSetting),
    Param(String, String),
}

impl AxisValue {
    /// Writes the value into the layer of a case.
    pub(super) fn apply(&self, layer: &mut Layer) {
        let span = self.span.clone();
        match &self.set {
            Set::Kernel(kernel) => layer.kernel = Some(At::new(kernel.clone(), span)),
            Set::Platform(platform) => {
                let platform = At::new(platform.clone(), span.clone());
                layer.platforms = Some(At::new(vec![platform], span));
            }
            Set::Ranks(ranks) => layer.ranks = Some(At::new(*ranks, span)),
            Set::Ring(resource, setting) => {
                let slot = match resource {
                    Resource::Heap => &mut layer.ring.heap,
                    Resource::TaskWindow => &mut layer.ring.task_window,
                    Resource::DepPool => &mut layer.ring.dep_pool,
                };
                *slot = Some(*setting);
                layer.ring_span = Some(span);
            }
            Set::Param(name, value) => {
                layer.params.insert(name.clone(), At::new(value.clone(), span));
            }
        }
    }
}

/// An axis with its values, in declared order.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) key: AxisKey,
    pub(super) span: Span,
    pub(super) values: Vec<AxisValue>,
}

/// One value on each of some axes.
pub(super) type Point = Vec<(AxisKey, AxisValue)>;

/// The axes in the table `axes`, sorted by label.
pub(super) fn axes(table: &mut Table<'_>) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    shape(table, |sink, key, span, node| {
        let DeValue::Array(nodes) = node.get_ref() else {
            crate::document::wrong_kind(sink, key.label(), node, "a list of values");
            return;
        };
        let mut values: Vec<AxisValue> = Vec::new();
        for value in nodes.iter().filter_map(|node| value(sink, &key, node)) {
            match values.iter().find(|v| v.label == value.label) {
                Some(first) => {
                    let message = format!("`{}` stands twice on axis `{}`", value.label, key.label());
                    let problem = sink.problem(value.span, message, "the second");
                    sink.push(problem.and_at(first.span.clone(), "the first"));
                }
                None => values.push(value),
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
            point.push((key, value));
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
    let (label, set) = match key {
        AxisKey::Kernel => {
            let kernel = read_text(sink, "kernel", node)?.value;
            (kernel.clone(), Set::Kernel(kernel))
        }
        AxisKey::Platform => {
            let name = read::platform_name(sink, &read_text(sink, "platform", node)?)?.value;
            (name.to_string(), Set::Platform(name))
        }
        AxisKey::Ranks => {
            let ranks = read_integer(sink, "ranks", node, 1..=u64::from(u32::MAX))?.value;
            let ranks = u32::try_from(ranks).expect("the range is that of u32");
            (ranks.to_string(), Set::Ranks(ranks))
        }
        AxisKey::Ring(resource) => {
            let setting = read_setting(sink, *resource, node)?;
            // A comma separates axes in an id.
            let label = setting.show(*resource).to_string().replace(',', "_");
            (label, Set::Ring(*resource, setting))
        }
        AxisKey::Param(name) => {
            let value = read::scalar(sink, name, node)?;
            (value.clone(), Set::Param(name.clone(), value))
        }
    };
    if !is_word(&label) {
        let message = format!("`{label}` can't stand in a case id");
        let problem = sink.problem(node.span(), message, "not one word");
        sink.push(
            problem.help("axis values are letters, digits, `_`, `-`, `.` and `+`, starting with a letter or digit"),
        );
        return None;
    }
    Some(AxisValue {
        label,
        span: node.span(),
        set,
    })
}
