//! Precedence: which of the things that a log shows is what happened.

use std::collections::BTreeSet;

use super::bench::{BenchReport, bench_reports};
use super::engine::{Context, Hit, Scan, scan};
use super::facts::{FactName, Facts, detail};
use super::readback::ring_sizes;
use super::rule::{Class, RuleSet};
use super::sentence::sentence;
use super::status::EndStatus;
use crate::outcome::{NoVerdictCause, Outcome, OutcomeKind};
use crate::record::{Evidence, EvidenceLine, MAX_LINES, ResourceSizes};

/// Share of a log that may be no text before an end without any claim counts as unreadable.
const MOST_GARBAGE: f64 = 0.25;

/// What a log says happened.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The outcome.
    pub outcome: Outcome,
    /// The rule that said so; `None` where no rule matched and the status decided.
    pub rule: Option<String>,
    /// The class of that rule.
    pub class: Option<Class>,
    /// The ring in question.
    pub ring: Option<u8>,
    /// The code in question: the runtime's or the driver's.
    pub code: Option<i64>,
    /// Quoted lines and facts.
    pub evidence: Evidence,
    /// Ring sizes that the runtime printed, each different set once, with its line.
    pub effective: Vec<(u64, ResourceSizes)>,
    /// Benchmark lines.
    pub benches: Vec<BenchReport>,
}

impl RuleSet {
    /// Reads `log` and says what happened.
    ///
    /// Never fails: bytes that no rule knows are judged by the exit status alone.
    pub fn classify(&self, log: &[u8], context: &Context) -> Finding {
        let scan = scan(self, log, context);
        let mut finding = decide(self, &scan, context);
        finding.effective = ring_sizes(log);
        finding.benches = bench_reports(log);
        finding
    }
}

fn decide(rules: &RuleSet, scan: &Scan, context: &Context) -> Finding {
    let success = context.status.as_ref().is_none_or(EndStatus::is_success);
    let claimed = scan
        .hits
        .iter()
        .any(|hit| matches!(hit.class, Class::Claim | Class::VoidClaim));
    let first_of = |class: Class| scan.hits.iter().find(|hit| hit.class == class);
    // An exception that a program survived, and then claimed success, was handled.
    let counts = |hit: &&Hit| hit.class.is_failure() && !(hit.class == Class::Exception && success && claimed);
    let cause = scan
        .hits
        .iter()
        .filter(counts)
        .min_by_key(|hit| (hit.class, hit.number(), hit.rule));
    if let Some(cause) = cause {
        let exits_well = context.status.as_ref().is_some_and(EndStatus::is_success);
        if cause.class == Class::Failed && exits_well {
            let outcome = Outcome::NoVerdict(NoVerdictCause::Unreadable);
            let finding = build(rules, scan, Some(cause), outcome, context);
            return with_summary(
                finding,
                "a line says that the case failed, the exit status says that it didn't",
            );
        }
        let outcome = cause.outcome.clone().unwrap_or(Outcome::Pass);
        let ignored = scan.hits.iter().find(|hit| {
            hit.class == Class::Config
                && hit.number() < cause.number()
                && rules.rules()[hit.rule].explains.contains(&outcome)
        });
        if let Some(ignored) = ignored
            && let Some(config) = &ignored.outcome
        {
            return build(rules, scan, Some(ignored), config.clone(), context);
        }
        return build(rules, scan, Some(cause), outcome, context);
    }
    if !success {
        if let Some(hit) = first_of(Class::ExitStatus)
            && let Some(outcome) = &hit.outcome
        {
            return build(rules, scan, Some(hit), outcome.clone(), context);
        }
        if let Some(outcome) = context.status.as_ref().and_then(EndStatus::failure) {
            return build(rules, scan, None, outcome, context);
        }
    }
    for class in [Class::Config, Class::VoidClaim, Class::Claim] {
        // A void claim from the command line alone voids a claim; without one it says nothing.
        let hit = scan
            .hits
            .iter()
            .find(|hit| hit.class == class && (hit.line.is_some() || claimed));
        if let Some(hit) = hit
            && (class != Class::VoidClaim || first_claim(scan).is_some())
            && let Some(outcome) = &hit.outcome
        {
            return build(rules, scan, Some(hit), outcome.clone(), context);
        }
    }
    let cause = if scan.garbage > MOST_GARBAGE {
        NoVerdictCause::Unreadable
    } else {
        NoVerdictCause::NoPassLine
    };
    build(rules, scan, None, Outcome::NoVerdict(cause), context)
}

/// The first claim that stands in the log.
fn first_claim(scan: &Scan) -> Option<&Hit> {
    scan.hits
        .iter()
        .find(|hit| matches!(hit.class, Class::Claim | Class::VoidClaim) && hit.line.is_some())
}

