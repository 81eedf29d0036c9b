//! The summary as GitHub shows it beside a workflow run.

use std::io::{self, Write};
use std::path::Path;

use super::{Summary, evidence, table};
use crate::ui::Colour;

/// Most bytes that are appended; GitHub drops a step's summary of more than a MiB as a whole.
const LIMIT: usize = 900 << 10;

/// Appends the summary to `file`, the value of `GITHUB_STEP_SUMMARY`.
pub fn step_summary(summary: &Summary<'_>, file: &Path) -> io::Result<()> {
    let text = markdown(summary);
    let mut file = fs_err::OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(text.as_bytes())
}

pub(super) fn markdown(summary: &Summary<'_>) -> String {
    let mut text = format!(
        "### Sweep on `{}`: {}\n\n",
        summary.run.provenance.platform,
        summary.last_line()
    );
    text.push_str(&format!(
        "| {} |\n|{}\n",
        table::HEADER.join(" | "),
        " --- |".repeat(table::HEADER.len())
    ));
    let mut blocks = String::new();
    for diff in &summary.comparison.cases {
        let cells = table::row(summary, diff).map(|cell| cell.replace('|', "\\|"));
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
        if let Some(block) = evidence::of_case(summary, diff, Colour::None) {
            // A fence longer than any in the quoted log can't be closed by it.
            let fence = "`".repeat(longest_run(&block, '`').max(2) + 1);
            blocks.push_str(&format!(
                "\n<details open><summary>{}</summary>\n\n{fence}text\n{block}\n{fence}\n\n</details>\n",
                diff.case
            ));
        }
        if text.len() + blocks.len() > LIMIT {
            text.push_str("\nThe rest is left out; see the run's own files.\n");
            return text;
        }
    }
    text + &blocks
}

fn longest_run(text: &str, wanted: char) -> usize {
    text.split(|c| c != wanted).map(str::len).max().unwrap_or(0)
}
