//! The scan: one pass over a log that notes what each rule sees, in bounded memory.

use std::collections::BTreeSet;

use super::facts::{FactName, FactValue, Facts};
use super::line::{lines, printable};
use super::rule::{Class, Rule, RuleSet};
use super::status::EndStatus;
use crate::detector::{self, Detector};
use crate::outcome::Outcome;
use crate::record::EvidenceLine;

/// What is known of a log beside its bytes.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// How the process ended; `None` when nobody says.
    pub status: Option<EndStatus>,
    /// Its command line.
    pub command: Option<String>,
}

/// Most matches that are kept per rule: the first decides, a few more are quoted.
const KEPT_PER_RULE: usize = 16;

/// Details that are kept per match.
const KEPT_DETAILS: usize = 10;

/// How many lines behind a failure its details may stand.
const DETAIL_REACH: u64 = 40;

/// One match of one rule.
#[derive(Clone, Debug)]
pub(super) struct Hit {
    /// Index of the rule in its set.
    pub(super) rule: usize,
    pub(super) class: Class,
    /// The line; `None` for a match of the command line or the status alone.
    pub(super) line: Option<EvidenceLine>,
    /// The line's text behind its prefixes.
    pub(super) text: String,
    pub(super) outcome: Option<Outcome>,
    /// Facts of the line and of its details.
    pub(super) facts: Facts,
    pub(super) details: Vec<EvidenceLine>,
}

impl Hit {
    pub(super) fn number(&self) -> u64 {
        self.line.as_ref().map_or(u64::MAX, |line| line.line)
    }
}

/// What a scan saw.
#[derive(Debug)]
pub(super) struct Scan {
    /// Matches in order of the log.
    pub(super) hits: Vec<Hit>,
    /// How much of the log is no text, 0 to 1.
    pub(super) garbage: f64,
}

pub(super) fn scan(rules: &RuleSet, log: &[u8], context: &Context) -> Scan {
    let mut scan = Scan {
        hits: Vec::new(),
        garbage: 0.0,
    };
    let mut state = State {
        markers: BTreeSet::new(),
        kept: vec![0; rules.rules().len()],
        anchor: None,
    };
    let (mut garbage, mut length) = (0usize, 0usize);
    for line in lines(log) {
        length += line.text.len();
        garbage += line
            .text
            .chars()
            .filter(|c| *c == '\u{fffd}' || (c.is_control() && *c != '\t'))
            .map(char::len_utf8)
            .sum::<usize>();
        let mut seen = Vec::new();
        for start in rules.starts(line.text.as_bytes()) {
            let text = &line.text.as_bytes()[start..];
            for (index, rule) in rules.matching(text) {
                if seen.contains(&index) {
                    continue;
                }
                if let Some((facts, outcome)) = holds(rules, rule, text, context, &state.markers) {
                    seen.push(index);
                    let quoted = EvidenceLine {
                        line: line.number,
                        text: printable(&line.text),
                    };
                    state.note(rules, index, quoted, text, facts, outcome, &mut scan.hits);
                }
            }
        }
    }
    if length > 0 {
        scan.garbage = garbage as f64 / length as f64;
    }
    scan.hits.extend(beside_the_log(rules, context));
    scan.hits.retain(|hit| {
        detector::sees(&Detector::Lines(hit.class)) && hit.outcome.as_ref().is_none_or(detector::sees_outcome)
    });
    scan
}

struct State<'a> {
    markers: BTreeSet<&'a str>,
    kept: Vec<usize>,
    /// Index of the hit that details go to, and its line.
    anchor: Option<usize>,
}

impl<'a> State<'a> {
    fn note(
        &mut self,
        rules: &'a RuleSet,
        index: usize,
        line: EvidenceLine,
        text: &[u8],
        facts: Facts,
        outcome: Option<Outcome>,
        hits: &mut Vec<Hit>,
    ) {
        let rule = &rules.rules()[index];
        match rule.class {
            Class::Marker => {
                for name in &rule.resets {
                    self.markers.remove(name.as_str());
                }
                self.markers.insert(&rule.name);
            }
            Class::Detail => {
                let Some(hit) = self.anchor.map(|anchor| &mut hits[anchor]) else {
                    return;
                };
                let owner = &rules.rules()[hit.rule].name;
                let near = line.line - hit.number() <= DETAIL_REACH;
                if near && (rule.of.is_empty() || rule.of.contains(owner)) {
                    hit.facts.fill_from(&facts);
                    if hit.details.len() < KEPT_DETAILS
                        && hit.line.as_ref() != Some(&line)
                        && !hit.details.contains(&line)
                    {
                        hit.details.push(line);
                    }
                }
            }
            class => {
                if self.kept[index] == KEPT_PER_RULE {
                    return;
                }
                self.kept[index] += 1;
                if class.has_details() {
                    self.anchor = Some(hits.len());
                }
                hits.push(Hit {
                    rule: index,
                    class,
                    line: Some(line),
                    text: printable(&String::from_utf8_lossy(text)),
                    outcome,
                    facts,
                    details: Vec::new(),
                });
            }
        }
    }
}

/// Facts and outcome of `rule` on `text`, if all of its conditions hold.
fn holds(
    rules: &RuleSet,
    rule: &Rule,
    text: &[u8],
    context: &Context,
    markers: &BTreeSet<&str>,
) -> Option<(Facts, Option<Outcome>)> {
    let pattern = rule.pattern.as_ref()?;
    let seen = |names: &[String]| names.iter().filter(|name| markers.contains(name.as_str())).count();
    if !surroundings_hold(rule, context) || seen(&rule.when) < rule.when.len() || seen(&rule.unless) > 0 {
        return None;
    }
    let mut facts = Facts::of_captures(pattern.capture_names(), &pattern.captures(text)?)?;
    facts.fill_from(&rule.facts);
    if !rule
        .require
        .iter()
        .all(|(name, predicate)| predicate.holds(facts.get(*name)))
    {
        return None;
    }
    if let Some(FactValue::Integer(latched)) = facts.get(FactName::Latched)
        && *latched != 0
    {
        // What was latched first is what happened; the code beside it came later.
        let latched = latched.to_string();
        facts.set(FactName::Code, &latched)?;
    }
    let outcome = rule.verdict.on(&facts, rules.tables()).ok()?;
    Some((facts, outcome))
}

/// True when the conditions on exit status and command line hold.
fn surroundings_hold(rule: &Rule, context: &Context) -> bool {
    let exit = match &context.status {
        Some(EndStatus::Exited(code)) => rule.exits.contains(code),
        Some(EndStatus::Signaled(_) | EndStatus::TimedOut(_)) | None => false,
    };
    let command = rule.command.as_ref().is_none_or(|pattern| {
        context
            .command
            .as_deref()
            .is_some_and(|line| pattern.is_match(line.as_bytes()))
    });
    (rule.exits.is_empty() || exit) && command
}

/// Matches of rules that look at no line.
fn beside_the_log<'a>(rules: &'a RuleSet, context: &'a Context) -> impl Iterator<Item = Hit> + 'a {
    let whole = rules
        .rules()
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.pattern.is_none() && surroundings_hold(rule, context));
    whole.filter_map(|(index, rule)| {
        let outcome = rule.verdict.on(&rule.facts, rules.tables()).ok()?;
        Some(Hit {
            rule: index,
            class: rule.class,
            line: None,
            text: String::new(),
            outcome,
            facts: rule.facts.clone(),
            details: Vec::new(),
        })
    })
}
