//! The matrix hash: what suites declare, whatever way they write it.
//!
//! Each case is put into a canonical text (the layers that decide it merged, sizes in bytes,
//! durations in milliseconds, maps and cases sorted), so comments, layout, order and spelling leave
//! the hash alone, and anything that changes what is run or how it is judged changes it.
//! Descriptions are left out: they change neither.

use std::{collections::BTreeSet, fmt::Write as _};

use rayon::prelude::*;

use crate::{
    outcome::Budget,
    plan::MatrixHash,
    ring::{RINGS, Resource, RingEntry, RingLayer},
    suite::{
        file::{Depth, Scope, Suite},
        matrix::Declared,
        runner::{CommandSpec, ReadBack, RingChannel, SampleSource, ScopeStats},
        stack::Stack,
        template::Template,
    },
};

/// The hash of all that `suites` declare.
pub fn matrix_hash<'s>(suites: impl IntoIterator<Item = &'s Suite>) -> MatrixHash {
    let mut suites: Vec<_> = suites.into_iter().collect();
    suites.sort_by(|a, b| a.name.cmp(&b.name));
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"ringsweep matrix 1\n");
    for suite in suites {
        let mut header = Canonical::default();
        header.text(&suite.name);
        header.text(match suite.scope {
            Scope::Default => "default",
            Scope::ByName => "by-name",
        });
        hasher.update(header.0.as_bytes());
        let cases = suite.cases.par_iter();
        let digests = cases.map(|case| (&case.id, blake3::hash(canonical(suite, case).0.as_bytes())));
        let mut cases: Vec<_> = digests.collect();
        cases.sort_by(|a, b| a.0.cmp(b.0));
        for (_, digest) in cases {
            hasher.update(digest.as_bytes());
        }
    }
    MatrixHash(*hasher.finalize().as_bytes())
}

/// A text from which its parts could be read back: every part says its length first.
#[derive(Default)]
struct Canonical(String);

impl Canonical {
    fn text(&mut self, text: &str) {
        self.shown(text.len(), text);
    }

    fn shown(&mut self, length: usize, text: &str) {
        write!(self.0, "{length}:{text}").expect("writing to a string never fails");
    }

    fn number(&mut self, number: impl std::fmt::Display) {
        self.text(&number.to_string());
    }

    /// How many parts follow, then the parts.
    fn texts<'t>(&mut self, texts: impl ExactSizeIterator<Item = &'t str>) {
        self.number(texts.len());
        for text in texts {
            self.text(text);
        }
    }

    /// A key with its value; nothing for a key that isn't set.
    fn key<T>(&mut self, key: &str, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        if let Some(value) = value {
            self.text(key);
            put(self, value);
        }
    }
}

fn canonical(suite: &Suite, case: &Declared) -> Canonical {
    let mut text = Canonical(String::with_capacity(512));
    text.text(case.id.as_str());
    put_stack(&mut text, &suite.stack_anywhere(case, Depth::Full));
    put_rings(&mut text, &suite.rings(case, None));
    let settings = case.tier.settings().chain([&suite.defaults]);
    let platforms: BTreeSet<_> = settings.flat_map(|settings| settings.on.keys()).collect();
    // What is in force on a platform, not what its overrides say: those of the defaults give way to the case.
    for platform in platforms {
        text.text(platform.as_str());
        put_stack(&mut text, &suite.stack(case, platform, Depth::Full));
        put_rings(&mut text, &suite.rings(case, Some(platform)));
    }
    text.text("quick");
    put_stack(&mut text, &suite.stack_anywhere(case, Depth::Quick));
    text
}

/// Rings keep their tiers apart, since records name them.
fn put_rings(text: &mut Canonical, tiers: &[(crate::ring::Tier, RingLayer)]) {
    for (tier, layer) in tiers {
        text.text(tier.token());
        for resource in Resource::ALL {
            // A scalar and four times the same are one meaning.
            text.key(resource.token(), layer.get(resource), |text, setting| {
                for ring in 0..RINGS {
                    match setting.entry(ring) {
                        RingEntry::Inherit => text.text("0"),
                        RingEntry::Default => text.text("default"),
                        RingEntry::Value(value) => text.number(value),
                    }
                }
            });
        }
    }
}

