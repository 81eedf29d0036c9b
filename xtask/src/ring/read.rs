//! Ring settings in TOML: `ring = { heap = "1GiB", task_window = [0, 0, 4096, 0] }`.

use toml::de::DeValue;

use super::{Resource, RingEntry, RingLayer, RingSetting, SettingError};
use crate::{
    diagnostic::Span,
    document::{Node, Sink, Table, read_integer, wrong_kind},
};

/// The layer in the table `ring` of `table`, and where it stands.
pub(crate) fn read_layer(table: &mut Table<'_>) -> Option<(RingLayer, Span)> {
    let mut ring = table.table("ring", "ring config")?;
    let layer = RingLayer {
        heap: read_resource(&mut ring, Resource::Heap),
        task_window: read_resource(&mut ring, Resource::TaskWindow),
        dep_pool: read_resource(&mut ring, Resource::DepPool),
    };
    let span = ring.span.clone();
    ring.finish();
    Some((layer, span))
}

fn read_resource(ring: &mut Table<'_>, resource: Resource) -> Option<RingSetting> {
    let node = ring.node(resource.token())?;
    read_setting(ring.sink, resource, node)
}

/// One setting: a scalar, or a list of exactly four.
pub(crate) fn read_setting(sink: &Sink, resource: Resource, node: Node<'_>) -> Option<RingSetting> {
    let (entries, whole) = match node.get_ref() {
        DeValue::Array(nodes) => {
            let entries = nodes
                .iter()
                .map(|node| read_entry(sink, resource, node))
                .collect::<Vec<_>>();
            (entries, true)
        }
        _ => (vec![read_entry(sink, resource, node)], false),
    };
    if whole && entries.len() != super::RINGS {
        report(sink, resource, node.span(), &SettingError::Length(entries.len()));
        return None;
    }
    // Entries that are no settings have been reported; the rest can't be judged without them.
    let entries = entries.into_iter().collect::<Option<Vec<_>>>()?;
    RingSetting::from_entries(&entries)
        .map_err(|error| report(sink, resource, node.span(), &error))
        .ok()
}

fn read_entry(sink: &Sink, resource: Resource, node: Node<'_>) -> Option<RingEntry> {
    let parsed = match node.get_ref() {
        DeValue::String(text) => RingEntry::parse(resource, text),
        DeValue::Integer(_) => {
            let number = read_integer(sink, resource.token(), node, 0..=u64::MAX)?;
            RingEntry::number(resource, number.value)
        }
        _ => {
            let expected = "a number, a string, or a list of exactly four of them";
            wrong_kind(sink, resource.token(), node, expected);
            return None;
        }
    };
    parsed.map_err(|error| report(sink, resource, node.span(), &error)).ok()
}

fn report(sink: &Sink, resource: Resource, span: Span, error: &SettingError) {
    let help = match resource {
        Resource::Heap => {
            "a heap is `\"256MiB\"`, `\"1GiB\"`, a number of bytes ≥ 1024, `\"default\"`, or a list of four of them in which `0` leaves a ring to the next tier"
        }
        Resource::TaskWindow => {
            "a task window is a power of two ≥ 4, `\"default\"`, or a list of four of them in which `0` leaves a ring to the next tier"
        }
        Resource::DepPool => {
            "a dependency pool is a number of entries ≥ 4, `\"default\"`, or a list of four of them in which `0` leaves a ring to the next tier"
        }
    };
    let label = format!("invalid `{}`", resource.token());
    sink.push(sink.problem(span, error.to_string(), label).help(help));
}
