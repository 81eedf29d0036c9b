//! The Mann–Whitney rank test, exact where that is cheap, with ties.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, RwLock};

/// Up to so many numbers on both sides together the null distribution is enumerated; beyond, the
/// normal approximation with tie and continuity correction takes over.
pub const EXACT_LIMIT: usize = 40;

/// What the test says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankTest {
    /// Two-sided p value.
    pub p: f64,
    /// Whether the null distribution was enumerated.
    pub exact: bool,
}

/// Tests whether one of `a`, `b` tends to be larger; `None` if a side is empty.
///
/// Two-sided: the share of assignments of the pooled numbers to sides whose rank sum lies at least as
/// far from its mean as the observed one. Ties take their mean rank.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<RankTest> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let (ranks, ties) = doubled_midranks(a, b);
    let observed: usize = ranks[..a.len()].iter().sum();
    let total = a.len() + b.len();
    if total > EXACT_LIMIT {
        return Some(RankTest {
            p: normal_p(observed, a.len(), b.len(), &ties),
            exact: false,
        });
    }
    let counts = if ties.iter().any(|&run| run > 1) {
        Arc::new(rank_sum_counts(&ranks, a.len()))
    } else {
        untied(a.len(), b.len())
    };
    // Distances from the mean are compared in whole numbers: the doubled mean is n·(N+1).
    let mean = a.len() * (total + 1);
    let far = observed.abs_diff(mean);
    let (mut all, mut beyond) = (0.0, 0.0);
    for (sum, &count) in counts.iter().enumerate() {
        all += count;
        if sum.abs_diff(mean) >= far {
            beyond += count;
        }
    }
    Some(RankTest {
        p: (beyond / all).min(1.0),
        exact: true,
    })
}

/// The smallest p value that `n` against `m` numbers can give: all of one side above the other.
pub fn smallest_p(n: usize, m: usize) -> f64 {
    if n == 0 || m == 0 {
        return 1.0;
    }
    (2.0 / binomial(n + m, n)).min(1.0)
}

/// The fewest numbers per side with which the test can reach `level`, when the other side has `other`
/// (`None`: as many). `None` if no number up to 1000 does.
pub fn runs_needed(level: f64, other: Option<usize>) -> Option<usize> {
    (1..=1000).find(|&k| smallest_p(k, other.unwrap_or(k)) <= level)
}

/// Number of subsets; grows beyond what an integer holds, so a float.
pub(super) fn binomial(n: usize, k: usize) -> f64 {
    (1..=k.min(n - k)).fold(1.0, |product, i| product * (n + 1 - i) as f64 / i as f64)
}

/// Twice the mid-rank of every number of `a` then `b`, and the lengths of the runs of equal numbers.
fn doubled_midranks(a: &[f64], b: &[f64]) -> (Vec<usize>, Vec<usize>) {
    let pooled: Vec<f64> = a.iter().chain(b).copied().collect();
    let mut order: Vec<usize> = (0..pooled.len()).collect();
    order.sort_by(|&i, &j| pooled[i].total_cmp(&pooled[j]));
    let mut ranks = vec![0; pooled.len()];
    let mut ties = Vec::new();
    let mut start = 0;
    while start < order.len() {
        let value = pooled[order[start]];
        let run = order[start..]
            .iter()
            .take_while(|&&i| pooled[i].total_cmp(&value).is_eq())
            .count();
        for &i in &order[start..start + run] {
            ranks[i] = 2 * start + run + 1;
        }
        ties.push(run);
        start += run;
    }
    (ranks, ties)
}

/// How many subsets of size `size` have each (doubled) rank sum.
fn rank_sum_counts(ranks: &[usize], size: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut counts = vec![vec![0.0; most + 1]; size + 1];
    counts[0][0] = 1.0;
    for (used, &rank) in ranks.iter().enumerate() {
        for taken in (1..=size.min(used + 1)).rev() {
            let (fewer, more) = counts.split_at_mut(taken);
            let (fewer, more) = (&fewer[taken - 1], &mut more[0]);
            for sum in rank..=most {
                more[sum] += fewer[sum - rank];
            }
        }
    }
    counts.swap_remove(size)
}

