//! The audit as a Markdown table, for a terminal and for the documents.

use std::io::{self, Write};

use super::{EFFECTS, Plan, Scores};

/// Writes one table: a row per method.
pub fn write(out: &mut dyn Write, title: &str, plan: &Plan, scores: &[Scores]) -> io::Result<()> {
    writeln!(
        out,
        "### {title}: {} sweeps of {} cases, {} process runs against {}, {} rounds\n",
        plan.sweeps, plan.cases, plan.now_runs, plan.base_runs, plan.rounds
    )?;
    let effects: Vec<String> = EFFECTS
        .iter()
        .map(|effect| format!("detects {:.0} %", effect * 100.0))
        .collect();
    writeln!(out, "| method | false alarms per sweep | {} |", effects.join(" | "))?;
    writeln!(out, "| --- | --- |{}", " --- |".repeat(EFFECTS.len()))?;
    for score in scores {
        let detected: Vec<String> = score.detected.iter().map(ToString::to_string).collect();
        writeln!(
            out,
            "| {} | {} | {} |",
            score.method.label(),
            score.false_alarms,
            detected.join(" | ")
        )?;
    }
    writeln!(out)
}
