//! What a sweep shows below its report: all rings, and the evidence of each case that needs attention.
//!
//! A renderer only: the table of cases, the reasons of the gate and the formats for other media are
//! [`crate::report`]'s; this adds what a person needs who is about to look into a failure.

mod evidence;
mod rings;

use std::io::{self, Write};

use crate::compare::Comparison;
use crate::record::{CaseRecord, Run};
use crate::ui::Colour;

/// Everything that a summary shows.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// The run.
    pub run: &'a Run,
    /// The run against its reference, or against nothing.
    pub comparison: &'a Comparison,
    /// The run's directory, as it is shown.
    pub directory: &'a str,
    /// Options that a rerun of single cases takes over from this run.
    pub rerun_options: &'a str,
}

impl Summary<'_> {
    /// Writes a block of lines for each case that failed or changed for the worse.
    pub fn write_evidence(&self, out: &mut dyn Write, colour: Colour) -> io::Result<()> {
        for diff in &self.comparison.cases {
            if let Some(text) = evidence::of_case(self, diff, colour) {
                writeln!(out, "{text}\n")?;
            }
        }
        Ok(())
    }

    /// Writes a table of all four rings of each case.
    pub fn write_rings(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}\n", rings::table(self.run))
    }

    /// The last attempt of the worst process run of `case`.
    fn worst_record(&self, case: &crate::case_id::CaseId) -> Option<&CaseRecord> {
        let of_case = self.run.terminal().into_iter().filter(|record| record.case == *case);
        of_case.min_by_key(|record| record.outcome.kind())
    }
}
