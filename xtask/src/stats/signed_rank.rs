//! Wilcoxon's signed-rank test of paired numbers, and the shift of the pairs with its interval.
//!
//! Two programs that are measured in turn share whatever the machine does at the time. Within a pair
//! that cancels, so the test is exact under drift and under noise whose neighbours resemble each other,
//! where a test of two independent samples is only cautious.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, RwLock};

use super::rank::{RankTest, quantile_of_tail, upper_tail};
use super::{Shift, median, sorted};

/// Up to so many pairs the null distribution is enumerated; beyond, the normal approximation takes over.
const EXACT_PAIRS: usize = 100;

/// Tests whether `differences` tend to one side of zero; `None` if none of them differs from zero.
///
/// Two-sided: the share of all assignments of signs whose rank sum lies at least as far from its mean
/// as the observed one. Zeros say nothing and are left out; ties take their mean rank.
pub fn signed_rank(differences: &[f64]) -> Option<RankTest> {
    let moved: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    if moved.is_empty() {
        return None;
    }
    let (ranks, ties) = doubled_midranks(&moved);
    let above = moved.iter().zip(&ranks).filter(|(d, _)| **d > 0.0);
    let observed: usize = above.map(|(_, rank)| rank).sum();
    let n = moved.len();
    // The doubled mean is n·(n+1)/2; twice that keeps halves out.
    let far = (2 * observed).abs_diff(n * (n + 1));
    if n > EXACT_PAIRS {
        let size = n as f64;
        let tied: f64 = ties.iter().map(|&t| (t as f64).powi(3) - t as f64).sum();
        let variance = size * (size + 1.0) * (2.0 * size + 1.0) / 24.0 - tied / 48.0;
        let z = (far as f64 / 4.0 - 0.5).max(0.0) / variance.sqrt();
        return Some(RankTest {
            p: (2.0 * upper_tail(z)).min(1.0),
            exact: false,
        });
    }
    let counts = if ties.iter().any(|&run| run > 1) {
        Arc::new(sum_counts(&ranks))
    } else {
        untied(n)
    };
    let (mut all, mut beyond) = (0.0, 0.0);
    for (sum, &count) in counts.iter().enumerate() {
        all += count;
        if (2 * sum).abs_diff(n * (n + 1)) >= far {
            beyond += count;
        }
    }
    Some(RankTest {
        p: (beyond / all).min(1.0),
        exact: true,
    })
}

/// The shift of the pairs with an interval of at least `confidence` (0 to 1): the median of the means of
/// every two differences (Hodges and Lehmann), and order statistics of those means.
///
/// `None` if there are too few pairs for that confidence.
pub fn paired_shift(differences: &[f64], confidence: f64) -> Option<Shift> {
    let trim = trimmed(differences.len(), (1.0 - confidence) / 2.0)?;
    let means: Vec<f64> = (0..differences.len())
        .flat_map(|i| (i..differences.len()).map(move |j| (i, j)))
        .map(|(i, j)| f64::midpoint(differences[i], differences[j]))
        .collect();
    let means = sorted(&means);
    Some(Shift {
        estimate: median(&means)?,
        low: means[trim],
        high: means[means.len() - 1 - trim],
    })
}

/// How many means may be cut off at each end: the largest `k` with P(W ≤ k) ≤ `tail`.
fn trimmed(pairs: usize, tail: f64) -> Option<usize> {
    if pairs > EXACT_PAIRS {
        let n = pairs as f64;
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let cut = (n * (n + 1.0) / 4.0 - quantile_of_tail(tail) * deviation - 0.5).floor();
        return (cut >= 0.0).then_some(cut as usize);
    }
    let counts = untied(pairs);
    let all: f64 = counts.iter().sum();
    let mut below = 0.0;
    let mut cut = None;
    // Ranks are doubled, so every second sum occurs.
    for (w, count) in counts.iter().step_by(2).enumerate() {
        below += count;
        if below / all > tail {
            break;
        }
        cut = Some(w);
    }
    cut
}

/// Twice the mid-rank of the size of every number, and the lengths of the runs of equal sizes.
fn doubled_midranks(values: &[f64]) -> (Vec<usize>, Vec<usize>) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].abs().total_cmp(&values[j].abs()));
    let mut ranks = vec![0; values.len()];
    let mut ties = Vec::new();
    let mut start = 0;
    while start < order.len() {
        let size = values[order[start]].abs();
        let run = order[start..]
            .iter()
            .take_while(|&&i| values[i].abs().total_cmp(&size).is_eq())
            .count();
        for &i in &order[start..start + run] {
            ranks[i] = 2 * start + run + 1;
        }
        ties.push(run);
        start += run;
    }
    (ranks, ties)
}

