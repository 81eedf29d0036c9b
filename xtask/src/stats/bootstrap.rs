//! A seeded percentile bootstrap of any statistic.

use super::{SplitMix, quantile};

/// Interval of `confidence` for `statistic` of `values`, from `resamples` draws with replacement.
///
/// The same seed gives the same interval. `None` of fewer than two values, or if the statistic has no answer.
pub fn bootstrap_interval(
    values: &[f64],
    statistic: impl Fn(&[f64]) -> Option<f64>,
    confidence: f64,
    resamples: usize,
    seed: u64,
) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let mut rng = SplitMix::new(seed);
    // Order must not matter: resampling picks by position, so positions are made the same.
    let values = super::sorted(values);
    let mut draws = Vec::with_capacity(resamples);
    let mut sample = vec![0.0; values.len()];
    for _ in 0..resamples {
        for slot in &mut sample {
            *slot = values[rng.below(values.len())];
        }
        draws.push(statistic(&sample)?);
    }
    let tail = (1.0 - confidence) / 2.0;
    Some((quantile(&draws, tail)?, quantile(&draws, 1.0 - tail)?))
}

#[cfg(test)]
mod tests {
    use super::super::median;
    use super::*;

    #[test]
    fn the_interval_is_seeded_and_holds_the_median() {
        let values: Vec<f64> = (1..=30).map(f64::from).collect();
        let (low, high) = bootstrap_interval(&values, median, 0.95, 500, 1).unwrap();
        assert!(low < 15.5 && 15.5 < high && low > 5.0 && high < 26.0);
        assert_eq!(bootstrap_interval(&values, median, 0.95, 500, 1), Some((low, high)));
        let mut turned = values.clone();
        turned.reverse();
        assert_eq!(bootstrap_interval(&turned, median, 0.95, 500, 1), Some((low, high)));
        assert_eq!(bootstrap_interval(&[1.0], median, 0.95, 500, 1), None);
    }
}
