//! Ways to call a case slower, on the same samples.

use super::{CaseData, Runs};
use crate::compare::{Direction, LatencyVerdict, Remeasured, Rules, common_ratio, judge_fresh, judge_medians, slack};
use crate::stats::{self, SplitMix};

/// A way to call a case slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Ours, with suspects measured again: what fails a gate.
    Confirmed,
    /// Ours, from the sweep alone.
    Unconfirmed,
    /// The ratio of medians over all samples exceeds 1.05.
    Plain5,
    /// The ratio of medians over all samples exceeds 1.10.
    Plain10,
    /// Criterion's: a bootstrapped t test at 0.05 and an interval of the change of the mean beyond 1 %.
    Criterion,
    /// Mann–Whitney at 0.05 over all samples.
    MannWhitney,
}

/// Draws of Criterion's bootstrap. Criterion itself makes 100,000; the third digit of a p value decides nothing here.
const RESAMPLES: usize = 400;

/// Criterion's `significance_level`.
const SIGNIFICANCE: f64 = 0.05;

/// Criterion's `noise_threshold`.
const NOISE_THRESHOLD: f64 = 0.01;

impl Method {
    /// Every method, ours first.
    pub const ALL: [Self; 6] = [
        Self::Confirmed,
        Self::Unconfirmed,
        Self::Plain5,
        Self::Plain10,
        Self::Criterion,
        Self::MannWhitney,
    ];

    /// The words for it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Confirmed => "ringsweep, suspects measured again",
            Self::Unconfirmed => "ringsweep, sweep alone",
            Self::Plain5 => "plain threshold 5 %",
            Self::Plain10 => "plain threshold 10 %",
            Self::Criterion => "Criterion's rule",
            Self::MannWhitney => "Mann–Whitney at 0.05",
        }
    }

    /// For each case of a sweep, whether it is called slower.
    pub(super) fn alarms(self, cases: &[CaseData], rules: &Rules, seed: u64) -> Vec<bool> {
        match self {
            Self::Confirmed => confirmed(cases, rules),
            Self::Unconfirmed => judged(cases, rules).iter().map(is_slower).collect(),
            Self::Plain5 => cases.iter().map(|case| plain(case) > 1.05).collect(),
            Self::Plain10 => cases.iter().map(|case| plain(case) > 1.10).collect(),
            Self::Criterion => cases.iter().map(|case| criterion(case, seed)).collect(),
            Self::MannWhitney => cases.iter().map(mann_whitney).collect(),
        }
    }
}

fn is_slower(verdict: &LatencyVerdict) -> bool {
    matches!(verdict, LatencyVerdict::Slower(_))
}

fn run_medians(runs: &Runs) -> Vec<f64> {
    runs.iter().filter_map(|samples| stats::median(samples)).collect()
}

fn judge(sides: &[(Vec<f64>, Vec<f64>)], rules: &Rules) -> Vec<LatencyVerdict> {
    let borrowed: Vec<_> = sides.iter().map(|(a, b)| (a.as_slice(), b.as_slice(), 0.0)).collect();
    judge_medians(&borrowed, rules)
}

fn judged(cases: &[CaseData], rules: &Rules) -> Vec<LatencyVerdict> {
    let sides: Vec<_> = cases
        .iter()
        .map(|case| (run_medians(&case.base), run_medians(&case.now)))
        .collect();
    judge(&sides, rules)
}

/// What the gate does: suspects of the sweep, then looks at their fresh runs with a correction over the
/// suspects, until each is clear or the looks are used up.
fn confirmed(cases: &[CaseData], rules: &Rules) -> Vec<bool> {
    let first = judged(cases, rules);
    let common = common_ratio(first.iter());
    let suspects: Vec<usize> = (0..cases.len())
        .filter(|&index| {
            let case = &cases[index];
            let slack = slack(&run_medians(&case.base), case.now.len());
            first[index].suspicion(common, slack, rules) == Some(Direction::Slower)
        })
        .collect();
    let medians = |(base, now): &(Vec<f64>, Vec<f64>)| Some((stats::median(base)?, stats::median(now)?));
    let all: Vec<Vec<(f64, f64)>> = suspects
        .iter()
        .map(|&index| cases[index].fresh.iter().filter_map(medians).collect())
        .collect();
    let mut measured: Vec<Remeasured> = all.iter().map(|_| Remeasured::InTurn(Vec::new())).collect();
    let mut open = vec![true; suspects.len()];
    let mut verdicts = Vec::new();
    for look in 1..=rules.confirm_looks {
        for (at, pairs) in all.iter().enumerate().filter(|(at, _)| open[*at]) {
            let taken = pairs.len().min(look * rules.confirm_repeats);
            measured[at] = Remeasured::InTurn(pairs[..taken].to_vec());
        }
        verdicts = judge_fresh(&measured, rules);
        for (open, verdict) in open.iter_mut().zip(&verdicts) {
            *open &= verdict.asks_for_more(rules);
        }
    }
    let mut alarms = vec![false; cases.len()];
    for (index, verdict) in suspects.into_iter().zip(&verdicts) {
        alarms[index] = is_slower(verdict);
    }
    alarms
}

fn pooled(runs: &Runs) -> Vec<f64> {
    runs.iter().flatten().copied().collect()
}

fn plain(case: &CaseData) -> f64 {
    let median = |runs: &Runs| stats::median(&pooled(runs));
    match (median(&case.base), median(&case.now)) {
        (Some(base), Some(now)) => now / base,
        _ => 1.0,
    }
}

fn mann_whitney(case: &CaseData) -> bool {
    let (base, now) = (pooled(&case.base), pooled(&case.now));
    let test = stats::mann_whitney(&base, &now);
    test.is_some_and(|test| test.p < 0.05) && plain(case) > 1.0
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn t_statistic(a: &[f64], b: &[f64]) -> f64 {
    let variance = |values: &[f64], mean: f64| {
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
    };
    let (mean_a, mean_b) = (mean(a), mean(b));
    let error = variance(a, mean_a) / a.len() as f64 + variance(b, mean_b) / b.len() as f64;
    (mean_b - mean_a) / error.sqrt()
}

/// The null distribution of t from the pooled samples, the interval from each side's own.
fn criterion(case: &CaseData, seed: u64) -> bool {
    let (base, now) = (pooled(&case.base), pooled(&case.now));
    if base.len() < 2 || now.len() < 2 {
        return false;
    }
    let mut rng = SplitMix::new(seed);
    let mut resample =
        |from: &[f64], count: usize| -> Vec<f64> { (0..count).map(|_| from[rng.below(from.len())]).collect() };
    let all: Vec<f64> = base.iter().chain(&now).copied().collect();
    let t = t_statistic(&base, &now).abs();
    let mut beyond = 0;
    let mut changes = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let null = t_statistic(&resample(&all, base.len()), &resample(&all, now.len()));
        beyond += usize::from(null.abs() >= t);
        changes.push(mean(&resample(&now, now.len())) / mean(&resample(&base, base.len())) - 1.0);
    }
    let p = beyond as f64 / RESAMPLES as f64;
    let low = stats::quantile(&changes, 0.025).unwrap_or(0.0);
    p < SIGNIFICANCE && low > NOISE_THRESHOLD
}
