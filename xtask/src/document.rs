//! Reading TOML tables with every mistake collected.
//!
//! Derived deserialisers stop at the first mistake; an author who fixes a file wants all of them.
//! So a document is walked by hand: a [`Table`] notes which keys were asked for, and what remains
//! in [`Table::finish`] is unknown, with the asked keys as the valid choices.

use std::{cell::RefCell, fmt::Display, sync::Arc};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    diagnostic::{Problem, Source, Span},
    suggest,
};

/// A value and where it stands; comparisons look at the value only.
#[derive(Clone, Debug)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its place in the file.
    pub span: Span,
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T> At<T> {
    pub(crate) fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }

    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> At<U> {
        At::new(f(self.value), self.span)
    }
}

pub(crate) type Node<'a> = &'a Spanned<DeValue<'a>>;

/// The mistakes of one file.
#[derive(Debug)]
pub(crate) struct Sink {
    source: Arc<Source>,
    problems: RefCell<Vec<Problem>>,
}

impl Sink {
    pub(crate) fn new(source: &Arc<Source>) -> Self {
        Self {
            source: Arc::clone(source),
            problems: RefCell::default(),
        }
    }

    pub(crate) fn source(&self) -> &Arc<Source> {
        &self.source
    }

    pub(crate) fn report(&self, span: Span, message: impl Into<String>, label: impl Into<String>) {
        self.push(Problem::new(&self.source, span, message, label));
    }

    pub(crate) fn push(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    pub(crate) fn problem(&self, span: Span, message: impl Into<String>, label: impl Into<String>) -> Problem {
        Problem::new(&self.source, span, message, label)
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    /// Parses the whole file and hands its root table to `read`. A file whose syntax is broken is not read any
    /// further: what a parser recovers of it would be full of mistakes that nobody made.
    pub(crate) fn document<T: Default>(&self, read: impl FnOnce(Table<'_>) -> T) -> T {
        let (root, errors) = DeTable::parse_recoverable(self.source.text());
        let mut told = Vec::new();
        for error in &errors {
            let mistake = (error.span().unwrap_or_default(), error.message().trim());
            if !told.contains(&mistake) {
                self.report(mistake.0.clone(), format!("invalid TOML: {}", mistake.1), "here");
                told.push(mistake);
            }
        }
        if !errors.is_empty() {
            return T::default();
        }
        read(Table {
            sink: self,
            rows: root.get_ref(),
            span: root.span(),
            what: "file",
            asked: Vec::new(),
        })
    }
}

/// What kind of value stands somewhere, with its article.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// One table that is being read.
#[derive(Debug)]
pub(crate) struct Table<'a> {
    pub(crate) sink: &'a Sink,
    rows: &'a DeTable<'a>,
    pub(crate) span: Span,
    what: &'static str,
    asked: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The value of `key`, which is valid from now on.
    pub(crate) fn node(&mut self, key: &'static str) -> Option<Node<'a>> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.rows.get(key)
    }

    /// True when the table has `key`, be its value right or wrong.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.rows.contains_key(key)
    }

    /// Reports the keys that nobody asked for.
    pub(crate) fn finish(self) {
        for (key, _) in self.rows {
            let word = key.get_ref();
            if self.asked.contains(&word.as_ref()) {
                continue;
            }
            let message = format!("unknown key `{word}` in {}", self.what);
            let help = suggest::help(word, "valid keys", self.asked.iter().copied());
            self.sink
                .push(self.sink.problem(key.span(), message, "not a key here").help(help));
        }
    }

    /// Reports that `key` is missing, for the first line of the table.
    pub(crate) fn require(&self, key: &str, example: &str) {
        let problem = self.sink.problem(
            first_line(self.sink.source(), &self.span),
            format!("{} without `{key}`", self.what),
            format!("`{key}` is missing"),
        );
        self.sink.push(problem.help(format!("add `{example}`")));
    }

    /// Reports a value of the wrong kind.
    pub(crate) fn wrong(&self, key: &str, node: Node<'a>, expected: &str) {
        wrong_kind(self.sink, key, node, expected);
    }

    pub(crate) fn text(&mut self, key: &'static str) -> Option<At<String>> {
        let node = self.node(key)?;
        read_text(self.sink, key, node)
    }

    /// The string of `key` through `parse`, whose error is the message; `expected` is told of a value that is no string.
    pub(crate) fn parsed<T, E: Display>(
        &mut self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<At<T>> {
        let node = self.node(key)?;
        let DeValue::String(text) = node.get_ref() else {
            self.wrong(key, node, expected);
            return None;
        };
        match parse(text) {
            Ok(value) => Some(At::new(value, node.span())),
            Err(error) => {
                self.sink
                    .report(node.span(), error.to_string(), format!("invalid `{key}`"));
                None
            }
        }
    }

    /// The string of `key`, which must be one of `choices`.
    pub(crate) fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Option<At<T>> {
        let text = self.text(key)?;
        let value = choose(self.sink, key, &text, choices)?;
        Some(At::new(value, text.span))
    }

    /// The integer of `key` within `range`.
    pub(crate) fn integer(&mut self, key: &'static str, range: std::ops::RangeInclusive<u64>) -> Option<At<u64>> {
        let node = self.node(key)?;
        read_integer(self.sink, key, node, range)
    }

    pub(crate) fn count(&mut self, key: &'static str, least: u32) -> Option<At<u32>> {
        let number = self.integer(key, u64::from(least)..=u64::from(u32::MAX))?;
        Some(number.map(|n| u32::try_from(n).expect("the range is that of u32")))
    }

    pub(crate) fn boolean(&mut self, key: &'static str) -> Option<At<bool>> {
        let node = self.node(key)?;
        if let DeValue::Boolean(value) = node.get_ref() {
            return Some(At::new(*value, node.span()));
        }
        self.wrong(key, node, "`true` or `false`");
        None
    }

    /// The table of `key`; `what` names it in messages.
    pub(crate) fn table(&mut self, key: &'static str, what: &'static str) -> Option<Table<'a>> {
        let node = self.node(key)?;
        as_table(self.sink, key, node, what)
    }

    /// The tables of the list `key`.
    pub(crate) fn tables(&mut self, key: &'static str, what: &'static str) -> Vec<Table<'a>> {
        let nodes = self.list(key).unwrap_or_default();
        nodes
            .into_iter()
            .filter_map(|node| as_table(self.sink, key, node, what))
            .collect()
    }

