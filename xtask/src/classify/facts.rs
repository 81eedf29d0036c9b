//! Typed facts that captures carry, and the evidence that they make.

use std::collections::BTreeMap;
use std::fmt;

use regex::bytes::{CaptureNames, Captures};

use super::number::{parse_integer, parse_number};
use crate::outcome::OutcomeKind;
use crate::record::{Detail, RingShortage, StallFacts, TensorFacts};

/// How the text of a capture is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FactType {
    Integer,
    Number,
    Text,
}

macro_rules! facts {
    ($($variant:ident $token:literal $type:ident,)*) => {
        /// The names that captures may have; each has one type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "each variant is what its token says")]
        pub enum FactName { $($variant),* }

        impl FactName {
            /// Every name.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in patterns.
            pub const fn token(self) -> &'static str {
                match self { $(Self::$variant => $token),* }
            }

            const fn fact_type(self) -> FactType {
                match self { $(Self::$variant => FactType::$type),* }
            }
        }
    };
}

facts! {
    Code "code" Integer,
    Latched "latched" Integer,
    Ring "ring" Integer,
    Requested "requested" Integer,
    Free "free" Integer,
    Used "used" Integer,
    Capacity "capacity" Integer,
    Completed "completed" Integer,
    Total "total" Integer,
    Running "running" Integer,
    Ready "ready" Integer,
    Waiting "waiting" Integer,
    OrchDone "orch_done" Integer,
    StuckTask "stuck_task" Integer,
    StuckCore "stuck_core" Integer,
    Elements "elements" Integer,
    Mismatched "mismatched" Integer,
    Allowed "allowed" Integer,
    ActualNan "actual_nan" Integer,
    ActualInf "actual_inf" Integer,
    ExpectedNan "expected_nan" Integer,
    ExpectedInf "expected_inf" Integer,
    NonFinite "non_finite" Integer,
    FirstIndex "first_index" Integer,
    MaxAbsErr "max_abs_err" Number,
    MaxRelErr "max_rel_err" Number,
    Actual "actual" Number,
    Expected "expected" Number,
    SubClass "sub_class" Text,
    Resource "resource" Text,
    Proof "proof" Text,
    Task "task" Text,
    HeadTask "head_task" Text,
    Tensor "tensor" Text,
    Rule "rule" Text,
    Name "name" Text,
    Message "message" Text,
}

impl FactName {
    /// The name that `token` is.
    pub fn from_token(token: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|name| name.token() == token)
    }
}

impl fmt::Display for FactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.token())
    }
}

/// A value of its fact's type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FactValue {
    Integer(i128),
    Number(f64),
    Text(String),
}

impl fmt::Display for FactValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(n) => n.fmt(f),
            Self::Number(x) => x.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// What a match tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts(BTreeMap<FactName, FactValue>);

impl Facts {
    /// The facts of a match; `None` when a capture is no value of its type, in which case the line isn't what the rule means.
    pub(super) fn of_captures(names: CaptureNames<'_>, captures: &Captures<'_>) -> Option<Self> {
        let mut facts = Self::default();
        for token in names.flatten() {
            let Some(found) = captures.name(token) else { continue };
            facts.set(FactName::from_token(token)?, &String::from_utf8_lossy(found.as_bytes()))?;
        }
        Some(facts)
    }

    /// Sets a fact from text; `None` when the text is no value of its type.
    pub(super) fn set(&mut self, name: FactName, text: &str) -> Option<()> {
        let value = match name.fact_type() {
            FactType::Integer => FactValue::Integer(
                parse_integer(text)
                    .map(i128::from)
                    .or_else(|| text.parse::<u64>().ok().map(i128::from))?,
            ),
            FactType::Number => FactValue::Number(parse_number(text)?),
            FactType::Text => FactValue::Text(text.trim().chars().take(200).collect()),
        };
        self.0.insert(name, value);
        Some(())
    }

    /// The value of `name`.
    pub(super) fn get(&self, name: FactName) -> Option<&FactValue> {
        self.0.get(&name)
    }

    /// The value of `name` as text.
    pub fn text(&self, name: FactName) -> Option<String> {
        self.0.get(&name).map(ToString::to_string)
    }

    /// The value of `name`, if it is an integer that fits.
    pub fn integer<T: TryFrom<i128>>(&self, name: FactName) -> Option<T> {
        match self.0.get(&name)? {
            FactValue::Integer(n) => T::try_from(*n).ok(),
            FactValue::Number(_) | FactValue::Text(_) => None,
        }
    }

