//! A table of logs with what is known of them: tab-separated, the first line names the columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::decide::Finding;
use super::engine::Context;
use super::status::EndStatus;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The log, relative to the index.
    pub file: String,
    /// How its process ended.
    pub status: Option<EndStatus>,
    /// Its command line.
    pub command: Option<String>,
    /// What truly happened: outcome and cause. Never shown to the rules.
    pub truth: Option<(String, String)>,
}

impl Entry {
    /// What the rules may know.
    pub fn context(&self) -> Context {
        Context {
            status: self.status.clone(),
            command: self.command.clone(),
        }
    }
}

/// Why a table is no index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// A needed column isn't there.
    #[error("no column `{0}`: an index has `file` and `exit_code`, and may have `command`, `outcome` and `cause`")]
    Column(&'static str),
    /// A row with another number of cells than the first line.
    #[error("line {line}: {cells} cells under {columns} columns")]
    Cells {
        /// From 1.
        line: usize,
        /// In the row.
        cells: usize,
        /// In the first line.
        columns: usize,
    },
    /// An exit code that is no number.
    #[error("line {line}: `{text}` is no exit code")]
    ExitCode {
        /// From 1.
        line: usize,
        /// As written.
        text: String,
    },
}

/// The rows of an index.
pub fn parse(text: &str) -> Result<Vec<Entry>, IndexError> {
    let mut rows = text.lines().zip(1..).filter(|(row, _)| !row.trim().is_empty());
    let header: Vec<&str> = rows.next().map_or(Vec::new(), |(row, _)| row.split('\t').collect());
    let find = |name: &str| header.iter().position(|column| *column == name);
    let file = find("file").ok_or(IndexError::Column("file"))?;
    let exit = find("exit_code").ok_or(IndexError::Column("exit_code"))?;
    let (command, outcome, cause) = (find("command"), find("outcome"), find("cause"));
    rows.map(|(row, line)| {
        let cells: Vec<&str> = row.split('\t').collect();
        if cells.len() != header.len() {
            return Err(IndexError::Cells {
                line,
                cells: cells.len(),
                columns: header.len(),
            });
        }
        let status = match cells[exit].trim() {
            "" => None,
            code => Some(EndStatus::Exited(code.parse().map_err(|_| IndexError::ExitCode {
                line,
                text: code.into(),
            })?)),
        };
        let cell = |column: Option<usize>| column.map(|column| cells[column].to_owned());
        Ok(Entry {
            file: cells[file].into(),
            status,
            command: cell(command).filter(|command| !command.is_empty()),
            truth: cell(outcome)
                .filter(|outcome| !outcome.is_empty())
                .map(|outcome| (outcome, cell(cause).unwrap_or_default())),
        })
    })
    .collect()
}

/// A row and what the rules made of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The row.
    pub entry: Entry,
    /// The finding.
    pub finding: Finding,
}

impl Judged {
    fn found(&self) -> (String, String) {
        (self.finding.outcome.kind().token().into(), self.finding.outcome.cause())
    }

    /// Whether finding and truth are the same; `None` where the truth isn't told.
    pub fn agrees(&self) -> Option<bool> {
        self.entry.truth.as_ref().map(|truth| *truth == self.found())
    }

    /// One line about a disagreement.
    pub fn disagreement(&self) -> String {
        let (truth, found) = (self.entry.truth.clone().unwrap_or_default(), self.found());
        format!(
            "{}: truly {}, found {} ({})",
            self.entry.file,
            joined(&truth),
            joined(&found),
            self.finding.evidence.summary
        )
    }
}

fn joined((outcome, cause): &(String, String)) -> String {
    match cause.as_str() {
        "" => outcome.clone(),
        cause => format!("{outcome}/{cause}"),
    }
}

/// How often each truth was found as what.
pub fn confusion(judged: &[Judged]) -> String {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for judged in judged {
        let truth = judged.entry.truth.as_ref().map_or("?".to_owned(), joined);
        *counts.entry((truth, joined(&judged.found()))).or_default() += 1;
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["truth", "found", "logs", ""]);
    for ((truth, found), count) in counts {
        let mark = if truth == found || truth == "?" { "" } else { "wrong" };
        table.add_row([truth.as_str(), found.as_str(), &count.to_string(), mark]);
    }
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = writeln!(text, "{table}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let text =
            "exit_code\tx\tfile\toutcome\tcause\tcommand\n1\t\ta.log\tdeadlock\tscope\tpython a\n\t\tb.log\t\t\t\n";
        let rows = parse(text).unwrap();
        assert_eq!(rows[0].status, Some(EndStatus::Exited(1)));
        assert_eq!(rows[0].truth, Some(("deadlock".into(), "scope".into())));
        assert_eq!(rows[0].command.as_deref(), Some("python a"));
        assert_eq!(
            (&rows[1].status, &rows[1].truth, &rows[1].command),
            (&None, &None, &None)
        );
    }

    #[test]
    fn what_is_no_index_is_refused() {
        assert_eq!(parse("file\tcode\n"), Err(IndexError::Column("exit_code")));
        assert!(matches!(
            parse("file\texit_code\na\n"),
            Err(IndexError::Cells { line: 2, .. })
        ));
        assert!(matches!(
            parse("file\texit_code\na\tx\n"),
            Err(IndexError::ExitCode { line: 2, .. })
        ));
    }
}
