//! Rows of experts, of which each expert received a number of its own.

use std::fmt;

use ring_runtime::Tensor;

use super::elementwise::RatioReldiff;
use super::scan::{Judged, Rows, scan};
use super::verdict::TensorVerdict;

/// A rule for the rows that experts received; all others must be exactly the golden's. Finite everywhere.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedRows<'a> {
    /// Rule of the received rows, all together.
    pub rule: RatioReldiff,
    /// Rows of each expert.
    pub count: &'a [usize],
}

impl ReceivedRows<'_> {
    /// Compares [experts, most, n].
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let (experts, most) = (actual.dims()[0], actual.dims()[1]);
        assert_eq!(experts, self.count.len(), "a count for each expert");
        if let Some((expert, count)) = self.count.iter().enumerate().find(|(_, count)| **count > most) {
            verdict.mismatch(|| format!("expert {expert} received {count} rows of {most}"));
            return verdict;
        }
        let (received, rest): (Vec<_>, Vec<_>) =
            (0..experts * most).partition(|row| row % most < self.count[row / most]);
        let rest = scan(actual, expected, &Rows::Listed(rest), |a, e| Judged {
            bad: a != e,
            size: (a - e).abs(),
        });
        let found = scan(actual, expected, &Rows::Listed(received), self.rule.judge());
        found.explain(&mut verdict);
        rest.explain(&mut verdict);
        self.rule.settle(&mut verdict, &found);
        verdict.total = found.total + rest.total;
        if rest.bad > 0 {
            verdict.mismatch(|| format!("{} values differ in rows that nobody received", rest.bad));
        }
        verdict
    }
}

impl fmt::Display for ReceivedRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "received_rows({}, equal_tail)", self.rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Outcome;

    /// Two experts of two rows, one element each; the first expert received one row, the second two.
    fn check(values: [f32; 4]) -> Outcome {
        let tensor = |values: [f32; 4]| Tensor::from_vec(&[2, 2, 1], values.to_vec());
        let rule = ReceivedRows {
            rule: RatioReldiff::new(2e-3, 0.01),
            count: &[1, 2],
        };
        rule.compare("y", &tensor(values), &tensor([1.0, 0.0, 2.0, 3.0]))
            .outcome
    }

    #[test]
    fn each_expert_has_its_own_tail() {
        assert_eq!(check([1.001, 0.0, 2.0, 3.001]), Outcome::Pass);
        assert_eq!(check([1.1, 0.0, 2.0, 3.0]), Outcome::Mismatch);
        assert_eq!(check([1.0, 1e-6, 2.0, 3.0]), Outcome::Mismatch, "not received");
        assert_eq!(check([1.0, f32::NAN, 2.0, 3.0]), Outcome::Nan, "not received");
        assert_eq!(check([1.0, 0.0, f32::INFINITY, 3.0]), Outcome::Nan);
    }

    #[test]
    fn a_count_beyond_the_rows_fails() {
        let tensor = Tensor::from_vec(&[1, 1, 1], vec![0f32]);
        let rule = ReceivedRows {
            rule: RatioReldiff::new(2e-3, 0.01),
            count: &[2],
        };
        assert_eq!(
            rule.compare("y", &tensor, &tensor.snapshot()).outcome,
            Outcome::Mismatch
        );
    }
}