    /// Takes over what `other` knows and `self` doesn't.
    pub(super) fn fill_from(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            self.0.entry(*name).or_insert_with(|| value.clone());
        }
    }

    /// `template` with each `{name}` replaced; `None` when a fact is missing.
    pub(super) fn fill(&self, template: &str) -> Option<String> {
        let mut filled = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, behind) = after.split_once('}')?;
            filled.push_str(before);
            filled.push_str(&self.text(FactName::from_token(name)?)?);
            rest = behind;
        }
        filled.push_str(rest);
        Some(filled)
    }

    /// The ring that the facts name: as such, or through the id of the stuck task, whose high word it is.
    pub fn ring(&self) -> Option<u8> {
        let ring = self
            .integer::<u8>(FactName::Ring)
            .or_else(|| u8::try_from(self.integer::<u64>(FactName::StuckTask)? >> 32).ok());
        ring.filter(|ring| *ring < 4)
    }

    fn ring_shortage(&self) -> RingShortage {
        let capacity = self.integer(FactName::Capacity);
        let used: Option<u64> = self.integer(FactName::Used);
        RingShortage {
            code: self.integer(FactName::Code),
            resource: self.text(FactName::Resource).unwrap_or_default(),
            ring: self.ring(),
            requested: self.integer(FactName::Requested),
            free: self
                .integer(FactName::Free)
                .or_else(|| u64::checked_sub(capacity?, used?)),
            capacity,
            proof: self.text(FactName::Proof),
            task: self.text(FactName::Task),
            head_task: self.text(FactName::HeadTask),
            launched: None,
        }
    }

    fn stall(&self) -> StallFacts {
        StallFacts {
            completed: self.integer(FactName::Completed),
            total: self.integer(FactName::Total),
            running: self.integer(FactName::Running),
            ready: self.integer(FactName::Ready),
            waiting: self.integer(FactName::Waiting),
            orch_done: self.integer::<u8>(FactName::OrchDone).map(|done| done != 0),
            stuck_task: self.integer::<u64>(FactName::StuckTask).map(task_name),
            stuck_core: self.integer(FactName::StuckCore),
        }
    }
}

/// A task id of the runtime in words: the ring is the high half, the task in it the low half.
fn task_name(id: u64) -> String {
    format!("ring {} task {}", id >> 32, id & 0xffff_ffff)
}

/// The typed detail of an outcome of `kind`; `tensors` are the facts of its validation lines, in order.
pub(super) fn detail(kind: OutcomeKind, facts: &Facts, tensors: &[Facts]) -> Option<Detail> {
    match kind {
        OutcomeKind::Deadlock => Some(Detail::Ring(facts.ring_shortage())),
        OutcomeKind::Stall => Some(facts.stall())
            .filter(|stall| *stall != StallFacts::default())
            .map(Detail::Stall),
        OutcomeKind::Nan | OutcomeKind::Mismatch => Some(self::tensors(tensors))
            .filter(|tensors| !tensors.is_empty())
            .map(Detail::Tensors),
        _ => None,
    }
}

/// Validation lines as tensors: a line that names a tensor begins one, later lines tell more of it.
fn tensors(lines: &[Facts]) -> Vec<TensorFacts> {
    let mut grouped: Vec<Facts> = Vec::new();
    for facts in lines {
        let name = facts.text(FactName::Tensor);
        match grouped.last_mut() {
            Some(last) if name.is_none() || last.text(FactName::Tensor) == name => last.fill_from(facts),
            _ => grouped.push(facts.clone()),
        }
    }
    let named = |tensor: &TensorFacts| !tensor.name.is_empty() || tensor.mismatched > 0;
    grouped.iter().map(tensor).filter(named).collect()
}

fn tensor(facts: &Facts) -> TensorFacts {
    let golden = facts.integer::<u64>(FactName::ExpectedNan).unwrap_or(0)
        + facts.integer::<u64>(FactName::ExpectedInf).unwrap_or(0);
    let output = facts.integer::<u64>(FactName::ActualNan).unwrap_or(0)
        + facts.integer::<u64>(FactName::ActualInf).unwrap_or(0)
        + facts.integer::<u64>(FactName::NonFinite).unwrap_or(0);
    let bad = |name| matches!(facts.get(name), Some(FactValue::Number(x)) if !x.is_finite());
    let verdict = if golden > 0 || bad(FactName::Expected) {
        "golden-nan"
    } else if output > 0 || bad(FactName::Actual) || bad(FactName::MaxAbsErr) {
        "nan"
    } else {
        "mismatch"
    };
    TensorFacts {
        name: facts.text(FactName::Tensor).unwrap_or_default(),
        verdict: verdict.into(),
        rule: facts.text(FactName::Rule).unwrap_or_default(),
        total: facts.integer(FactName::Elements).unwrap_or(0),
        mismatched: facts.integer(FactName::Mismatched).unwrap_or(golden + output),
        allowed: facts.integer(FactName::Allowed).unwrap_or(0),
        max_abs_err: facts.text(FactName::MaxAbsErr),
        max_rel_err: facts.text(FactName::MaxRelErr),
        first_index: facts.integer(FactName::FirstIndex).into_iter().collect(),
        actual: facts.text(FactName::Actual),
        expected: facts.text(FactName::Expected),
        first_row: None,
        all_nan_rows: None,
    }
}
