//! Reads what the `command` and `pypto` runners need from TOML.

use std::{collections::BTreeMap, sync::Arc};

use regex::Regex;

use super::{
    runner::{Clock, CommandSpec, PyptoSpec, ReadBack, RingChannel, SampleSource, ScopeStats, TimeUnit},
    template::{Parameter, Template, TemplateError},
};
use crate::{
    document::{At, Sink, Table},
    ring::Resource,
    suggest,
};

/// The template that `text` means.
pub(crate) fn template(sink: &Sink, text: &At<String>) -> Option<Template> {
    let error = match Template::parse(&text.value) {
        Ok(template) => return Some(template),
        Err(error) => error,
    };
    let mut problem = sink.problem(text.span.clone(), error.to_string(), "in this template");
    if let TemplateError::Unknown(name) = &error {
        let choices = Parameter::TOKENS.iter().copied().chain(["param.NAME"]);
        problem = problem.help(suggest::help(name, "valid parameters", choices));
    }
    sink.push(problem);
    None
}

/// The templates of the list `key`.
pub(crate) fn templates(table: &mut Table<'_>, key: &'static str) -> Vec<Template> {
    let texts = table.texts(key).unwrap_or_default();
    texts.iter().filter_map(|text| template(table.sink, text)).collect()
}

pub(super) fn pypto(table: &mut Table<'_>) -> Option<At<Arc<PyptoSpec>>> {
    let mut inner = table.table("pypto", "pypto program")?;
    let program = inner.text("program");
    if program.is_none() {
        inner.require("program", "program = \"models/…/rmsnorm.py\"");
    }
    let args = templates(&mut inner, "args");
    let markers = inner.texts("markers").unwrap_or_default();
    let scope_stats = inner.boolean("scope_stats").is_some_and(|on| on.value);
    let span = inner.span.clone();
    inner.finish();
    let spec = PyptoSpec {
        program: program?.value,
        args,
        scope_stats: if scope_stats { ScopeStats::On } else { ScopeStats::Off },
        markers: markers.into_iter().map(|at| at.value).collect(),
    };
    Some(At::new(Arc::new(spec), span))
}

pub(super) fn command(table: &mut Table<'_>) -> Option<At<Arc<CommandSpec>>> {
    let mut inner = table.table("command", "command")?;
    let argv = templates(&mut inner, "argv");
    if !inner.has("argv") || inner.list("argv").is_some_and(|list| list.is_empty()) {
        inner.require("argv", "argv = [\"program\", \"--seed\", \"{seed}\"]");
    }
    let cwd = inner.text("cwd");
    let env_pass = inner.texts("env_pass").unwrap_or_default();
    let rules = inner.text("rules");
    let rings = rings(&mut inner, &argv);
    let read_back = read_back(&mut inner);
    let samples = samples(&mut inner);
    let span = inner.span.clone();
    inner.finish();
    let spec = CommandSpec {
        argv,
        cwd: cwd.map(|at| at.value),
        env_pass: env_pass.into_iter().map(|at| at.value).collect(),
        rules: rules.map(|at| at.value),
        rings: rings.unwrap_or(RingChannel::None),
        read_back: read_back.unwrap_or(ReadBack::None),
        samples: samples.unwrap_or(SampleSource::None),
    };
    Some(At::new(Arc::new(spec), span))
}

#[derive(Clone, Copy)]
enum Via {
    None,
    Env,
    Argv,
    File,
}

fn rings(table: &mut Table<'_>, argv: &[Template]) -> Option<RingChannel> {
    let mut inner = table.table("rings", "ring channel")?;
    let via = inner.choice(
        "via",
        &[
            ("none", Via::None),
            ("env", Via::Env),
            ("argv", Via::Argv),
            ("file", Via::File),
        ],
    );
    if !inner.has("via") {
        inner.require("via", "via = \"env\"");
    }
    let channel = via.map(|via| match via.value {
        Via::None => RingChannel::None,
        Via::Env => {
            let mut names = BTreeMap::new();
            for resource in Resource::ALL {
                if let Some(name) = inner.text(resource.token()) {
                    names.insert(resource, name.value);
                }
            }
            if names.is_empty() {
                inner.require("heap", "heap = \"RING_HEAP\"");
            }
            RingChannel::Env(names)
        }
        Via::Argv => {
            let named = RingChannel::named_in(argv);
            if named.is_empty() {
                let problem = inner.sink.problem(
                    via.span.clone(),
                    "the argv names no ring parameter",
                    "so no ring reaches the program",
                );
                inner.sink.push(
                    problem
                        .help("use `{ring_heap}`, `{ring_task_window}`, `{ring_dep_pool}` or `{ring_json}` in `argv`"),
                );
            }
            RingChannel::Argv(named)
        }
        Via::File => {
            let env = inner.text("env").map(|at| at.value);
            let named = argv
                .iter()
                .flat_map(Template::parameters)
                .any(|p| *p == Parameter::RingFile);
            if env.is_none() && !named {
                let problem = inner.sink.problem(
                    via.span.clone(),
                    "nothing tells the program where the file is",
                    "no way to find it",
                );
                inner
                    .sink
                    .push(problem.help("use `{ring_file}` in `argv`, or name a variable with `env = \"…\"`"));
            }
            RingChannel::JsonFile { env }
        }
    });
    inner.finish();
    channel
}

