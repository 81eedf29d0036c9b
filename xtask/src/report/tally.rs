//! How many cases of each kind there are.

use std::collections::BTreeMap;
use std::fmt;

use crate::compare::{Comparison, Confirmation, OutcomeChange};
use crate::count::counted;

/// Counts of a comparison. They summarise; nothing is decided by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Cases in all.
    pub cases: usize,
    /// Cases per outcome token.
    pub outcomes: BTreeMap<&'static str, usize>,
    /// Cases per outcome change other than `same`, worst first.
    pub changes: Vec<(&'static str, usize)>,
    /// Cases per latency verdict, by token.
    pub latencies: BTreeMap<&'static str, usize>,
    /// Suspects that were cleared.
    pub cleared: usize,
}

impl Tally {
    /// The counts of `comparison`.
    pub fn of(comparison: &Comparison) -> Self {
        let mut changes: BTreeMap<OutcomeChange, usize> = BTreeMap::new();
        let mut tally = Self {
            cases: comparison.cases.len(),
            outcomes: BTreeMap::new(),
            changes: Vec::new(),
            latencies: BTreeMap::new(),
            cleared: 0,
        };
        for diff in &comparison.cases {
            let kind = diff.now.as_ref().map(|now| now.outcome.kind());
            let kind = kind.unwrap_or(crate::outcome::OutcomeKind::Missing);
            *tally.outcomes.entry(kind.token()).or_default() += 1;
            *changes.entry(diff.change).or_default() += 1;
            let latency = match diff.confirmation {
                // Slower than before, and not the program's doing.
                Some(Confirmation::Explained(_)) => "as the machine",
                _ => diff.final_latency().token(),
            };
            *tally.latencies.entry(latency).or_default() += 1;
            tally.cleared += usize::from(matches!(diff.confirmation, Some(Confirmation::Cleared(_))));
        }
        changes.remove(&OutcomeChange::Same);
        tally.changes = changes
            .into_iter()
            .map(|(change, count)| (change.token(), count))
            .collect();
        tally
    }
}

impl fmt::Display for Tally {
    /// `22 cases: 21 pass, 1 deadlock; 1 regressed; latency: 1 slower, 20 undecided`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |counts: &mut dyn Iterator<Item = (&'static str, usize)>| {
            let words: Vec<String> = counts.map(|(token, count)| format!("{count} {token}")).collect();
            words.join(", ")
        };
        f.write_str(&counted(self.cases, "case"))?;
        if self.cases > 0 {
            write!(f, ": {}", list(&mut self.outcomes.iter().map(|(k, v)| (*k, *v))))?;
        }
        if !self.changes.is_empty() {
            write!(f, "; {}", list(&mut self.changes.iter().copied()))?;
        }
        let timed = self.latencies.iter().filter(|(token, _)| **token != "-");
        let timed = list(&mut timed.map(|(k, v)| (*k, *v)));
        if !timed.is_empty() {
            write!(f, "; latency: {timed}")?;
        }
        if self.cleared > 0 {
            write!(f, ", {} cleared", self.cleared)?;
        }
        Ok(())
    }
}
