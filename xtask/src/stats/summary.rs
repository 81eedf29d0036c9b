//! Median, quantiles and the median absolute deviation.

/// A sorted copy, by `total_cmp`.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// The middle value, or the mean of the two middle ones; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The `q` quantile (0 to 1) with linear interpolation between order statistics (type 7); `None` of nothing.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let values = sorted(values);
    let last = values.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    // Halves are added rather than the difference scaled, so that the median is the same from both ends.
    let weight = at - low as f64;
    Some(values[low] * (1.0 - weight) + values[high] * weight)
}

/// Median absolute deviation from the median, unscaled; `None` of nothing.
///
/// Times 1.4826 it estimates the standard deviation of normal numbers.
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let deviations: Vec<f64> = values.iter().map(|value| (value - centre).abs()).collect();
    median(&deviations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics_of_small_sets() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[3.0, 1.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.25), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 1.0), Some(2.0));
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
        assert_eq!(mad(&[5.0]), Some(0.0));
    }
}