fn put_stack(text: &mut Canonical, stack: &Stack<'_>) {
    text.key("kernel", stack.first(|layer| layer.kernel.as_ref()), |text, at| {
        text.text(&at.value);
    });
    for (name, at) in stack.entries(|layer| &layer.params) {
        text.texts(["param", name, &at.value].into_iter());
    }
    text.key("ranks", stack.first(|layer| layer.ranks.as_ref()), |text, at| {
        text.number(at.value);
    });
    text.key("devices", stack.first(|layer| layer.devices.as_ref()), |text, at| {
        text.number(at.value);
    });
    text.key("pin", stack.first(|layer| layer.pin.as_ref()), |text, at| {
        for id in &at.value {
            text.number(id);
        }
    });
    text.key("level", stack.first(|layer| layer.level.as_ref()), |text, at| {
        text.text(at.value.token());
    });
    text.key("memory", stack.first(|layer| layer.memory.as_ref()), |text, at| {
        text.number(at.value.get());
    });
    let limit = stack.first(|layer| layer.memory_limit.as_ref());
    text.key("memory_limit", limit, |text, at| text.number(at.value.get()));
    let budgets = stack.budgets();
    for &budget in Budget::ALL {
        text.key(budget.token(), budgets.get(budget), |text, limit| {
            text.number(limit.as_millis());
        });
    }
    text.key("warmup", stack.warmup(), Canonical::number);
    text.key("rounds", stack.rounds(), Canonical::number);
    for (name, at) in stack.entries(|layer| &layer.tolerances) {
        text.texts(["tolerance", name, &at.value.to_string()].into_iter());
    }
    text.text("tags");
    text.texts(stack.tags().into_iter());
    text.key(
        "platforms",
        stack.first(|layer| layer.platforms.as_ref()),
        |text, at| {
            put_sorted(text, at.value.iter().map(|name| name.value.as_str()));
        },
    );
    text.key("skip", stack.first(|layer| layer.skip.as_ref()), |text, at| {
        put_sorted(text, at.value.on.iter().map(|name| name.value.as_str()));
        text.text(&at.value.reason);
    });
    text.key("expect", stack.first(|layer| layer.expect.as_ref()), |text, at| {
        let expect = &at.value;
        text.text(expect.outcome.token());
        text.key("cause", expect.cause.as_deref(), Canonical::text);
        text.key("ring", expect.ring, Canonical::number);
        text.key(
            "shows",
            Some(&expect.shows).filter(|shows| !shows.is_empty()),
            |text, shows| {
                text.texts(shows.iter().map(String::as_str));
            },
        );
        text.key("issue", expect.issue.as_deref(), Canonical::text);
        text.key("until", expect.until, Canonical::number);
        text.key("reported", expect.reported, |text, reported| {
            text.text(reported.token());
        });
    });
    text.key("retry", stack.first(|layer| layer.retry.as_ref()), |text, at| {
        put_sorted(text, at.value.on.iter().map(|kind| kind.token()));
        text.number(at.value.attempts);
    });
    for (name, at) in stack.entries(|layer| &layer.env) {
        text.texts(["env", name, &at.value].into_iter());
    }
    text.key("runner", stack.first(|layer| layer.runner.as_ref()), |text, at| {
        text.text(at.value.token());
    });
    text.key("command", stack.first(|layer| layer.command.as_ref()), |text, at| {
        put_command(text, &at.value);
    });
    text.key("pypto", stack.first(|layer| layer.pypto.as_ref()), |text, at| {
        text.text(&at.value.program);
        put_templates(text, &at.value.args);
        let statistics = Some(()).filter(|()| at.value.scope_stats == ScopeStats::On);
        text.key("scope_stats", statistics, |_, ()| {});
        text.texts(at.value.markers.iter().map(String::as_str));
    });
}

fn put_sorted<'t>(text: &mut Canonical, words: impl Iterator<Item = &'t str>) {
    let words: BTreeSet<_> = words.collect();
    text.texts(words.into_iter());
}

fn put_templates(text: &mut Canonical, templates: &[Template]) {
    text.number(templates.len());
    for template in templates {
        text.number(template);
    }
}

fn put_command(text: &mut Canonical, spec: &CommandSpec) {
    put_templates(text, &spec.argv);
    text.key("cwd", spec.cwd.as_deref(), Canonical::text);
    text.texts(spec.env_pass.iter().map(String::as_str));
    text.key("rules", spec.rules.as_deref(), Canonical::text);
    match &spec.rings {
        RingChannel::None => text.text("none"),
        RingChannel::Env(names) => {
            text.text("env");
            for (resource, name) in names {
                text.texts([resource.token(), name].into_iter());
            }
        }
        RingChannel::Argv(_) => text.text("argv"),
        RingChannel::JsonFile { env } => {
            text.text("file");
            text.key("env", env.as_deref(), Canonical::text);
        }
    }
    match &spec.read_back {
        ReadBack::None => text.text("none"),
        ReadBack::Report => text.text("report"),
        ReadBack::Log => text.text("log"),
        ReadBack::ScopeStats(file) => text.texts(["scope-stats", &file.to_string()].into_iter()),
    }
    match &spec.samples {
        SampleSource::None => text.text("none"),
        SampleSource::Report => text.text("report"),
        SampleSource::Log { pattern, unit, clock } => {
            text.texts(["log", pattern, unit.token(), clock.token()].into_iter());
        }
        SampleSource::Json {
            file,
            pointer,
            unit,
            clock,
        } => text.texts(["json", &file.to_string(), pointer, unit.token(), clock.token()].into_iter()),
    }
}