    /// The elements of the list `key`.
    pub(crate) fn list(&mut self, key: &'static str) -> Option<Vec<Node<'a>>> {
        let node = self.node(key)?;
        if let DeValue::Array(nodes) = node.get_ref() {
            return Some(nodes.iter().collect());
        }
        self.wrong(key, node, "a list");
        None
    }

    /// The strings of the list `key`.
    pub(crate) fn texts(&mut self, key: &'static str) -> Option<Vec<At<String>>> {
        let nodes = self.list(key)?;
        Some(
            nodes
                .into_iter()
                .filter_map(|node| read_text(self.sink, key, node))
                .collect(),
        )
    }

    /// The entries of a table whose keys are names of the author's own.
    pub(crate) fn entries(&mut self, key: &'static str) -> Vec<(At<String>, Node<'a>)> {
        match self.node(key).map(|node| (node, node.get_ref())) {
            None => Vec::new(),
            Some((_, DeValue::Table(table))) => {
                let mut entries: Vec<_> = table
                    .iter()
                    .map(|(name, node)| (At::new(name.get_ref().to_string(), name.span()), node))
                    .collect();
                entries.sort_by_key(|(name, _)| name.span.start);
                entries
            }
            Some((node, _)) => {
                self.wrong(key, node, "a table");
                Vec::new()
            }
        }
    }
}

pub(crate) fn as_table<'a>(sink: &'a Sink, key: &str, node: Node<'a>, what: &'static str) -> Option<Table<'a>> {
    if let DeValue::Table(table) = node.get_ref() {
        return Some(Table {
            sink,
            rows: table,
            span: node.span(),
            what,
            asked: Vec::new(),
        });
    }
    wrong_kind(sink, key, node, "a table");
    None
}

pub(crate) fn wrong_kind(sink: &Sink, key: &str, node: Node<'_>, expected: &str) {
    let label = format!("this is {}", kind(node.get_ref()));
    sink.report(node.span(), format!("`{key}` must be {expected}"), label);
}

pub(crate) fn read_text(sink: &Sink, key: &str, node: Node<'_>) -> Option<At<String>> {
    if let DeValue::String(text) = node.get_ref() {
        return Some(At::new(text.to_string(), node.span()));
    }
    wrong_kind(sink, key, node, "a string");
    None
}

pub(crate) fn read_integer(
    sink: &Sink,
    key: &str,
    node: Node<'_>,
    range: std::ops::RangeInclusive<u64>,
) -> Option<At<u64>> {
    let DeValue::Integer(integer) = node.get_ref() else {
        wrong_kind(sink, key, node, "an integer");
        return None;
    };
    let number = u64::from_str_radix(integer.as_str().trim_start_matches('+'), integer.radix());
    match number {
        Ok(number) if range.contains(&number) => Some(At::new(number, node.span())),
        _ => {
            let (least, most) = range.into_inner();
            let bound = if most == u64::MAX || most == u64::from(u32::MAX) {
                format!("`{key}` must be at least {least}")
            } else {
                format!("`{key}` must be from {least} to {most}")
            };
            sink.report(node.span(), bound, "out of range");
            None
        }
    }
}

/// The value of the choice that `text` names; else a problem with the valid ones.
pub(crate) fn choose<T: Copy>(sink: &Sink, key: &str, text: &At<String>, choices: &[(&'static str, T)]) -> Option<T> {
    let found = choices.iter().find(|(name, _)| *name == text.value);
    if found.is_none() {
        let help = suggest::help(&text.value, "valid values", choices.iter().map(|(name, _)| *name));
        let message = format!("unknown {key} `{}`", text.value);
        sink.push(sink.problem(text.span.clone(), message, "not a valid value").help(help));
    }
    found.map(|(_, value)| *value)
}

/// The first line of `span`, so that a caret under a table doesn't underline all of it.
pub(crate) fn first_line(source: &Source, span: &Span) -> Span {
    let text = source.text().get(span.clone()).unwrap_or_default();
    let length = text.find('\n').unwrap_or(text.len());
    span.start..span.start + length
}
