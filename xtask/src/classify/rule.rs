//! Validated rules: what a rule file becomes once every pattern compiles and every name exists.

use std::collections::BTreeMap;
use std::fmt;

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::facts::{FactName, FactValue, Facts};
use super::number::parse_number;
use crate::outcome::{Outcome, OutcomeKind};

/// What a matching line means, strongest first: of two failures, the one of the earlier class is the cause.
///
/// Within a class, the line that stands first in the log is the cause and later ones are its fallout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// A fatal report of the runtime or a fault with its own code: the root of what follows.
    Root,
    /// The runtime's final status line with a specific code.
    RuntimeCode,
    /// A watchdog line that classifies the stall.
    Stall,
    /// A watchdog line or code without a class.
    StallCode,
    /// A runtime code that only survived as a return value.
    ReturnCode,
    /// Memory ran out.
    Memory,
    /// Non-finite values in a validation report.
    NonFinite,
    /// Wrong values in a validation report.
    Mismatch,
    /// A compiler refused.
    Compile,
    /// A refused configuration, a missing tool, nothing to run.
    Setup,
    /// A time limit that something inside the case enforced.
    Timeout,
    /// A driver code that tells where, not why.
    Driver,
    /// A signal or assertion that some program reported.
    Crash,
    /// A driver code that only follows earlier failures.
    Fallout,
    /// A program's own line for "this case failed", whatever the reason.
    Failed,
    /// An exception with no better reading.
    Exception,
    /// An exit status that means something by itself.
    ExitStatus,
    /// The runtime ignored a setting.
    Config,
    /// A claim of success that is worth nothing.
    VoidClaim,
    /// A claim of success.
    Claim,
    /// A line that adds facts to the failure before it.
    Detail,
    /// A line that other rules refer to.
    Marker,
}

impl Class {
    /// Every class, strongest first.
    pub const ALL: [Self; 22] = [
        Self::Root,
        Self::RuntimeCode,
        Self::Stall,
        Self::StallCode,
        Self::ReturnCode,
        Self::Memory,
        Self::NonFinite,
        Self::Mismatch,
        Self::Compile,
        Self::Setup,
        Self::Timeout,
        Self::Driver,
        Self::Crash,
        Self::Fallout,
        Self::Failed,
        Self::Exception,
        Self::ExitStatus,
        Self::Config,
        Self::VoidClaim,
        Self::Claim,
        Self::Detail,
        Self::Marker,
    ];

    /// The word in rule files.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::RuntimeCode => "runtime-code",
            Self::Stall => "stall",
            Self::StallCode => "stall-code",
            Self::ReturnCode => "return-code",
            Self::Memory => "memory",
            Self::NonFinite => "non-finite",
            Self::Mismatch => "mismatch",
            Self::Compile => "compile",
            Self::Setup => "setup",
            Self::Timeout => "timeout",
            Self::Driver => "driver",
            Self::Crash => "crash",
            Self::Fallout => "fallout",
            Self::Failed => "failed",
            Self::Exception => "exception",
            Self::ExitStatus => "exit-status",
            Self::Config => "config",
            Self::VoidClaim => "void-claim",
            Self::Claim => "claim",
            Self::Detail => "detail",
            Self::Marker => "marker",
        }
    }

    /// The class that `token` names.
    pub fn from_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.token() == token)
    }

    /// True for lines that show that something failed.
    pub fn is_failure(self) -> bool {
        self < Self::ExitStatus
    }

    /// True for lines that a block of details may follow.
    pub(super) fn has_details(self) -> bool {
        matches!(
            self,
            Self::Root
                | Self::Stall
                | Self::StallCode
                | Self::Memory
                | Self::NonFinite
                | Self::Mismatch
                | Self::Timeout
        )
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.token())
    }
}

/// What a rule says once it has matched.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing by itself: details and markers.
    None,
    /// Always the same.
    Fixed(Outcome),
    /// A kind with a free cause, such as `errcode-{code}`.
    Named(OutcomeKind, String),
    /// What the table has for the value of this capture.
    Table(FactName, String),
}

impl Verdict {
    /// The verdict on a match with these facts; `Err` when the rule doesn't hold for them after all.
    pub(super) fn on(&self, facts: &Facts, tables: &Tables) -> Result<Option<Outcome>, NoVerdict> {
        match self {
            Self::None => Ok(None),
            Self::Fixed(outcome) => Ok(Some(outcome.clone())),
            Self::Named(kind, cause) => named(*kind, cause, facts).map(Some),
            Self::Table(key, table) => {
                let value = facts.text(*key).ok_or(NoVerdict)?;
                let table = tables.get(table).ok_or(NoVerdict)?;
                match table.get(&value).or_else(|| table.get(ANY)).ok_or(NoVerdict)? {
                    Self::Fixed(outcome) => Ok(Some(outcome.clone())),
                    Self::Named(kind, cause) => named(*kind, cause, facts).map(Some),
                    Self::None | Self::Table(..) => Err(NoVerdict),
                }
            }
        }
    }
}

/// The key of a table that stands for every value that it doesn't list.
pub(super) const ANY: &str = "*";

/// A rule's conditions don't hold for this line.
pub(super) struct NoVerdict;

fn named(kind: OutcomeKind, cause: &str, facts: &Facts) -> Result<Outcome, NoVerdict> {
    let cause = facts.fill(cause).ok_or(NoVerdict)?;
    Outcome::from_tokens(kind.token(), &cause).map_err(|_| NoVerdict)
}

