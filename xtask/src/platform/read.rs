//! Reads platforms from TOML.

use std::{collections::BTreeMap, sync::Arc};

use super::{Launcher, Platform, PlatformMemory, PlatformName, Probe};
use crate::{
    diagnostic::{Problem, Source},
    document::{Sink, Table, as_table, read_integer, read_text},
    duration, ring,
    suite::{read, read_runner, runner::RunnerKind},
};

/// The platforms that `source` declares.
pub(super) fn read(source: &Arc<Source>) -> (BTreeMap<PlatformName, Platform>, Vec<Problem>) {
    let sink = Sink::new(source);
    let platforms = sink.document(|mut root| {
        let mut platforms = BTreeMap::new();
        for (name, node) in root.entries("platform") {
            let Some(mut table) = as_table(root.sink, "platform", node, "platform") else {
                continue;
            };
            let Some(name) = read::platform_name(root.sink, &name) else {
                continue;
            };
            platforms.extend(platform(name.value, &mut table).map(|p| (p.name.clone(), p)));
            table.finish();
        }
        root.finish();
        platforms
    });
    (platforms, sink.into_problems())
}

fn platform(name: PlatformName, table: &mut Table<'_>) -> Option<Platform> {
    let runner = table.choice("runner", &RunnerKind::ALL.map(|kind| (kind.token(), kind)));
    if !table.has("runner") {
        table.require("runner", "runner = \"pypto\"");
    }
    let ids = table.list("devices").unwrap_or_default().into_iter();
    let ids = ids.filter_map(|node| read_integer(table.sink, "devices", node, 0..=u64::from(u32::MAX)));
    let devices = ids
        .map(|id| u32::try_from(id.value).expect("the range is that of u32"))
        .collect();
    let mut env = BTreeMap::new();
    for (name, node) in table.entries("env") {
        env.extend(read_text(table.sink, &name.value, node).map(|text| (name.value, text.value)));
    }
    let env_pass = table.texts("env_pass").unwrap_or_default();
    let platform = Platform {
        name,
        description: table.text("description").map(|at| at.value).unwrap_or_default(),
        launcher: launcher(table),
        memory: memory(table),
        devices,
        ring: ring::read_layer(table).map(|(layer, _)| layer).unwrap_or_default(),
        env,
        env_pass: env_pass.into_iter().map(|at| at.value).collect(),
        health_check: probe(table, "health_check"),
        reset: probe(table, "reset"),
        runner: runner?.value,
    };
    Some(platform)
}

#[derive(Clone, Copy)]
enum LauncherKind {
    Local,
    TaskSubmit,
}

fn launcher(table: &mut Table<'_>) -> Launcher {
    let Some(mut inner) = table.table("launcher", "launcher") else {
        return Launcher::Local;
    };
    let kind = inner.choice(
        "kind",
        &[
            ("local", LauncherKind::Local),
            ("task-submit", LauncherKind::TaskSubmit),
        ],
    );
    if !inner.has("kind") {
        inner.require("kind", "kind = \"task-submit\"");
    }
    let launcher = match kind.map(|kind| kind.value) {
        Some(LauncherKind::TaskSubmit) => Launcher::TaskSubmit {
            program: inner
                .text("program")
                .map_or_else(|| "task-submit".into(), |at| at.value),
            args: inner
                .texts("args")
                .unwrap_or_default()
                .into_iter()
                .map(|at| at.value)
                .collect(),
        },
        Some(LauncherKind::Local) | None => Launcher::Local,
    };
    inner.finish();
    launcher
}

/// `memory = "machine"`, or what one device has.
fn memory(table: &mut Table<'_>) -> PlatformMemory {
    let Some(node) = table.node("memory") else {
        return PlatformMemory::Unknown;
    };
    if node.get_ref().as_str() == Some("machine") {
        return PlatformMemory::Machine;
    }
    read::size(table, "memory").map_or(PlatformMemory::Unknown, |at| PlatformMemory::PerDevice(at.value))
}

fn probe(table: &mut Table<'_>, key: &'static str) -> Option<Probe> {
    let mut inner = table.table(key, "probe")?;
    let argv = read_runner::templates(&mut inner, "argv");
    if argv.is_empty() {
        inner.require("argv", "argv = [\"check\", \"{device}\"]");
    }
    let budget = inner.parsed("budget", read::DURATION, duration::parse);
    if !inner.has("budget") {
        inner.require("budget", "budget = \"30s\"");
    }
    inner.finish();
    let budget = budget?.value;
    Some(Probe { argv, budget })
}