/// The null distribution without ties, made once per pair of sizes: a sweep asks for the same one per case.
pub(super) fn untied(n: usize, m: usize) -> Arc<Vec<f64>> {
    type Tables = RwLock<BTreeMap<(usize, usize), Arc<Vec<f64>>>>;
    static TABLES: LazyLock<Tables> = LazyLock::new(Tables::default);
    if let Some(table) = TABLES.read().ok().and_then(|tables| tables.get(&(n, m)).cloned()) {
        return table;
    }
    let ranks: Vec<usize> = (1..=n + m).map(|rank| 2 * rank).collect();
    let table = Arc::new(rank_sum_counts(&ranks, n));
    if let Ok(mut tables) = TABLES.write() {
        tables.insert((n, m), Arc::clone(&table));
    }
    table
}

/// The normal approximation, corrected for ties and continuity.
fn normal_p(observed: usize, n: usize, m: usize, ties: &[usize]) -> f64 {
    let total = (n + m) as f64;
    let tied: f64 = ties.iter().map(|&t| (t as f64).powi(3) - t as f64).sum();
    let (n, m) = (n as f64, m as f64);
    let variance = n * m / 12.0 * ((total + 1.0) - tied / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = (observed as f64 / 2.0 - n * (total + 1.0) / 2.0).abs();
    let z = (distance - 0.5).max(0.0) / variance.sqrt();
    (2.0 * upper_tail(z)).min(1.0)
}

/// Probability that a standard normal number exceeds `z ≥ 0` (Abramowitz and Stegun 26.2.17, error below 7.5e-8).
pub(super) fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-z * z / 2.0).exp() / (std::f64::consts::TAU).sqrt() * series
}

/// The `z` with P(normal > z) = `tail`, by bisection: asked for a handful of levels only.
pub(super) fn quantile_of_tail(tail: f64) -> f64 {
    let (mut low, mut high) = (0.0, 10.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if upper_tail(middle) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: &[f64], b: &[f64], p: f64) {
        let test = mann_whitney(a, b).unwrap();
        assert!((test.p - p).abs() < 1e-9, "{} is not {p}", test.p);
        let swapped = mann_whitney(b, a).unwrap();
        assert!((test.p - swapped.p).abs() < 1e-12, "not symmetric");
    }

    #[test]
    fn exact_values_of_small_tables() {
        check(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 2.0 / 20.0);
        check(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0], 2.0 / 252.0);
        // U = 1: of the 20 assignments one has U = 0, one U = 1, and as many at the other end.
        check(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0], 4.0 / 20.0);
        check(&[1.0], &[2.0], 1.0);
    }

    #[test]
    fn ties_take_their_mean_rank() {
        check(&[5.0, 5.0, 5.0], &[5.0, 5.0, 5.0], 1.0);
        // Ranks 1.5 1.5 | 3.5 3.5: of 6 assignments the two extreme ones are as far out.
        check(&[1.0, 1.0], &[2.0, 2.0], 2.0 / 6.0);
    }

    #[test]
    fn the_approximation_meets_the_exact_test() {
        let a: Vec<f64> = (0..20).map(|i| f64::from(i) * 1.3).collect();
        let b: Vec<f64> = (0..20).map(|i| f64::from(i) * 1.7 + 0.1).collect();
        let exact = mann_whitney(&a, &b).unwrap();
        assert!(exact.exact);
        let (ranks, ties) = doubled_midranks(&a, &b);
        let near = normal_p(ranks[..20].iter().sum(), 20, 20, &ties);
        assert!((exact.p - near).abs() < 5e-3, "{} {near}", exact.p);
        assert!(!mann_whitney(&a, &[b.clone(), b].concat()).unwrap().exact);
    }

    #[test]
    fn runs_needed_for_a_level() {
        assert_eq!(runs_needed(0.01, None), Some(5));
        assert_eq!(runs_needed(0.01 / 30.0, None), Some(8));
        assert_eq!(runs_needed(0.01, Some(1)), Some(199));
        assert_eq!(runs_needed(1e-9, Some(1)), None);
    }

    #[test]
    fn normal_tail() {
        assert!((upper_tail(1.959_964) - 0.025).abs() < 1e-6);
        assert!((upper_tail(0.0) - 0.5).abs() < 1e-6);
    }
}
