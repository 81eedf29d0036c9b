//! Rule files: TOML to validated rules. Every mistake is reported with its place, all of them at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use regex::bytes::Regex;
use serde::Deserialize;
use toml::Spanned;

use super::facts::{FactName, Facts};
use super::rule::{Class, NoVerdict, Predicate, Rule, RuleSet, Tables, Verdict, compile};
use crate::outcome::{Outcome, OutcomeKind};

/// One mistake in a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleProblem {
    /// Bytes of the file that it is about.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub help: Option<String>,
}

/// A rule file that can't be used: all of its mistakes, in order of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} in the rules", match problems.len() { 1 => "a mistake".to_owned(), n => format!("{n} mistakes") })]
pub struct RuleFileError {
    /// Never empty.
    pub problems: Vec<RuleProblem>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileWire {
    #[serde(default)]
    extends: Vec<Spanned<String>>,
    #[serde(default)]
    prefix: Vec<PrefixWire>,
    #[serde(default)]
    tables: BTreeMap<String, BTreeMap<String, Spanned<String>>>,
    #[serde(default)]
    rule: Vec<RuleWire>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrefixWire {
    pattern: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleWire {
    name: Spanned<String>,
    class: Spanned<String>,
    pattern: Option<Spanned<String>>,
    command: Option<Spanned<String>>,
    #[serde(default)]
    exit: Vec<i32>,
    #[serde(default)]
    when: Vec<Spanned<String>>,
    #[serde(default)]
    unless: Vec<Spanned<String>>,
    #[serde(default)]
    resets: Vec<Spanned<String>>,
    #[serde(default)]
    of: Vec<Spanned<String>>,
    #[serde(default)]
    require: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    outcome: Option<Spanned<String>>,
    cause: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    table: Option<Spanned<String>>,
    #[serde(default)]
    facts: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    #[serde(default)]
    explains: Vec<Spanned<String>>,
    example: Option<Spanned<String>>,
}

/// Parts of a rule file before they become one set with the files that it extends.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    pub(super) prefixes: Vec<String>,
    pub(super) tables: Tables,
    pub(super) rules: Vec<Rule>,
}

/// The rule set that the file `text` declares. `base` gives the parts of a rule set that it extends.
///
/// # Errors
/// Every mistake of the file; those of its examples only once the rest is right.
pub fn parse(name: &str, text: &str) -> Result<RuleSet, RuleFileError> {
    let parts = parse_parts(text, &|base| super::builtin::parts(base))?;
    build(name, parts, text)
}

/// Turns parts into a set and tries the examples.
pub(super) fn build(name: &str, parts: Parts, text: &str) -> Result<RuleSet, RuleFileError> {
    let rules =
        RuleSet::new(name.into(), parts.rules, parts.tables, &parts.prefixes).map_err(|error| RuleFileError {
            problems: vec![RuleProblem {
                span: 0..text.len().min(1),
                message: format!("the patterns together are too large: {error}"),
                help: None,
            }],
        })?;
    Ok(rules)
}

pub(super) fn parse_parts(text: &str, base: &dyn Fn(&str) -> Option<Parts>) -> Result<Parts, RuleFileError> {
    let wire: FileWire = toml::from_str(text).map_err(|error| RuleFileError {
        problems: vec![RuleProblem {
            span: error.span().unwrap_or(0..0),
            message: error.message().to_owned(),
            help: None,
        }],
    })?;
    let mut reader = Reader::default();
    for name in &wire.extends {
        match base(name.get_ref()) {
            Some(parts) => {
                reader.parts.prefixes.extend(parts.prefixes);
                reader.parts.tables.extend(parts.tables);
                reader.parts.rules.extend(parts.rules);
            }
            None => reader.problem(
                name,
                format!("unknown rule set `{}`", name.get_ref()),
                Some(format!("rule sets are {}", super::BUILTIN_NAMES.join(", "))),
            ),
        }
    }
    for prefix in &wire.prefix {
        if reader.pattern(&prefix.pattern, true).is_some() {
            reader.parts.prefixes.push(prefix.pattern.get_ref().clone());
        }
    }
    for (name, entries) in &wire.tables {
        let table = entries
            .iter()
            .filter_map(|(key, text)| Some((key.clone(), reader.pair(text)?)))
            .collect();
        reader.parts.tables.insert(name.clone(), table);
    }
    let names: BTreeMap<String, Class> = reader
        .parts
        .rules
        .iter()
        .map(|rule| (rule.name.clone(), rule.class))
        .chain(
            wire.rule
                .iter()
                .filter_map(|rule| Some((rule.name.get_ref().clone(), Class::from_token(rule.class.get_ref())?))),
        )
        .collect();
    for rule in &wire.rule {
        reader.rule(rule, &names);
    }
    if reader.problems.is_empty() {
        Ok(reader.parts)
    } else {
        reader.problems.sort_by_key(|problem| problem.span.start);
        Err(RuleFileError {
            problems: reader.problems,
        })
    }
}

#[derive(Default)]
struct Reader {
    parts: Parts,
    problems: Vec<RuleProblem>,
}

impl Reader {
    fn problem<T>(&mut self, at: &Spanned<T>, message: String, help: Option<String>) {
        self.problems.push(RuleProblem {
            span: at.span(),
            message,
            help,
        });
    }

    /// Compiles a pattern; one on lines must be anchored at its start.
    fn pattern(&mut self, text: &Spanned<String>, anchored: bool) -> Option<Regex> {
        let pattern = text.get_ref();
        let flags_end = pattern
            .strip_prefix("(?")
            .and_then(|rest| rest.find(')'))
            .map_or(0, |end| end + 3);
        if anchored && !pattern.starts_with('^') && !pattern[flags_end..].starts_with('^') {
            self.problem(
                text,
                "the pattern is not anchored".into(),
                Some("begin it with `^`; prefixes such as a level or a thread are skipped before it is tried".into()),
            );
            return None;
        }
        match compile(pattern) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                self.problem(text, format!("invalid pattern: {error}"), None);
                None
            }
        }
    }

