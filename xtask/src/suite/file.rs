//! One suite file: header, defaults, cases, matrices, renames.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    layer::Settings,
    matrix::{self, Declared},
    read,
    stack::{CaseTier, Stack},
};
use crate::{
    case_id::CaseId,
    diagnostic::{Problem, Source},
    document::{At, Sink, Table},
    platform::PlatformName,
    ring::{RingLayer, Tier},
    suggest,
};

/// Whether a suite is swept when nobody names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Part of a sweep that names no suite.
    Default,
    /// Only with `--suite NAME`, or a filter that starts with `NAME/`.
    ByName,
}

/// How much of a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// As declared.
    Full,
    /// As declared for quick runs: one timed dispatch, unless the suite says otherwise.
    Quick,
}

/// A suite with its cases expanded.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The file.
    pub source: Arc<Source>,
    /// Its name, that of the file without `.toml`.
    pub name: String,
    /// One sentence for listings.
    pub description: Option<String>,
    /// When it is swept.
    pub scope: Scope,
    /// What its cases inherit.
    pub defaults: Settings,
    /// Its cases in declared order, those of a matrix by id.
    pub cases: Vec<Declared>,
    /// Renamed ids: from, to.
    pub renamed: Vec<(At<CaseId>, At<CaseId>)>,
}

impl Suite {
    /// Reads the suite `stem` from `source`; what has mistakes is left out of it.
    pub fn read(stem: &str, source: &Arc<Source>) -> (Self, Vec<Problem>) {
        let sink = Sink::new(source);
        let suite = sink.document(|root| Some(read_suite(stem, root)));
        let suite = suite.unwrap_or_else(|| empty(stem, source));
        (suite, sink.into_problems())
    }

    /// The layers that decide `case` on `platform`.
    pub fn stack<'a>(&'a self, case: &'a Declared, platform: &PlatformName, depth: Depth) -> Stack<'a> {
        match depth {
            Depth::Full => Stack::full(&case.tier, &self.defaults, Some(platform)),
            Depth::Quick => Stack::quick(&case.tier, &self.defaults, Some(platform)),
        }
    }

    /// The layers that decide `case` where nothing is said of the platform.
    pub fn stack_anywhere<'a>(&'a self, case: &'a Declared, depth: Depth) -> Stack<'a> {
        match depth {
            Depth::Full => Stack::full(&case.tier, &self.defaults, None),
            Depth::Quick => Stack::quick(&case.tier, &self.defaults, None),
        }
    }

    /// The ring layers of `case` on `platform` (or where nothing is said of it), strongest first.
    pub fn rings(&self, case: &Declared, platform: Option<&PlatformName>) -> [(Tier, RingLayer); 2] {
        [
            (Tier::Case, Stack::case_tier(&case.tier, platform).ring()),
            (Tier::Suite, Stack::suite_tier(&self.defaults, platform).ring()),
        ]
    }
}

/// What is known of a suite whose file can't be parsed.
fn empty(stem: &str, source: &Arc<Source>) -> Suite {
    Suite {
        source: Arc::clone(source),
        name: stem.to_owned(),
        description: None,
        scope: Scope::Default,
        defaults: Settings::default(),
        cases: Vec::new(),
        renamed: Vec::new(),
    }
}

