//! Rules of the language-model head.

use std::fmt;

use ring_runtime::Tensor;

use super::scan::{Judged, Rows, scan, wide};
use super::verdict::TensorVerdict;

/// Sampled ids, one padded row per row of logits: the argmax (first occurrence) of the *program's* logits, then zeros.
#[derive(Clone, Copy, Debug)]
pub struct SampledIds;

impl SampledIds {
    /// Index of the largest value; of equal ones the first.
    fn argmax(row: &[f64]) -> usize {
        row.iter()
            .enumerate()
            .fold(0, |best, (i, v)| if *v > row[best] { i } else { best })
    }

    /// Checks `actual` [rows, padded] against `logits` [rows, vocabulary], both of the program.
    pub fn compare(&self, name: &str, actual: &Tensor, logits: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let vocabulary = logits.dims()[logits.rank() - 1];
        let padded = actual.dims()[actual.rank() - 1];
        let logits = wide(logits);
        assert_eq!(
            actual.len() / padded,
            logits.len() / vocabulary,
            "`{name}` has a row per row of logits"
        );
        let expected = logits
            .chunks(vocabulary)
            .flat_map(|row| std::iter::once(Self::argmax(row) as f64).chain(std::iter::repeat_n(0.0, padded - 1)));
        for (i, (a, e)) in wide(actual).into_iter().zip(expected).enumerate() {
            if a != e {
                verdict.mismatched += 1;
                verdict.point(i as u64, a, e);
                verdict.mismatch(|| format!("id {i} is {a}, the largest logit is at {e}"));
            }
        }
        verdict
    }
}

impl fmt::Display for SampledIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("argmax of the program's logits")
    }
}

/// Direction and length of the whole tensor: cosine ≥ `cosine` and ‖a − e‖ / ‖e‖ ≤ `relative_l2`.
#[derive(Clone, Copy, Debug)]
pub struct VectorDistance {
    /// Least cosine of the two.
    pub cosine: f64,
    /// Largest relative distance.
    pub relative_l2: f64,
}

impl VectorDistance {
    /// Compares.
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        scan(actual, expected, &Rows::All, |_, _| Judged { bad: false, size: 0.0 }).explain(&mut verdict);
        let (a, e) = (wide(actual), wide(expected));
        let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
        let distance = a.iter().zip(&e).map(|(a, e)| (a - e) * (a - e)).sum::<f64>().sqrt();
        let length = dot(&e, &e).sqrt();
        if distance > 0.0 {
            let cosine = dot(&a, &e) / (dot(&a, &a).sqrt() * length);
            let relative = distance / length;
            if !(cosine >= self.cosine && relative <= self.relative_l2) {
                verdict.mismatch(|| format!("cosine {cosine:.6}, relative L2 distance {relative:.6}"));
            }
        }
        verdict
    }
}

impl fmt::Display for VectorDistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cosine>={}, relative_l2<={}", self.cosine, self.relative_l2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    #[test]
    fn the_first_of_equal_logits_is_sampled() {
        let logits = Tensor::from_vec(&[2, 3], vec![1f32, 5.0, 5.0, -1.0, -2.0, -3.0]);
        let check = |ids: Vec<i32>| {
            SampledIds
                .compare("ids", &Tensor::from_vec(&[2, 2], ids), &logits)
                .outcome
        };
        assert_eq!(check(vec![1, 0, 0, 0]), Outcome::Pass);
        assert_eq!(
            check(vec![2, 0, 0, 0]),
            Outcome::Mismatch,
            "the second of two equal ones"
        );
        assert_eq!(check(vec![1, 0, 7, 0]), Outcome::Mismatch, "another id");
        assert_eq!(check(vec![1, 7, 0, 0]), Outcome::Mismatch, "the padding of a row");
    }

    #[test]
    fn distance_is_of_the_whole_vector() {
        let rule = VectorDistance {
            cosine: 0.99,
            relative_l2: 0.1,
        };
        let t = |v: [f32; 2]| Tensor::from_vec(&[2], v.to_vec());
        assert!(rule.compare("l", &t([1.0, 0.05]), &t([1.0, 0.0])).passed());
        assert!(rule.compare("l", &t([0.0, 0.0]), &t([0.0, 0.0])).passed());
        assert_eq!(
            rule.compare("l", &t([1.2, 0.0]), &t([1.0, 0.0])).outcome,
            Outcome::Mismatch
        );
        assert_eq!(
            rule.compare("l", &t([0.0, 1.0]), &t([1.0, 0.0])).outcome,
            Outcome::Mismatch
        );
        assert_eq!(
            rule.compare("l", &t([0.0, 0.0]), &t([1.0, 0.0])).outcome,
            Outcome::Mismatch
        );
        assert_eq!(
            rule.compare("l", &t([f32::NAN, 0.0]), &t([1.0, 0.0])).outcome,
            Outcome::Nan
        );
    }
}
