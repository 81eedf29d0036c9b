//! Reports: one comparison, told in the format that its reader takes.
//!
//! Every format says the same words for the same case, in the same order. What a case printed is
//! untrusted: each format escapes it for its own medium, and none interprets it. Formats that people
//! read are bounded and say what they left out; formats that machines read are complete.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::case_id::CaseId;
use crate::compare::{CaseDiff, Comparison};
use crate::count::counted;
use crate::gate::GateVerdict;
use crate::record::{CaseRecord, Run};

mod csv_rows;
mod escape;
mod github;
mod html;
mod json;
mod junit;
mod markdown;
mod svg;
mod table;
mod tally;
mod words;

pub use escape::plain;
pub use tally::Tally;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a terminal.
    Table,
    /// For a pull request or a step summary, below 1 MiB.
    Markdown,
    /// For CI servers.
    Junit,
    /// For spreadsheets: one row a case.
    Csv,
    /// For programs: everything.
    Json,
    /// One page for a browser.
    Html,
    /// Workflow commands: annotations in GitHub's view of the run.
    Github,
}

/// Everything that a report tells.
#[derive(Debug)]
pub struct Report<'a> {
    /// The run.
    pub run: &'a Run,
    /// What changed.
    pub comparison: &'a Comparison,
    /// What the gate says; `None` where none was asked.
    pub verdict: Option<&'a GateVerdict>,
    /// The last attempt of every process run, by case.
    records: BTreeMap<&'a CaseId, Vec<&'a CaseRecord>>,
}

/// One sentence of the record that shows a case's outcome.
fn why(evidence: Option<&CaseRecord>) -> &str {
    evidence.map_or("no terminal record", |record| record.evidence.summary.as_str())
}

impl<'a> Report<'a> {
    /// A report of `run`.
    pub fn new(run: &'a Run, comparison: &'a Comparison, verdict: Option<&'a GateVerdict>) -> Self {
        let terminal = run.terminal();
        let of_case = terminal.chunk_by(|a, b| a.case == b.case);
        let records = of_case.filter_map(|records| Some((&records.first()?.case, records.to_vec())));
        let records = records.collect();
        Self {
            run,
            comparison,
            verdict,
            records,
        }
    }

    /// Cases, worst first, then by id.
    pub fn cases(&self) -> &[CaseDiff] {
        &self.comparison.cases
    }

    /// The last attempt of every process run of a case.
    pub fn records(&self, diff: &CaseDiff) -> &[&'a CaseRecord] {
        self.records.get(&diff.case).map_or(&[], Vec::as_slice)
    }

    /// The record that shows a case's outcome: the first of the worst; `None` for a case without one.
    pub fn evidence(&self, diff: &CaseDiff) -> Option<&'a CaseRecord> {
        self.records(diff)
            .iter()
            .copied()
            .min_by_key(|record| record.outcome.kind())
    }

    /// One sentence: what happened to the case, with its numbers.
    pub fn why(&self, diff: &CaseDiff) -> &'a str {
        why(self.evidence(diff))
    }

    /// The first line of every report.
    pub fn headline(&self) -> String {
        let tally = Tally::of(self.comparison);
        let verdict = match self.verdict {
            Some(verdict) if verdict.passed() => format!("gate {} passed", verdict.policy),
            Some(verdict) => format!("gate {} FAILED", verdict.policy),
            None => format!("comparison: {}", self.comparison.standing.token()),
        };
        format!("{verdict}: {tally}")
    }

    /// What must be known before any case: the environment, the reference, notes.
    pub fn notes(&self) -> Vec<String> {
        let comparison = self.comparison;
        let mut notes = Vec::new();
        notes.extend(comparison.common_mode.map(|common| common.to_string()));
        notes.extend(comparison.environment.map(|environment| environment.to_string()));
        if !comparison.host_differences.is_empty() {
            let facts: Vec<String> = comparison.host_differences.iter().map(ToString::to_string).collect();
            notes.push(format!(
                "other host class, latencies are not compared: {}",
                facts.join(", ")
            ));
        }
        if comparison.not_selected > 0 {
            notes.push(format!(
                "not selected, and not judged: {} of the reference",
                counted(comparison.not_selected, "case")
            ));
        }
        if let Some(age) = comparison.age_days.filter(|age| *age > comparison.rules.max_age_days) {
            notes.push(format!("{} is {age} days old", comparison.base.label));
        }
        notes.extend(comparison.notes.iter().cloned());
        notes
    }

    /// Writes the report.
    pub fn render(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Table => table::render(self, out),
            Format::Markdown => markdown::render(self, out),
            Format::Junit => junit::render(self, out),
            Format::Csv => csv_rows::render(self, out),
            Format::Json => json::render(self, out),
            Format::Html => html::render(self, out),
            Format::Github => github::render(self, out),
        }
    }
}