#[derive(Clone, Copy)]
enum From {
    None,
    Report,
    Log,
    ScopeStats,
    Json,
}

fn read_back(table: &mut Table<'_>) -> Option<ReadBack> {
    let mut inner = table.table("read_back", "ring read-back")?;
    let from = inner.choice(
        "from",
        &[
            ("none", From::None),
            ("report", From::Report),
            ("log", From::Log),
            ("scope-stats", From::ScopeStats),
        ],
    );
    if !inner.has("from") {
        inner.require("from", "from = \"log\"");
    }
    let read_back = from.and_then(|from| match from.value {
        From::None | From::Json => Some(ReadBack::None),
        From::Report => Some(ReadBack::Report),
        From::Log => Some(ReadBack::Log),
        From::ScopeStats => {
            let file = inner.text("file");
            if file.is_none() {
                inner.require("file", "file = \"out/scope_stats.jsonl\"");
            }
            template(inner.sink, &file?).map(ReadBack::ScopeStats)
        }
    });
    inner.finish();
    read_back
}

fn samples(table: &mut Table<'_>) -> Option<SampleSource> {
    let mut inner = table.table("samples", "samples")?;
    let from = inner.choice(
        "from",
        &[
            ("none", From::None),
            ("report", From::Report),
            ("log", From::Log),
            ("json", From::Json),
        ],
    );
    if !inner.has("from") {
        inner.require("from", "from = \"log\"");
    }
    let source = from.and_then(|from| match from.value {
        From::Report => Some(SampleSource::Report),
        From::Log => log_samples(&mut inner),
        From::Json => json_samples(&mut inner),
        From::None | From::ScopeStats => Some(SampleSource::None),
    });
    inner.finish();
    source
}

/// Unit and clock of samples that are bare numbers, and whatever else `required` names with an example.
fn numbers(table: &mut Table<'_>, required: &[(&'static str, &str)]) -> Option<(TimeUnit, Clock)> {
    let unit = table.choice("unit", &TimeUnit::ALL.map(|unit| (unit.token(), unit)));
    let clock = table.choice("clock", &Clock::ALL.map(|clock| (clock.token(), clock)));
    let both = [("unit", "unit = \"ns\""), ("clock", "clock = \"device\"")];
    for (key, example) in required.iter().chain(&both) {
        if !table.has(key) {
            table.require(key, example);
        }
    }
    Some((unit?.value, clock?.value))
}

fn json_samples(table: &mut Table<'_>) -> Option<SampleSource> {
    let (file, pointer) = (table.text("file"), table.text("pointer"));
    let required = [
        ("file", "file = \"out/{name}.json\""),
        ("pointer", "pointer = \"/samples\""),
    ];
    let numbers = numbers(table, &required);
    let file = file.and_then(|file| template(table.sink, &file));
    let pointer = pointer?;
    if !pointer.value.is_empty() && !pointer.value.starts_with('/') {
        let message = format!("`{}` is no JSON pointer", pointer.value);
        let problem = table.sink.problem(pointer.span, message, "it begins with `/`");
        table
            .sink
            .push(problem.help("write `/samples`, or `/runs/*/us` for a field of every entry of a list"));
        return None;
    }
    let (unit, clock) = numbers?;
    Some(SampleSource::Json {
        file: file?,
        pointer: pointer.value,
        unit,
        clock,
    })
}

fn log_samples(table: &mut Table<'_>) -> Option<SampleSource> {
    let pattern = table.text("pattern");
    let numbers = numbers(table, &[("pattern", "pattern = 'took (?<value>[0-9]+) ns'")]);
    let pattern = pattern?;
    match Regex::new(&pattern.value) {
        Err(error) => {
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            table
                .sink
                .report(pattern.span.clone(), format!("invalid pattern: {last}"), "here");
            return None;
        }
        Ok(regex) if !regex.capture_names().flatten().any(|name| name == "value") => {
            let problem = table.sink.problem(
                pattern.span.clone(),
                "the pattern captures no `value`",
                "which number is the sample?",
            );
            table.sink.push(problem.help("write `(?<value>[0-9.]+)` around it"));
            return None;
        }
        Ok(_) => {}
    }
    let (unit, clock) = numbers?;
    Some(SampleSource::Log {
        pattern: pattern.value,
        unit,
        clock,
    })
}
