//! The summary of a run: one row a case, worst first, and the evidence of what failed.
//!
//! A renderer only: it decides nothing, and takes the comparison and the gate's verdict as they are.

mod evidence;
mod github;
mod rings;
mod table;

use std::io::{self, Write};

use crate::compare::Comparison;
use crate::gate::GateVerdict;
use crate::record::{CaseRecord, Run};
use crate::ui::Colour;

pub use github::step_summary;

/// Everything that a summary shows.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// The run.
    pub run: &'a Run,
    /// The run against its reference, or against nothing.
    pub comparison: &'a Comparison,
    /// The gate's verdict, where there was something to compare with.
    pub gate: Option<&'a GateVerdict>,
    /// The run's directory, as it is shown.
    pub directory: &'a str,
    /// Options that a rerun of single cases takes over from this run.
    pub rerun_options: &'a str,
}

/// How much of the rings is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingDetail {
    /// The fullest ring of each case.
    Fullest,
    /// A table with all four rings of each case.
    All,
}

impl Summary<'_> {
    /// Writes the table, and below it what is to be known of each case that needs attention.
    pub fn write(&self, out: &mut dyn Write, colour: Colour, detail: RingDetail) -> io::Result<()> {
        writeln!(out, "{}", table::table(self, colour))?;
        if detail == RingDetail::All {
            writeln!(out, "\n{}", rings::table(self.run))?;
        }
        for diff in &self.comparison.cases {
            if let Some(text) = evidence::of_case(self, diff, colour) {
                writeln!(out, "\n{text}")?;
            }
        }
        writeln!(out, "\n{}", self.last_line())
    }

    /// The last attempt of the worst process run of `case`.
    fn worst_record(&self, case: &crate::case_id::CaseId) -> Option<&CaseRecord> {
        let of_case = self.run.terminal().into_iter().filter(|record| record.case == *case);
        of_case.min_by_key(|record| record.outcome.kind())
    }

    fn last_line(&self) -> String {
        let counts = table::counts(self.comparison);
        let against = match self.gate {
            Some(gate) => format!("against {}", gate.reference),
            None => "not compared with a baseline".into(),
        };
        format!("{counts}; {against}; run {}", self.directory)
    }
}