fn with_summary(mut finding: Finding, summary: &str) -> Finding {
    finding.evidence.summary = summary.into();
    finding
}

fn build(rules: &RuleSet, scan: &Scan, cause: Option<&Hit>, outcome: Outcome, context: &Context) -> Finding {
    let supporting =
        |hit: &&Hit| hit.outcome.as_ref() == Some(&outcome) && Some(hit.number()) != cause.map(Hit::number);
    let mut facts = cause.map(|hit| hit.facts.clone()).unwrap_or_default();
    let mut lines: Vec<EvidenceLine> = Vec::new();
    if let Some(hit) = cause {
        if hit.class == Class::NonFinite {
            // The line that names the output stands before the one that tells what is wrong with it.
            let named = |other: &&Hit| other.number() < hit.number() && other.facts.text(FactName::Tensor).is_some();
            lines.extend(scan.hits.iter().rfind(named).and_then(|named| named.line.clone()));
        }
        lines.extend(hit.line.clone());
        lines.extend(hit.details.iter().cloned());
        lines.truncate(MAX_LINES - 2);
    }
    // One supporting line per rule: the second thread's copy of a line tells nothing new.
    let mut quoted_rules = BTreeSet::new();
    for hit in scan.hits.iter().filter(supporting) {
        facts.fill_from(&hit.facts);
        if quoted_rules.insert(hit.rule) && lines.len() < MAX_LINES {
            lines.extend(hit.line.clone());
        }
    }
    if cause.is_some_and(|hit| hit.line.is_none())
        && let Some(claim) = first_claim(scan)
    {
        lines.extend(claim.line.clone());
    }
    lines.sort_by_key(|line| line.line);
    lines.dedup();
    lines.truncate(MAX_LINES);
    let kind = outcome.kind();
    let detail = detail(kind, &facts, &validation_lines(scan));
    let rule = cause.map(|hit| &rules.rules()[hit.rule]);
    let by_rule = || Some(cause?.text.trim().to_owned()).filter(|text| !text.is_empty());
    let from_command = || Some(format!("the command line or exit status fits rule `{}`", rule?.name));
    let summary = detail
        .as_ref()
        .and_then(sentence)
        .or_else(by_rule)
        .or_else(from_command);
    Finding {
        ring: facts
            .ring()
            .filter(|_| matches!(kind, OutcomeKind::Deadlock | OutcomeKind::Stall)),
        code: facts.integer(FactName::Code),
        rule: rule.map(|rule| rule.name.clone()),
        class: rule.map(|rule| rule.class),
        evidence: Evidence {
            summary: summary.unwrap_or_else(|| status_sentence(&outcome, context)),
            source: rule.map_or_else(|| "exit-status".to_owned(), |rule| format!("rule:{}", rule.name)),
            lines,
            detail,
            fallout: fallout(scan, cause, &outcome),
        },
        outcome,
        effective: Vec::new(),
        benches: Vec::new(),
    }
}

fn status_sentence(outcome: &Outcome, context: &Context) -> String {
    match (&context.status, outcome) {
        (_, Outcome::NoVerdict(NoVerdictCause::Unreadable)) => "the log is no text and claims nothing".into(),
        (Some(status), Outcome::NoVerdict(_)) => format!("ended with {status} and without a line that claims success"),
        (None, Outcome::NoVerdict(_)) => "no line claims success or failure".into(),
        (Some(status), _) => format!("ended with {status}; no line of the log says why"),
        (None, _) => String::new(),
    }
}

/// Facts of the validation lines, in order of the log.
fn validation_lines(scan: &Scan) -> Vec<Facts> {
    let validation = |hit: &&Hit| matches!(hit.class, Class::NonFinite | Class::Mismatch);
    scan.hits
        .iter()
        .filter(validation)
        .map(|hit| hit.facts.clone())
        .collect()
}

/// Other failures that the log shows, each once.
fn fallout(scan: &Scan, cause: Option<&Hit>, outcome: &Outcome) -> Vec<String> {
    let mut seen = BTreeSet::from([outcome.to_string()]);
    // What only repeats in a weaker form that something failed is no failure of its own.
    let repeats = |hit: &&Hit| {
        cause.is_some()
            && match hit.class {
                Class::Fallout | Class::Failed | Class::Exception => true,
                Class::StallCode | Class::ReturnCode => outcome.kind() == OutcomeKind::Stall,
                Class::Mismatch => outcome.kind() == OutcomeKind::Nan,
                _ => false,
            }
    };
    scan.hits
        .iter()
        .filter(|hit| hit.class.is_failure() || hit.class == Class::Config)
        .filter(|hit| !repeats(hit))
        .filter_map(|hit| hit.outcome.as_ref().map(ToString::to_string))
        .filter(|text| seen.insert(text.clone()))
        .take(8)
        .collect()
}
