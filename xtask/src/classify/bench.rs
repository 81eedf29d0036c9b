//! Benchmark lines of pypto-lib programs.
//!
//! One process may print several headlines (one per mode), so a report is kept for each, in order;
//! the last one alone would lose all but one mode.

use std::sync::LazyLock;

use regex::Regex;

use super::line::lines;
use super::number::parse_number;
use crate::record::{LatencyError, Nanos};

/// The headline numbers of one benchmark, µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Headline {
    /// Rounds that it sums up; fewer than asked for where a round gave no time.
    pub rounds: u64,
    /// Fastest round, µs.
    pub min_us: f64,
    /// Median, µs.
    pub median_us: f64,
    /// Mean, µs.
    pub mean_us: f64,
    /// Slowest round, µs.
    pub max_us: f64,
}

/// What one benchmark of a process printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchReport {
    /// The mode that the program named before it, such as `rmsnorm decode`.
    pub mode: Option<String>,
    /// Line of the headline, or of the line that says why there is none.
    pub line: u64,
    /// The headline; a number in it that is none makes it unreadable, not shorter.
    pub headline: Option<Headline>,
    /// Raw rounds per rank, µs, in order.
    pub ranks: Vec<Vec<f64>>,
    /// The headline pools dispatches instead of taking the maximum over ranks: not comparable.
    pub flattened: bool,
    /// Why there is no time.
    pub unavailable: Option<String>,
}

impl BenchReport {
    /// The timed dispatches: per round, the maximum over ranks. Empty where no raw rounds were printed, or where they
    /// can't be compared with other runs.
    pub fn samples(&self) -> Result<Vec<Nanos>, LatencyError> {
        let Some(rounds) = self.ranks.iter().map(Vec::len).min() else {
            return Ok(Vec::new());
        };
        if self.flattened {
            return Ok(Vec::new());
        }
        let slowest = |round: usize| self.ranks.iter().map(|rank| rank[round]).fold(f64::MIN, f64::max);
        (0..rounds)
            .map(|round| Nanos::from_f64(slowest(round) * 1000.0))
            .collect()
    }
}

/// Most benchmarks that are kept of one log.
const KEPT: usize = 64;

struct Patterns {
    mode: Regex,
    headline: Regex,
    missing: Regex,
    raw: Regex,
    summary: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let compile = |pattern| Regex::new(pattern).expect("the patterns are constant and tested");
    Patterns {
        mode: compile(r"^--- (\S.*?)\s*(?::.*)?---\s*$"),
        headline: compile(r"^\[RUN\]\s+effective_us \((\d+) rounds\) +min=(\S+) +median=(\S+) +mean=(\S+) +max=(\S+)"),
        missing: compile(
            r"^\[RUN\]\s+(?:effective_us unavailable: |benchmark (?:unavailable|skipped|rounds interrupted): )(.*)$",
        ),
        raw: compile(r"^\[RUN\]\s+rank \S+ raw n=\d+ eff_us=\[([^\]]*)\]"),
        summary: compile(r"^\[RUN\] benchmark kernel=.*?(?:fallback_flattened=(\d+))?\s*$"),
    }
});

/// What the benchmarks of a log printed, in order.
pub fn bench_reports(log: &[u8]) -> Vec<BenchReport> {
    let mut reports: Vec<BenchReport> = Vec::new();
    let mut mode = None;
    // Raw rounds and the summary line may stand on either side of the headline; they belong to the benchmark that is open.
    let mut open = BenchReport::default();
    let patterns = &*PATTERNS;
    for line in lines(log) {
        let text = line.text.trim_end();
        if !text.starts_with("[RUN]") && !text.starts_with("---") {
            continue;
        }
        if let Some(found) = patterns.mode.captures(text) {
            mode = Some(found[1].trim_end_matches(':').to_owned());
            close(&mut reports, &mut open);
        } else if text.starts_with("[RUN] PASS") || text.starts_with("[RUN] compile ...") {
            close(&mut reports, &mut open);
        } else if let Some(found) = patterns.headline.captures(text) {
            if open.headline.is_some() || open.unavailable.is_some() {
                close(&mut reports, &mut open);
            }
            open.mode.clone_from(&mode);
            open.line = line.number;
            open.headline = headline(&found);
            if open.headline.is_none() {
                open.unavailable = Some(format!("unreadable numbers: {text}"));
            }
        } else if let Some(found) = patterns.missing.captures(text) {
            if open.headline.is_some() || open.unavailable.is_some() {
                close(&mut reports, &mut open);
            }
            open.mode.clone_from(&mode);
            open.line = line.number;
            open.unavailable = Some(found[1].to_owned());
        } else if let Some(found) = patterns.raw.captures(text) {
            let rounds: Option<Vec<f64>> = found[1].split(',').map(parse_number).collect();
            open.ranks.extend(rounds);
        } else if let Some(found) = patterns.summary.captures(text) {
            open.flattened |= found.get(1).is_some_and(|flag| flag.as_str() != "0");
        }
    }
    close(&mut reports, &mut open);
    reports
}