    fn fact_name(&mut self, name: &Spanned<String>) -> Option<FactName> {
        let fact = FactName::from_token(name.get_ref());
        if fact.is_none() {
            self.problem(name, format!("unknown fact `{}`", name.get_ref()), Some(fact_help()));
        }
        fact
    }

    /// A verdict written `kind/cause`, in a table.
    fn pair(&mut self, text: &Spanned<String>) -> Option<Verdict> {
        let (kind, cause) = text.get_ref().split_once('/').unwrap_or((text.get_ref(), ""));
        self.verdict_of(text, kind, cause)
    }

    fn verdict_of(&mut self, at: &Spanned<String>, kind: &str, cause: &str) -> Option<Verdict> {
        let free = OutcomeKind::from_token(kind).is_some_and(|kind| kind.cause_tokens().is_none());
        if let Some(found) = OutcomeKind::from_token(kind).filter(|_| free && cause.contains('{')) {
            let sample: Facts = FactName::ALL.iter().fold(Facts::default(), |mut facts, name| {
                facts.set(*name, "1");
                facts
            });
            if sample.fill(cause).is_none() {
                self.problem(at, format!("`{cause}` names an unknown fact"), Some(fact_help()));
                return None;
            }
            return Some(Verdict::Named(found, cause.to_owned()));
        }
        match Outcome::from_tokens(kind, cause) {
            Ok(outcome) => Some(Verdict::Fixed(outcome)),
            Err(error) => {
                self.problem(at, error.to_string(), None);
                None
            }
        }
    }

    fn marker_names(&mut self, list: &[Spanned<String>], names: &BTreeMap<String, Class>) -> Vec<String> {
        for name in list {
            if names.get(name.get_ref()) != Some(&Class::Marker) {
                let markers: Vec<_> = names.iter().filter(|(_, class)| **class == Class::Marker).collect();
                let markers: Vec<_> = markers.into_iter().map(|(name, _)| name.as_str()).collect();
                self.problem(
                    name,
                    format!("`{}` is no rule of class `marker`", name.get_ref()),
                    Some(format!("markers are {}", markers.join(", "))),
                );
            }
        }
        list.iter().map(|name| name.get_ref().clone()).collect()
    }

