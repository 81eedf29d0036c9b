//! Absolute and relative tolerance, with and without outliers, and equality.

use std::fmt;

use ring_runtime::Tensor;

use super::valid::{Tail, Valid, allowance, display, judge_valid};
use crate::compare::scan::{Judged, Scan};
use crate::compare::verdict::TensorVerdict;

/// An element is bad when |a − e| > atol + rtol·|e|; passes while at most round(ratio · total) are.
#[derive(Clone, Copy, Debug)]
pub struct RatioAllclose {
    atol: f64,
    rtol: f64,
    ratio: f64,
    valid: Option<Valid>,
}

impl RatioAllclose {
    /// The rule over every element.
    pub const fn new(atol: f64, rtol: f64, ratio: f64) -> Self {
        Self {
            atol,
            rtol,
            ratio,
            valid: None,
        }
    }

    /// Looks at `0..rows` of `axis` only.
    #[must_use]
    pub fn valid_rows(mut self, rows: usize, axis: usize, tail: Tail) -> Self {
        self.valid = Some(Valid { axis, rows, tail });
        self
    }

    /// Judges one pair.
    pub(in crate::compare) fn judge(&self) -> impl Fn(f64, f64) -> Judged + Sync + use<> {
        let (atol, rtol) = (self.atol, self.rtol);
        // Written so that a NaN is bad.
        move |a, e| Judged {
            bad: !((a - e).abs() <= atol + rtol * e.abs()),
            size: (a - e).abs(),
        }
    }

    /// Fails `verdict` when more than the allowance of `found` is bad.
    pub(in crate::compare) fn settle(&self, verdict: &mut TensorVerdict, found: &Scan) {
        verdict.allowed = allowance(self.ratio, found.total);
        if found.bad > verdict.allowed {
            verdict.mismatch(|| {
                format!(
                    "ratio_allclose fail: error_count={}/{} (ratio={:.4}%, allowed<={:.4}%), max abs diff={:e}",
                    found.bad,
                    found.total,
                    100.0 * found.bad as f64 / found.total as f64,
                    100.0 * self.ratio,
                    found.max_abs
                )
            });
        }
    }

    /// Compares.
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let found = judge_valid(&mut verdict, actual, expected, self.valid, self.judge());
        self.settle(&mut verdict, &found);
        verdict
    }
}

impl fmt::Display for RatioAllclose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ratio_allclose(atol={}, rtol={}, ratio<={}",
            self.atol, self.rtol, self.ratio
        )?;
        display(self.valid, f)?;
        f.write_str(")")
    }
}

/// Every element within |a − e| ≤ atol + rtol·|e|.
#[derive(Clone, Copy, Debug)]
pub struct Allclose {
    atol: f64,
    rtol: f64,
}

impl Allclose {
    /// The rule over every element.
    pub const fn new(atol: f64, rtol: f64) -> Self {
        Self { atol, rtol }
    }

    /// Compares.
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let found = judge_valid(
            &mut verdict,
            actual,
            expected,
            None,
            RatioAllclose::new(self.atol, self.rtol, 0.0).judge(),
        );
        if found.bad > 0 {
            verdict.mismatch(|| {
                format!(
                    "Mismatched elements: {}/{}  rtol={} atol={}, max abs diff={:e}",
                    found.bad, found.total, self.rtol, self.atol, found.max_abs
                )
            });
        }
        verdict
    }
}

impl fmt::Display for Allclose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allclose(rtol={}, atol={})", self.rtol, self.atol)
    }
}

/// Every element equal (zeros of both signs are; NaN is equal to nothing).
#[derive(Clone, Copy, Debug)]
pub struct Exact;

impl Exact {
    /// Compares.
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let judge = |a: f64, e: f64| Judged {
            bad: a != e,
            size: (a - e).abs(),
        };
        let found = judge_valid(&mut verdict, actual, expected, None, judge);
        if found.bad > 0 {
            verdict.mismatch(|| format!("{} of {} elements differ", found.bad, found.total));
        }
        verdict
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("exact")
    }
}
