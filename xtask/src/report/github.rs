//! Workflow commands: annotations in GitHub's view of the run.

use std::io::{self, Write};

use super::{Report, escape};
use crate::gate::{Action, Reason};

/// GitHub shows so many annotations of each level per step and drops the rest without a word.
const SHOWN: usize = 10;

pub(super) fn render(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let reasons = report.verdict.map_or(&[][..], |verdict| verdict.reasons.as_slice());
    for (action, level) in [(Action::Fail, "error"), (Action::Warn, "warning")] {
        let of_level: Vec<&Reason> = reasons.iter().filter(|reason| reason.action == action).collect();
        // The last place tells how many more there are.
        let shown = if of_level.len() > SHOWN {
            SHOWN - 1
        } else {
            of_level.len()
        };
        for reason in &of_level[..shown] {
            let title = match &reason.case {
                Some(case) => format!("{}: {case}", reason.kind),
                None => reason.kind.token().to_owned(),
            };
            annotate(out, level, &title, &reason.message)?;
        }
        let left_out = of_level.len() - shown;
        if left_out > 0 {
            let message = format!("{left_out} more findings of this level are in the step summary");
            annotate(out, level, "more findings", &message)?;
        }
    }
    annotate(out, "notice", "ringsweep", &report.headline())
}

fn annotate(out: &mut dyn Write, level: &str, title: &str, message: &str) -> io::Result<()> {
    let (title, message) = (escape::command_property(title), escape::command_message(message));
    writeln!(out, "::{level} title={title}::{message}")
}
