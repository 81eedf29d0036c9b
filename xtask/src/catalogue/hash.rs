//! The matrix hash: what suites declare, whatever way they write it.
//!
//! Each case is put into a canonical JSON form (defaults merged in, sizes in bytes, durations in
//! milliseconds, maps and cases sorted), so comments, layout, order and spelling leave the hash
//! alone, and anything that changes what is run or how it is judged changes it. Descriptions are
//! left out: they change neither.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    duration,
    outcome::Budget,
    plan::MatrixHash,
    platform::PlatformName,
    ring::{RINGS, Resource, RingEntry, RingLayer, RingSetting},
    suite::{
        expect::{Expectation, Retry},
        file::{Depth, Scope, Suite},
        layer::{Layer, Skip},
        matrix::Declared,
        runner::{CommandSpec, PyptoSpec, ReadBack, RingChannel, SampleSource},
        template::Template,
    },
};

/// The hash of all that `suites` declare.
pub fn matrix_hash<'s>(suites: impl IntoIterator<Item = &'s Suite>) -> MatrixHash {
    let mut lines: Vec<String> = Vec::new();
    for suite in suites {
        let scope = match suite.scope {
            Scope::Default => "default",
            Scope::ByName => "by-name",
        };
        lines.push(json!({"suite": suite.name, "scope": scope}).to_string());
        lines.extend(suite.cases.iter().map(|case| canonical(suite, case).to_string()));
    }
    lines.sort();
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"ringsweep matrix 1\n");
    for line in lines {
        hasher.update(line.as_bytes());
        hasher.update(b"\n");
    }
    MatrixHash(*hasher.finalize().as_bytes())
}

fn canonical(suite: &Suite, case: &Declared) -> Value {
    let base = case.case.base.clone().over(suite.defaults.base.clone());
    let quick = case.case.quick.clone().over(suite.defaults.quick.clone());
    let platforms: BTreeSet<_> = case.case.on.keys().chain(suite.defaults.on.keys()).collect();
    // What is in force on a platform, not what its overrides say: those of the defaults give way to the case.
    let on = platforms.into_iter().map(|platform| {
        let layer = suite.settings(case, platform, Depth::Full);
        json!([platform.as_str(), settings(&layer), rings(suite, case, platform)])
    });
    json!([
        case.id.as_str(),
        settings(&base),
        [ring(&case.case.base.ring), ring(&suite.defaults.base.ring)],
        on.collect::<Vec<_>>(),
        settings(&quick),
    ])
}

/// Rings keep their tiers apart, since records name them.
fn rings(suite: &Suite, case: &Declared, platform: &PlatformName) -> Value {
    json!(suite.rings(case, platform).map(|(_, layer)| ring(&layer)))
}

fn settings(layer: &Layer) -> Value {
    let mut tags: Vec<_> = layer.tags.iter().map(|tag| &tag.value).collect();
    tags.sort();
    tags.dedup();
    let budgets = Budget::ALL.iter().map(|&budget| {
        let value = layer.budgets.get(budget).map(duration::show);
        json!([budget.token(), value])
    });
    let pairs = |map: &std::collections::BTreeMap<String, crate::document::At<String>>| {
        map.iter().map(|(name, at)| json!([name, at.value])).collect::<Vec<_>>()
    };
    let platforms = layer.platforms.as_ref().map(|at| {
        let mut names: Vec<_> = at.value.iter().map(|name| name.value.as_str()).collect();
        names.sort_unstable();
        names
    });
    // A list of pairs, not a JSON object: its order is ours and can't depend on a feature of the library.
    let tolerances: Vec<_> = layer
        .tolerances
        .iter()
        .map(|(name, at)| json!([name, at.value.to_string()]))
        .collect();
    json!([
        ["kernel", layer.kernel.as_ref().map(|at| &at.value)],
        ["params", pairs(&layer.params)],
        ["ranks", layer.ranks.as_ref().map(|at| at.value)],
        ["devices", layer.devices.as_ref().map(|at| at.value)],
        ["pin", layer.pin.as_ref().map(|at| &at.value)],
        ["level", layer.level.as_ref().map(|at| at.value.token())],
        ["memory", layer.memory.as_ref().map(|at| at.value.get())],
        ["budgets", budgets.collect::<Vec<_>>()],
        ["warmup", layer.warmup.as_ref().map(|at| at.value)],
        ["rounds", layer.rounds.as_ref().map(|at| at.value)],
        ["tolerances", tolerances],
        ["tags", tags],
        ["platforms", platforms],
        ["skip", layer.skip.as_ref().map(|at| skip(&at.value))],
        ["expect", layer.expect.as_ref().map(|at| expect(&at.value))],
        ["retry", layer.retry.as_ref().map(|at| retry(&at.value))],
        ["env", pairs(&layer.env)],
        ["runner", layer.runner.as_ref().map(|at| at.value.token())],
        ["command", layer.command.as_ref().map(|at| command(&at.value))],
        ["pypto", layer.pypto.as_ref().map(|at| pypto(&at.value))],
    ])
}

fn ring(layer: &RingLayer) -> Value {
    let entry = |entry: RingEntry| match entry {
        RingEntry::Inherit => json!(0),
        RingEntry::Default => json!("default"),
        RingEntry::Value(value) => json!(value),
    };
    // A scalar and four times the same are one meaning.
    let setting = |setting: RingSetting| (0..RINGS).map(|ring| entry(setting.entry(ring))).collect::<Vec<_>>();
    json!(Resource::ALL.map(|resource| json!([resource.token(), layer.get(resource).map(setting)])))
}

fn skip(skip: &Skip) -> Value {
    let mut on: Vec<_> = skip.on.iter().map(|name| name.value.as_str()).collect();
    on.sort_unstable();
    json!([on, skip.reason])
}

fn expect(expect: &Expectation) -> Value {
    json!([
        expect.outcome.token(),
        expect.cause,
        expect.ring,
        expect.issue,
        expect.until.map(|until| until.to_string())
    ])
}

fn retry(retry: &Retry) -> Value {
    let mut on: Vec<_> = retry.on.iter().map(|kind| kind.token()).collect();
    on.sort_unstable();
    json!([on, retry.attempts])
}

fn texts(templates: &[Template]) -> Vec<String> {
    templates.iter().map(Template::to_string).collect()
}

fn pypto(spec: &PyptoSpec) -> Value {
    json!([spec.program, texts(&spec.args), spec.markers])
}

fn command(spec: &CommandSpec) -> Value {
    let rings = match &spec.rings {
        RingChannel::None => json!(["none"]),
        RingChannel::Env(names) => json!([
            "env",
            names
                .iter()
                .map(|(r, name)| json!([r.token(), name]))
                .collect::<Vec<_>>()
        ]),
        RingChannel::Argv(resources) => json!(["argv", resources.iter().map(|r| r.token()).collect::<Vec<_>>()]),
        RingChannel::JsonFile { env } => json!(["file", env]),
    };
    let read_back = match &spec.read_back {
        ReadBack::None => json!(["none"]),
        ReadBack::Report => json!(["report"]),
        ReadBack::Log => json!(["log"]),
        ReadBack::ScopeStats(file) => json!(["scope-stats", file.to_string()]),
    };
    let samples = match &spec.samples {
        SampleSource::None => json!(["none"]),
        SampleSource::Report => json!(["report"]),
        SampleSource::Log { pattern, unit, clock } => json!(["log", pattern, unit.token(), clock.token()]),
    };
    json!([
        texts(&spec.argv),
        spec.cwd,
        spec.env_pass,
        spec.rules,
        rings,
        read_back,
        samples
    ])
}
