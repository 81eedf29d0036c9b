//! The audit as a Markdown table, for a terminal and for the documents.

use std::io::{self, Write};

use super::{EFFECTS, Plan, Scores};

/// Writes one table: a row per method.
pub fn write(out: &mut dyn Write, title: &str, plan: &Plan, scores: &[Scores]) -> io::Result<()> {
    writeln!(
        out,
        "### {title}: {} sweeps of {} cases, {} process runs against {}\n",
        plan.sweeps, plan.cases, plan.now_runs, plan.base_runs
    )?;
    head(out, "method")?;
    for score in scores {
        row(out, score.method.label(), score)?;
    }
    writeln!(out)
}

/// Writes one table: what the first method says where each kernel is the slower one.
pub fn write_by_kernel(out: &mut dyn Write, plan: &Plan, kernels: &[(String, Vec<Scores>)]) -> io::Result<()> {
    let method = super::Method::ALL[0].label();
    writeln!(
        out,
        "#### {method}, by the kernel that is slower; {} process runs against {}\n",
        plan.now_runs, plan.base_runs
    )?;
    head(out, "kernel")?;
    for (kernel, scores) in kernels {
        if let Some(score) = scores.first() {
            row(out, &format!("`{kernel}`"), score)?;
        }
    }
    writeln!(out)
}

fn head(out: &mut dyn Write, of: &str) -> io::Result<()> {
    let effects: Vec<String> = EFFECTS
        .iter()
        .map(|effect| format!("detects {:.0} %", effect * 100.0))
        .collect();
    writeln!(out, "| {of} | false alarms per sweep | {} |", effects.join(" | "))?;
    writeln!(out, "| --- | --- |{}", " --- |".repeat(EFFECTS.len()))
}

fn row(out: &mut dyn Write, name: &str, score: &Scores) -> io::Result<()> {
    let detected: Vec<String> = score.detected.iter().map(ToString::to_string).collect();
    writeln!(out, "| {name} | {} | {} |", score.false_alarms, detected.join(" | "))
}
