//! Corrections of p values for a family of tests.

/// Holm's step-down correction, in the order of `raw`: rejecting what is below α keeps the probability
/// of any false rejection in the family at α, whatever the dependence.
pub fn holm(raw: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; raw.len()];
    let mut worst: f64 = 0.0;
    for (step, index) in ascending(raw).into_iter().enumerate() {
        worst = worst.max((raw[index] * (raw.len() - step) as f64).min(1.0));
        adjusted[index] = worst;
    }
    adjusted
}

/// Benjamini and Hochberg's step-up correction, in the order of `raw`: rejecting what is below α keeps
/// the expected share of false rejections at α.
pub fn benjamini_hochberg(raw: &[f64]) -> Vec<f64> {
    let mut adjusted = vec![1.0; raw.len()];
    let mut best: f64 = 1.0;
    for (step, index) in ascending(raw).into_iter().enumerate().rev() {
        best = best.min(raw[index] * raw.len() as f64 / (step + 1) as f64);
        adjusted[index] = best;
    }
    adjusted
}

fn ascending(raw: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..raw.len()).collect();
    order.sort_by(|&i, &j| raw[i].total_cmp(&raw[j]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12, "{got} is not {expected}");
        }
    }

    #[test]
    fn worked_examples() {
        let raw = [0.01, 0.04, 0.03, 0.005];
        check(&holm(&raw), &[0.03, 0.06, 0.06, 0.02]);
        check(&benjamini_hochberg(&raw), &[0.02, 0.04, 0.04, 0.02]);
        check(&holm(&[]), &[]);
        check(&holm(&[0.9, 0.8]), &[1.0, 1.0]);
    }
}
