//! Rules for quantised rows: int8 codes and their scales.

use std::fmt;

use ring_runtime::Tensor;

use super::elementwise::allowance;
use super::scan::{Judged, Rows, Values, row_width, scan};
use super::verdict::TensorVerdict;

/// int8 codes: each within `step` of the golden, few changed in all and in every row.
#[derive(Clone, Copy, Debug)]
pub struct Int8Codes {
    step: f64,
    changed: f64,
    changed_per_row: f64,
}

impl Int8Codes {
    /// `changed` is a share of all codes (rounded), `changed_per_row` of a row (cut off).
    pub const fn new(step: u8, changed: f64, changed_per_row: f64) -> Self {
        Self {
            step: step as f64,
            changed,
            changed_per_row,
        }
    }

    /// Compares.
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let found = scan(actual, expected, &Rows::All, |a, e| Judged {
            bad: a != e,
            size: (a - e).abs(),
        });
        found.explain(&mut verdict);
        verdict.allowed = allowance(self.changed, found.total);
        if found.worst > self.step {
            verdict.mismatch(|| format!("a code differs by {}, more than {}", found.worst, self.step));
        }
        if found.bad > verdict.allowed {
            let allowed = verdict.allowed;
            verdict.mismatch(|| format!("{} of {} codes changed, allowed {allowed}", found.bad, found.total));
        }
        let width = row_width(actual).max(1);
        let per_row = (self.changed_per_row * width as f64) as usize;
        let (a, e) = (Values::of(actual).slice().all(), Values::of(expected).slice().all());
        for (row, (a, e)) in a.chunks(width).zip(e.chunks(width)).enumerate() {
            let changed = a.iter().zip(e).filter(|(a, e)| a != e).count();
            if changed > per_row {
                verdict.mismatch(|| format!("{changed} of {width} codes of row {row} changed, allowed {per_row}"));
                break;
            }
        }
        verdict
    }
}

impl fmt::Display for Int8Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "quantized_codes(step<={}, changed<={}, per_row<={})",
            self.step, self.changed, self.changed_per_row
        )
    }
}

/// Scales of quantised rows: finite, positive, within tolerance and never beyond twice or half the golden.
#[derive(Clone, Copy, Debug)]
pub struct QrScale {
    atol: f64,
    rtol: f64,
}

impl QrScale {
    /// Every element within |a − e| ≤ atol + rtol·|e|.
    pub const fn new(atol: f64, rtol: f64) -> Self {
        Self { atol, rtol }
    }

    /// Compares.
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let (atol, rtol) = (self.atol, self.rtol);
        let found = scan(actual, expected, &Rows::All, |a, e| {
            let close = (a - e).abs() <= atol + rtol * e.abs();
            Judged {
                bad: !(a > 0.0 && close && a <= 2.0 * e && e <= 2.0 * a),
                size: (a - e).abs(),
            }
        });
        found.explain(&mut verdict);
        if found.bad > 0 {
            verdict.mismatch(|| format!("{} of {} scales are not positive or off", found.bad, found.total));
        }
        verdict
    }
}

impl fmt::Display for QrScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qr_scale(atol={}, rtol={})", self.atol, self.rtol)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    fn codes(values: Vec<i8>) -> Tensor {
        Tensor::from_vec(&[10, values.len() / 10], values)
    }

    #[test]
    fn codes_may_step_by_one_here_and_there() {
        let rule = Int8Codes::new(1, 0.005, 0.01);
        let e = codes(vec![5; 2000]);
        let with = |changes: &[(usize, i8)]| {
            let mut a = vec![5i8; 2000];
            for &(i, v) in changes {
                a[i] = v;
            }
            rule.compare("qr", &codes(a), &e)
        };
        assert!(with(&[(0, 6), (300, 4)]).passed());
        assert_eq!(with(&[(0, 7)]).outcome, Outcome::Mismatch);
        // Two of a row's 200 may change, three may not.
        assert!(with(&[(0, 6), (1, 6)]).passed());
        let v = with(&[(0, 6), (1, 6), (2, 6)]);
        assert!(v.message.contains("row 0"), "{}", v.message);
        let many: Vec<_> = (0..11).map(|i| (i % 10 * 200 + i / 10, 4)).collect();
        assert!(with(&many).message.contains("11 of 2000"), "{}", with(&many).message);
    }

    #[test]
    fn scales_are_positive_and_close() {
        let rule = QrScale::new(1.0, 0.0);
        let one = |a: f32, e: f32| {
            rule.compare(
                "s",
                &Tensor::from_vec(&[1, 1], vec![a]),
                &Tensor::from_vec(&[1, 1], vec![e]),
            )
            .outcome
        };
        assert_eq!(one(1.5, 1.0), Outcome::Pass);
        assert_eq!(one(0.9, 0.3), Outcome::Mismatch, "three times the golden");
        assert_eq!(one(0.0, 0.0), Outcome::Mismatch);
        assert_eq!(one(-0.1, 0.1), Outcome::Mismatch);
        assert_eq!(one(f32::INFINITY, 1.0), Outcome::Nan);
    }
}
