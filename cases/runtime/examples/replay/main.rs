//! Replays recorded task graphs through the embedded runtime and compares verdicts.
//!
//! `replay GRAPHS.jsonl VERDICTS.jsonl [--alloc-timeout-ms N] [--jobs N] [--only TEXT] [--no-thresholds]`
//!
//! The last line is `agree N of M, quirks K`: `M` counts the rows that are not quirks of the original.
//! # Quirks
//!
//! Rows that show a defect of the original are counted apart and listed, each with whether we gave the
//! same verdict. Which rows these are follows from flags in the row, or from the graph itself:
//!
//! * a fan-in spill pool that frees a live task's edges when a small window has wrapped: repaired;
//! * a dependency-pool mark left in an allocation's slot by an earlier occupant: copied as far as it is
//!   defined, a reclaim that lands on an allocation frees nothing and restarts the interval;
//! * outputs of 2 GiB or more, whose sum wraps in 32 bits: repaired, they are rejected with code 5.
//!
//! The exit status is 1 on any disagreement among these, 2 on a wrong call.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

mod compare;
mod execute;
mod graph;
mod verdict;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use compare::{Outcome, Quirk, Settings};
use graph::Graph;
use verdict::Row;

struct Arguments {
    graphs: String,
    verdicts: String,
    settings: Settings,
    only: Option<String>,
    thresholds: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut files = Vec::new();
    let mut settings = Settings {
        alloc: Duration::from_millis(50),
        jobs: 8,
    };
    let (mut only, mut thresholds) = (None, true);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        match word.as_str() {
            "--alloc-timeout-ms" => settings.alloc = Duration::from_millis(number(value()?)?.clamp(1, 5000)),
            "--jobs" => settings.jobs = number(value()?)?.clamp(1, 64) as usize,
            "--only" => only = Some(value()?),
            "--no-thresholds" => thresholds = false,
            option if option.starts_with('-') => return Err(format!("unknown option `{option}`")),
            _ => files.push(word),
        }
    }
    let [graphs, verdicts] = <[String; 2]>::try_from(files).map_err(|_| "give a graphs file and a verdicts file")?;
    Ok(Arguments {
        graphs,
        verdicts,
        settings,
        only,
        thresholds,
    })
}

/// The records of a file, one a line.
fn read<T: serde::de::DeserializeOwned>(path: &str) -> Result<Vec<T>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("failed to read `{path}`: {error}"))?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(at, line)| serde_json::from_str(line).map_err(|error| format!("`{path}` line {}: {error}", at + 1)))
        .collect()
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("error: {message}");
            eprintln!(
                "usage: replay GRAPHS.jsonl VERDICTS.jsonl [--alloc-timeout-ms N] [--jobs N] [--only TEXT] [--no-thresholds]"
            );
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let chosen = |id: &str| arguments.only.as_ref().is_none_or(|text| id.contains(text.as_str()));
    let graphs: BTreeMap<String, Graph> = read::<Graph>(&arguments.graphs)?
        .into_iter()
        .filter(|graph| chosen(&graph.id))
        .map(|graph| (graph.id.clone(), graph))
        .collect();
    let mut rows: Vec<Row> = read(&arguments.verdicts)?;
    rows.retain(|row| chosen(&row.graph));
    if let Some(row) = rows.iter().find(|row| !graphs.contains_key(&row.graph)) {
        return Err(format!("a verdict names the unknown graph `{}`", row.graph));
    }
    let begin = Instant::now();
    let outcomes = compare::replay(&graphs, &rows, arguments.settings);
    let mut right = summary(&rows, &outcomes, begin.elapsed());
    if arguments.thresholds {
        let (checked, wrong) = compare::thresholds(&graphs, arguments.settings);
        println!("least heaps: {} of {checked} statements hold", checked - wrong.len());
        for line in &wrong {
            println!("  {line}");
        }
        right &= wrong.is_empty();
    }
    let (judged, quirks): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.quirk.is_none());
    let agree = judged.iter().filter(|outcome| outcome.agrees()).count();
    println!("agree {agree} of {}, quirks {}", judged.len(), quirks.len());
    Ok(right && agree == judged.len())
}

/// Prints everything but the last lines. Returns whether no judged row disagrees.
fn summary(rows: &[Row], outcomes: &[Outcome], took: Duration) -> bool {
    let mut codes: BTreeMap<u8, (usize, usize)> = BTreeMap::new();
    let (mut proofs, mut numbers, mut again) = ((0, 0), 0, 0);
    for outcome in outcomes.iter().filter(|outcome| outcome.quirk.is_none()) {
        let (agree, all) = codes.entry(outcome.expected.code).or_default();
        *all += 1;
        again += usize::from(outcome.second_look);
        if outcome.agrees() {
            *agree += 1;
            if outcome.expected.code != 0 {
                proofs.0 += usize::from(outcome.expected.proof == outcome.ours.proof);
                numbers += usize::from(outcome.expected.same_numbers(&outcome.ours));
                proofs.1 += 1;
            }
        }
    }
    println!("{} rows in {:.1} s", rows.len(), took.as_secs_f64());
    for (code, (agree, all)) in &codes {
        println!("code {code}: {agree} of {all} agree");
    }
    println!("kind of proof (soft): {} of {} agree", proofs.0, proofs.1);
    println!("numbers that depend on timing (soft): {numbers} of {} agree", proofs.1);
    println!("looked at again under the full backstop: {again}");
    let mut right = true;
    for outcome in outcomes.iter().filter(|o| o.quirk.is_none() && !o.agrees()) {
        right = false;
        describe("DISAGREES", rows, outcome);
    }
    println!("QUIRKS of the original, counted apart:");
    for quirk in [Quirk::SpillAlias, Quirk::StaleMark, Quirk::WrappedSum] {
        let of_kind: Vec<&Outcome> = outcomes.iter().filter(|o| o.quirk == Some(quirk)).collect();
        println!("  {quirk:?}, {} rows: {}", of_kind.len(), quirk.policy());
        for outcome in of_kind {
            describe(if outcome.agrees() { "  same" } else { "  differs" }, rows, outcome);
        }
    }
    right
}

fn describe(what: &str, rows: &[Row], outcome: &Outcome) {
    let row = &rows[outcome.row];
    println!(
        "{what} {} {} heap {:?} window {:?} dep_pool {:?}",
        row.graph, row.platform, row.heap, row.window, row.dep_pool
    );
    if !outcome.agrees() {
        println!("    original {:?}", outcome.expected);
        println!("    ours     {:?}", outcome.ours);
    }
}