/// How many assignments of signs have each (doubled) sum of positive ranks.
fn sum_counts(ranks: &[usize]) -> Vec<f64> {
    let mut counts = vec![0.0; ranks.iter().sum::<usize>() + 1];
    counts[0] = 1.0;
    let mut most = 0;
    for &rank in ranks {
        most += rank;
        for sum in (rank..=most).rev() {
            counts[sum] += counts[sum - rank];
        }
    }
    counts
}

/// The null distribution without ties, made once per number of pairs.
fn untied(pairs: usize) -> Arc<Vec<f64>> {
    type Tables = RwLock<BTreeMap<usize, Arc<Vec<f64>>>>;
    static TABLES: LazyLock<Tables> = LazyLock::new(Tables::default);
    if let Some(table) = TABLES.read().ok().and_then(|tables| tables.get(&pairs).cloned()) {
        return table;
    }
    let ranks: Vec<usize> = (1..=pairs).map(|rank| 2 * rank).collect();
    let table = Arc::new(sum_counts(&ranks));
    if let Ok(mut tables) = TABLES.write() {
        tables.insert(pairs, Arc::clone(&table));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(differences: &[f64], p: f64) {
        let test = signed_rank(differences).unwrap();
        assert!((test.p - p).abs() < 1e-9, "{} is not {p}", test.p);
        let mirrored: Vec<f64> = differences.iter().map(|d| -d).collect();
        assert!(
            (test.p - signed_rank(&mirrored).unwrap().p).abs() < 1e-12,
            "not symmetric"
        );
    }

    #[test]
    fn exact_values_of_small_tables() {
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], 2.0 / 32.0);
        // W = 1: of 32 assignments one has W = 0, one W = 1, and as many at the other end.
        check(&[-1.0, 2.0, 3.0, 4.0, 5.0], 4.0 / 32.0);
        check(&[0.0, 1.0], 1.0);
        // Ranks 1.5 1.5: both up, or both down, of four.
        check(&[2.0, 2.0], 0.5);
        assert_eq!(signed_rank(&[0.0, 0.0]), None);
        assert_eq!(signed_rank(&[]), None);
    }

    #[test]
    fn tabled_cuts() {
        // Critical values of W, two-sided 5 %, from the usual table.
        for (pairs, cut) in [(6, 0), (8, 3), (10, 8), (12, 13), (20, 52)] {
            assert_eq!(trimmed(pairs, 0.025), Some(cut), "{pairs} pairs");
        }
        assert_eq!(trimmed(5, 0.025), None);
        assert_eq!(trimmed(0, 0.025), None);
    }

    #[test]
    fn many_pairs_use_the_normal_approximation() {
        let differences: Vec<f64> = (0..150).map(|i| f64::from(i) - 50.5).collect();
        let near = signed_rank(&differences).unwrap();
        assert!(!near.exact && near.p < 1e-3);
        let exact = trimmed(EXACT_PAIRS, 0.025).unwrap();
        let beyond = trimmed(EXACT_PAIRS + 1, 0.025).unwrap();
        // One more pair moves the cut by about half of what it adds to the sum of ranks.
        assert!(beyond > exact && beyond - exact < EXACT_PAIRS, "{exact} {beyond}");
    }

    #[test]
    fn what_both_numbers_of_a_pair_share_cancels() {
        // A drift far larger than the shift: the pairs know nothing of it.
        let drift = [0.0, 40.0, 10.0, 90.0, 70.0, 20.0, 60.0, 30.0];
        let wobble = [0.0, 0.1, -0.1, 0.2, -0.2, 0.05, -0.05, 0.15];
        let differences: Vec<f64> = drift
            .iter()
            .zip(wobble)
            .map(|(at, wobble)| (at + 5.0 + wobble) - at)
            .collect();
        let shift = paired_shift(&differences, 0.95).unwrap();
        assert!((shift.estimate - 5.0).abs() < 0.1 && shift.low > 4.7 && shift.high < 5.3);
        assert_eq!(paired_shift(&differences[..5], 0.95), None);
    }
}