    fn rule(&mut self, wire: &RuleWire, names: &BTreeMap<String, Class>) {
        let before = self.problems.len();
        let name = wire.name.get_ref();
        if self.parts.rules.iter().any(|rule| rule.name == *name) {
            self.problem(&wire.name, format!("a second rule `{name}`"), None);
        }
        let class = Class::from_token(wire.class.get_ref());
        if class.is_none() {
            self.problem(
                &wire.class,
                format!("unknown class `{}`", wire.class.get_ref()),
                Some(format!("classes are {}", Class::ALL.map(Class::token).join(", "))),
            );
        }
        let pattern = wire.pattern.as_ref().and_then(|pattern| self.pattern(pattern, true));
        let command = wire.command.as_ref().and_then(|pattern| self.pattern(pattern, false));
        if wire.pattern.is_none() && wire.command.is_none() && wire.exit.is_empty() {
            self.problem(
                &wire.name,
                format!("rule `{name}` looks at nothing"),
                Some("give it a `pattern`, a `command` or an `exit`".into()),
            );
        }
        let mut captured = BTreeSet::new();
        if let (Some(at), Some(pattern)) = (&wire.pattern, &pattern) {
            for token in pattern.capture_names().flatten() {
                match FactName::from_token(token) {
                    Some(fact) => {
                        captured.insert(fact);
                    }
                    None => self.problem(at, format!("unknown capture `{token}`"), Some(fact_help())),
                }
            }
        }
        let mut facts = Facts::default();
        for (name, value) in &wire.facts {
            let text = match value.get_ref() {
                toml::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            if let Some(fact) = self.fact_name(name) {
                captured.insert(fact);
                if facts.set(fact, &text).is_none() {
                    self.problem(value, format!("`{text}` is no value of fact `{fact}`"), None);
                }
            }
        }
        let mut require = BTreeMap::new();
        for (name, value) in &wire.require {
            let fact = self.fact_name(name);
            if let (Some(fact), Some(predicate)) = (fact, self.predicate(value)) {
                if !captured.contains(&fact) {
                    self.problem(name, format!("the pattern doesn't capture `{fact}`"), None);
                }
                require.insert(fact, predicate);
            }
        }
        let verdict = class.and_then(|class| self.verdict(wire, class, &captured));
        let when = self.marker_names(&wire.when, names);
        let unless = self.marker_names(&wire.unless, names);
        let resets = self.marker_names(&wire.resets, names);
        for owner in &wire.of {
            if !names.contains_key(owner.get_ref()) {
                self.problem(owner, format!("no rule is called `{}`", owner.get_ref()), None);
            }
        }
        let explains = wire
            .explains
            .iter()
            .filter_map(|text| match self.pair(text)? {
                Verdict::Fixed(outcome) => Some(outcome),
                Verdict::None | Verdict::Named(..) | Verdict::Table(..) => None,
            })
            .collect();
        if self.problems.len() > before {
            return;
        }
        let (Some(class), Some(verdict)) = (class, verdict) else {
            return;
        };
        let rule = Rule {
            name: name.clone(),
            class,
            pattern,
            command,
            exits: wire.exit.clone(),
            when,
            unless,
            resets,
            of: wire.of.iter().map(|owner| owner.get_ref().clone()).collect(),
            require,
            verdict,
            facts,
            explains,
            example: wire.example.as_ref().map(|example| example.get_ref().clone()),
        };
        if let Some(example) = &wire.example
            && !fits(&rule, example.get_ref(), &self.parts)
        {
            self.problem(example, format!("rule `{name}` doesn't match its own example"), None);
            return;
        }
        self.parts.rules.push(rule);
    }

    fn predicate(&mut self, value: &Spanned<toml::Value>) -> Option<Predicate> {
        let found = match value.get_ref() {
            toml::Value::String(word) => Predicate::from_word(word),
            toml::Value::Array(list) => list
                .iter()
                .map(toml::Value::as_integer)
                .collect::<Option<Vec<_>>>()
                .map(Predicate::OneOf),
            _ => None,
        };
        if found.is_none() {
            self.problem(
                value,
                "no condition".into(),
                Some(format!(
                    "conditions are {}, or a list of integers",
                    Predicate::WORDS.join(", ")
                )),
            );
        }
        found
    }

    fn verdict(&mut self, wire: &RuleWire, class: Class, captured: &BTreeSet<FactName>) -> Option<Verdict> {
        let speaks = !matches!(class, Class::Detail | Class::Marker);
        match (&wire.outcome, &wire.table, &wire.key) {
            (None, None, None) if !speaks => Some(Verdict::None),
            (None, None, None) if class == Class::Claim => Some(Verdict::Fixed(Outcome::Pass)),
            (Some(outcome), None, None) if speaks => {
                let cause = wire.cause.as_ref().map_or("", |cause| cause.get_ref());
                self.verdict_of(wire.cause.as_ref().unwrap_or(outcome), outcome.get_ref(), cause)
            }
            (None, Some(table), Some(key)) if speaks && wire.cause.is_none() => {
                let fact = self.fact_name(key)?;
                if !captured.contains(&fact) {
                    self.problem(key, format!("the pattern doesn't capture `{fact}`"), None);
                }
                if !self.parts.tables.contains_key(table.get_ref()) {
                    let known: Vec<_> = self.parts.tables.keys().cloned().collect();
                    self.problem(
                        table,
                        format!("unknown table `{}`", table.get_ref()),
                        Some(format!("tables are {}", known.join(", "))),
                    );
                }
                Some(Verdict::Table(fact, table.get_ref().clone()))
            }
            _ => {
                self.problem(
                    &wire.name,
                    format!("rule `{}` of class `{class}` has no clear outcome", wire.name.get_ref()),
                    Some(
                        if speaks {
                            "give it `outcome` and `cause`, or `key` and `table`"
                        } else {
                            "markers and details have none"
                        }
                        .into(),
                    ),
                );
                None
            }
        }
    }
}

fn fact_help() -> String {
    let names: Vec<_> = FactName::ALL.iter().map(|name| name.token()).collect();
    format!("facts are {}", names.join(", "))
}

/// Whether `rule` alone matches some start of `example` and reads its captures.
fn fits(rule: &Rule, example: &str, parts: &Parts) -> bool {
    let Some(pattern) = &rule.pattern else { return true };
    let Ok(set) = RuleSet::new(String::new(), Vec::new(), Tables::new(), &parts.prefixes) else {
        return false;
    };
    set.starts(example.as_bytes()).into_iter().any(|start| {
        let Some(captures) = pattern.captures(&example.as_bytes()[start..]) else {
            return false;
        };
        let Some(mut facts) = Facts::of_captures(pattern.capture_names(), &captures) else {
            return false;
        };
        facts.fill_from(&rule.facts);
        let holds = rule
            .require
            .iter()
            .all(|(name, predicate)| predicate.holds(facts.get(*name)));
        // A table without the value means that another rule is meant, not that this one is wrong.
        holds && !matches!(rule.verdict.on(&facts, &parts.tables), Err(NoVerdict))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn problems(text: &str) -> Vec<String> {
        let problems = parse("test", text).unwrap_err().problems;
        let show = |problem: &RuleProblem| format!("{} @ {}", problem.message, &text[problem.span.clone()]);
        problems.iter().map(show).collect()
    }

    #[test]
    fn all_mistakes_are_told_with_their_place() {
        let text = r#"
extends = ["simplr"]
[tables.codes]
1 = "deadlock/heap"
[[rule]]
name = "a"
class = "rooot"
pattern = 'no anchor'
outcome = "deadlock"
cause = "heap-ring"
[[rule]]
name = "b"
class = "root"
pattern = '^(?<colour>\d+)'
outcome = "nan"
[[rule]]
name = "c"
class = "root"
pattern = '^x'
key = "code"
table = "codez"
[[rule]]
name = "d"
class = "claim"
when = ["b"]
"#;
        let told = problems(text);
        let expect = [
            "unknown rule set `simplr` @ \"simplr\"",
            "unknown cause `heap` of outcome `deadlock`",
            "unknown class `rooot` @ \"rooot\"",
            "the pattern is not anchored",
            "unknown capture `colour`",
            "unknown cause `` of outcome `nan`",
            "the pattern doesn't capture `code`",
            "unknown table `codez`",
            "rule `d` looks at nothing",
            "`b` is no rule of class `marker`",
        ];
        assert_eq!(told.len(), expect.len(), "{told:#?}");
        for (told, expect) in told.iter().zip(expect) {
            assert!(told.starts_with(expect), "{told} / {expect}");
        }
    }

    #[test]
    fn unknown_keys_and_examples_that_do_not_fit_are_refused() {
        assert!(problems("[[rule]]\nname='a'\nclas='root'\n")[0].contains("unknown field `clas`"));
        let text = "[[rule]]\nname='a'\nclass='root'\npattern='^n=(?<code>\\S+)$'\noutcome='crash'\ncause='exit-{code}'\nexample='n=x'\n";
        assert_eq!(problems(text), ["rule `a` doesn't match its own example @ 'n=x'"]);
        assert!(parse("test", &text.replace("n=x", "n=3")).is_ok());
    }

    #[test]
    fn any_is_the_key_of_the_rest() {
        let text = "[tables.t]\n1='deadlock/scope'\n'*'='device-fault/{code}'\n[[rule]]\nname='a'\nclass='root'\npattern='^n=(?<code>\\d+)$'\nkey='code'\ntable='t'\n";
        let rules = parse("test", text).unwrap();
        let outcome = |log: &str| {
            rules
                .classify(log.as_bytes(), &crate::classify::Context::default())
                .outcome
                .to_string()
        };
        assert_eq!(
            (outcome("n=1"), outcome("n=77")),
            ("deadlock/scope".into(), "device-fault/77".into())
        );
    }
}