fn read_suite(stem: &str, mut root: Table<'_>) -> Suite {
    let sink = root.sink;
    let (mut description, mut scope) = (None, Scope::Default);
    if let Some(mut header) = root.table("suite", "suite") {
        let name = header.text("name");
        if !header.has("name") {
            header.require("name", &format!("name = \"{stem}\""));
        }
        if let Some(name) = name.filter(|name| name.value != stem) {
            let message = format!("the suite is called `{}`, its file `{stem}.toml`", name.value);
            let problem = sink.problem(name.span, message, "another name");
            sink.push(problem.help(format!("write `{stem}`, or rename the file: ids start with the name")));
        }
        description = header.text("description").map(|at| at.value);
        if header.boolean("default").is_some_and(|default| !default.value) {
            scope = Scope::ByName;
        }
        header.finish();
    } else {
        root.require("suite", &format!("[suite] name = \"{stem}\""));
    }
    let defaults = root.table("defaults", "defaults").map(|mut table| {
        let settings = read::settings(&mut table);
        table.finish();
        settings
    });
    let mut cases = Vec::new();
    for mut table in root.tables("case", "case") {
        cases.extend(read_case(stem, &mut table));
        table.finish();
    }
    for mut table in root.tables("matrix", "matrix") {
        cases.extend(matrix::read(stem, &mut table));
        table.finish();
    }
    // Declared order over both lists; the sort is stable, so the points of a matrix stay sorted.
    cases.sort_by_key(|case| case.span.start);
    report_duplicates(sink, &mut cases);
    let renamed = root.tables("renamed", "rename");
    let renamed = renamed
        .into_iter()
        .filter_map(|table| read_rename(stem, table, &cases))
        .collect();
    if !root.has("case") && !root.has("matrix") {
        root.require("case", "[[case]]");
    }
    root.finish();
    Suite {
        description,
        scope,
        defaults: defaults.unwrap_or_default(),
        cases,
        renamed,
        ..empty(stem, sink.source())
    }
}

fn read_case(suite: &str, table: &mut Table<'_>) -> Option<Declared> {
    let name = matrix::read_name(table);
    let case = read::settings(table);
    let name = name?;
    let id = CaseId::new(suite, &name.value, &[]);
    let id = id
        .map_err(|error| table.sink.report(name.span.clone(), error.to_string(), "here"))
        .ok()?;
    let tier = CaseTier {
        own: Arc::new(case),
        point: Vec::new(),
        overrides: Vec::new(),
    };
    let span = name.span;
    Some(Declared { id, tier, span })
}

fn report_duplicates(sink: &Sink, cases: &mut Vec<Declared>) {
    let mut first = BTreeMap::new();
    cases.retain(|case| {
        let Some(span) = first.insert(case.id.clone(), case.span.clone()) else {
            return true;
        };
        let problem = sink.problem(
            case.span.clone(),
            format!("the case `{}` is declared twice", case.id),
            "here again",
        );
        sink.push(problem.and_at(span.clone(), "first here"));
        first.insert(case.id.clone(), span);
        false
    });
}

fn read_rename(suite: &str, mut table: Table<'_>, cases: &[Declared]) -> Option<(At<CaseId>, At<CaseId>)> {
    let sink = table.sink;
    let mut id = |key| {
        let text = table.text(key);
        if !table.has(key) {
            table.require(key, &format!("{key} = \"name\""));
        }
        let text = text?;
        let whole = if text.value.contains('/') {
            text.value.clone()
        } else {
            format!("{suite}/{}", text.value)
        };
        match whole.parse::<CaseId>() {
            Ok(id) => Some(At::new(id, text.span)),
            Err(error) => {
                sink.report(text.span, error.to_string(), "no case id");
                None
            }
        }
    };
    let (from, to) = (id("from"), id("to"));
    table.finish();
    let (from, to) = (from?, to?);
    if let Some(case) = cases.iter().find(|case| case.id == from.value) {
        let problem = sink.problem(
            from.span.clone(),
            format!("`{}` still exists", from.value),
            "renamed from",
        );
        sink.push(
            problem
                .and_at(case.span.clone(), "declared here")
                .help("remove the rename, or the case"),
        );
    }
    if !cases.iter().any(|case| case.id == to.value) {
        let problem = sink.problem(
            to.span.clone(),
            format!("`{}` is no case of this suite", to.value),
            "renamed to",
        );
        sink.push(problem.help(suggest::help(
            to.value.as_str(),
            "cases",
            cases.iter().map(|case| case.id.as_str()),
        )));
    }
    Some((from, to))
}