fn close(reports: &mut Vec<BenchReport>, open: &mut BenchReport) {
    let done = std::mem::take(open);
    if (done.headline.is_some() || done.unavailable.is_some() || !done.ranks.is_empty()) && reports.len() < KEPT {
        reports.push(done);
    }
}

fn headline(found: &regex::Captures<'_>) -> Option<Headline> {
    let number = |group: usize| parse_number(&found[group]);
    Some(Headline {
        rounds: found[1].parse().ok()?,
        min_us: number(2)?,
        median_us: number(3)?,
        mean_us: number(4)?,
        max_us: number(5)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(log: &str) -> BenchReport {
        let reports = bench_reports(log.as_bytes());
        assert_eq!(reports.len(), 1, "{reports:?}");
        reports.into_iter().next().unwrap()
    }

    #[test]
    fn an_exponent_is_not_cut_off() {
        let report = one("[RUN]   effective_us (3 rounds) min=9e+05 median=1.1e+06 mean=1.2e+06 max=1600000.5\n");
        let headline = report.headline.unwrap();
        assert_eq!(headline.mean_us.to_bits(), 1_200_000f64.to_bits());
        assert_eq!((headline.rounds, headline.max_us), (3, 1_600_000.5));
    }

    #[test]
    fn each_mode_keeps_its_own_numbers() {
        let log = "--- norm decode: T=8 ---\n[RUN]   effective_us (2 rounds) min=1 median=1 mean=1 max=1\n[RUN] PASS (1.00s)\n\
                   --- norm prefill: T=128 ---\n[RUN]   effective_us (2 rounds) min=5 median=5 mean=5 max=5\n[RUN] PASS (1.00s)\n";
        let reports = bench_reports(log.as_bytes());
        let seen: Vec<_> = reports
            .iter()
            .map(|r| (r.mode.as_deref().unwrap(), r.headline.unwrap().mean_us))
            .collect();
        assert_eq!(seen, [("norm decode", 1.0), ("norm prefill", 5.0)]);
        let unnamed = log
            .replace("--- norm decode: T=8 ---\n", "")
            .replace("--- norm prefill: T=128 ---\n", "");
        assert_eq!(
            bench_reports(unnamed.as_bytes()).len(),
            2,
            "two headlines stay two without names"
        );
    }

    #[test]
    fn the_slowest_rank_makes_the_round() {
        let log = "[RUN]   effective_us (2 rounds) min=8 median=9 mean=9 max=9\n[RUN]     rank 7: eff_us min=1 median=2 mean=3 max=4\n\
                   [RUN]     rank 7 raw n=2 eff_us=[8.0, 2.5]\n[RUN]     rank 9 raw n=2 eff_us=[1.0, 9.0]\n";
        let report = one(log);
        let samples: Vec<u64> = report.samples().unwrap().into_iter().map(Nanos::get).collect();
        assert_eq!(samples, [8000, 9000]);
        let flat = format!("{log}[RUN] benchmark kernel=k l3=1 rounds=2 ranks=2 host_mean_us=3 fallback_flattened=1\n");
        assert!(one(&flat).flattened && one(&flat).samples().unwrap().is_empty());
    }

    #[test]
    fn a_zero_round_is_an_error_and_a_missing_benchmark_says_why() {
        let report = one("[RUN]     rank 0 raw n=2 eff_us=[0.0, 1.0]\n");
        assert_eq!(report.samples(), Err(LatencyError::Zero));
        let report =
            one("[RUN]   effective_us unavailable: no device-domain spans (sim platform or non-profiling build)\n");
        assert!(report.unavailable.unwrap().starts_with("no device-domain spans"));
        let report = one("[RUN]   effective_us (3 rounds) min=1 median=x mean=1 max=1\n");
        assert!(report.headline.is_none() && report.unavailable.unwrap().contains("unreadable"));
    }
}