/// Verdicts by the value of a capture.
pub(super) type Tables = BTreeMap<String, BTreeMap<String, Verdict>>;

/// What a captured value must be for the rule to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Predicate {
    Finite,
    NonFinite,
    Positive,
    NonZero,
    OneOf(Vec<i64>),
}

impl Predicate {
    pub(super) const WORDS: [&'static str; 4] = ["finite", "non-finite", "positive", "non-zero"];

    pub(super) fn from_word(word: &str) -> Option<Self> {
        match word {
            "finite" => Some(Self::Finite),
            "non-finite" => Some(Self::NonFinite),
            "positive" => Some(Self::Positive),
            "non-zero" => Some(Self::NonZero),
            _ => None,
        }
    }

    pub(super) fn holds(&self, value: Option<&FactValue>) -> bool {
        if let Self::OneOf(values) = self {
            return matches!(value, Some(FactValue::Integer(n)) if values.iter().any(|&one| i128::from(one) == *n));
        }
        let number = match value {
            Some(FactValue::Integer(n)) => Some(*n as f64),
            Some(FactValue::Number(x)) => Some(*x),
            Some(FactValue::Text(text)) => parse_number(text),
            None => None,
        };
        let Some(number) = number else { return false };
        match self {
            Self::Finite => number.is_finite(),
            Self::NonFinite => !number.is_finite(),
            Self::Positive => number > 0.0,
            Self::NonZero => number != 0.0,
            Self::OneOf(_) => false,
        }
    }
}

/// One rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name, unique in its set.
    pub name: String,
    /// What a match means.
    pub class: Class,
    /// Anchored pattern on a line, behind any prefix of the set.
    pub(super) pattern: Option<Regex>,
    /// Pattern on the command line.
    pub(super) command: Option<Regex>,
    /// Exit statuses that it is limited to; empty for any.
    pub(super) exits: Vec<i32>,
    /// Markers that must have been seen.
    pub(super) when: Vec<String>,
    /// Markers that must not have been seen.
    pub(super) unless: Vec<String>,
    /// Markers that are forgotten.
    pub(super) resets: Vec<String>,
    /// Rules that a detail may belong to; empty for any.
    pub(super) of: Vec<String>,
    /// Conditions on captures.
    pub(super) require: BTreeMap<FactName, Predicate>,
    /// The outcome.
    pub(super) verdict: Verdict,
    /// Facts that every match has.
    pub(super) facts: Facts,
    /// Failures that this ignored setting accounts for.
    pub(super) explains: Vec<Outcome>,
    /// A line that it matches.
    pub(super) example: Option<String>,
}

/// Rules, ready to read logs.
#[derive(Clone, Debug)]
pub struct RuleSet {
    name: String,
    rules: Vec<Rule>,
    tables: Tables,
    prefix: Option<Regex>,
    set: RegexSet,
    /// For each pattern of `set`, its rule.
    of_pattern: Vec<usize>,
}

/// Compiles a pattern of a rule.
///
/// Patterns are about bytes, classes such as `\w` about ASCII: the automaton of Unicode's classes and word boundaries
/// is so large that the search would fall back to simulation, a hundred times slower.
pub(super) fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).unicode(false).size_limit(SIZE_LIMIT).build()
}

/// Most memory that one compiled pattern set may take: classification must stay bounded whatever rules say.
const SIZE_LIMIT: usize = 64 << 20;

impl Rule {
    /// A line that it matches, where its author gave one.
    pub fn example(&self) -> Option<&str> {
        self.example.as_deref()
    }
}

impl RuleSet {
    pub(super) fn new(
        name: String,
        rules: Vec<Rule>,
        tables: Tables,
        prefixes: &[String],
    ) -> Result<Self, Box<regex::Error>> {
        let (of_pattern, patterns): (Vec<_>, Vec<_>) = rules
            .iter()
            .enumerate()
            .filter_map(|(index, rule)| Some((index, rule.pattern.as_ref()?.as_str())))
            .unzip();
        let set = RegexSetBuilder::new(patterns)
            .unicode(false)
            .size_limit(SIZE_LIMIT)
            .dfa_size_limit(SIZE_LIMIT)
            .build()?;
        let prefix = match prefixes {
            [] => None,
            prefixes => {
                let parts: Vec<_> = prefixes.iter().map(|prefix| format!("(?:{prefix})")).collect();
                Some(compile(&parts.join("|"))?)
            }
        };
        Ok(Self {
            name,
            rules,
            tables,
            prefix,
            set,
            of_pattern,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its rules, in order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Where the text of `line` may begin: at its start and behind each prefix.
    pub(super) fn starts(&self, line: &[u8]) -> Vec<usize> {
        let mut starts = vec![0];
        let mut at = 0;
        while let Some(prefix) = &self.prefix
            && starts.len() < MAX_STARTS
            && let Some(found) = prefix.find(&line[at..])
            && found.end() > 0
        {
            at += found.end();
            starts.push(at);
        }
        starts
    }

    /// The rules whose pattern matches `text`.
    pub(super) fn matching(&self, text: &[u8]) -> impl Iterator<Item = (usize, &Rule)> {
        let matched: Vec<_> = self.set.matches(text).iter().collect();
        matched.into_iter().map(|pattern| {
            let index = self.of_pattern[pattern];
            (index, &self.rules[index])
        })
    }
}

/// Most positions of a line that patterns are tried at.
const MAX_STARTS: usize = 10;
