//! Relative difference with a floor.

use std::fmt;

use ring_runtime::Tensor;

use super::valid::{Tail, Valid, allowance, display, judge_valid};
use crate::compare::scan::{Judged, Rows, Scan, scan};
use crate::compare::verdict::TensorVerdict;

/// Relative difference with an absolute floor.
///
/// With d = |a − e|: r = d when d < thd, else d / (max(|a|, |e|, 2⁻¹⁴/thd) + 1e-9). An element is bad
/// when r > thd; passes while at most round(pct · total) are and every bad r is below the hard limit.
#[derive(Clone, Copy, Debug)]
pub struct RatioReldiff {
    thd: f64,
    pct: f64,
    hard: f64,
    max_abs: f64,
    valid: Option<Valid>,
}

impl RatioReldiff {
    /// The rule over every element, without hard limits.
    pub const fn new(thd: f64, pct: f64) -> Self {
        Self {
            thd,
            pct,
            hard: f64::INFINITY,
            max_abs: f64::INFINITY,
            valid: None,
        }
    }

    /// Every bad r must be below `limit`.
    #[must_use]
    pub fn hard_limit(mut self, limit: f64) -> Self {
        self.hard = limit;
        self
    }

    /// Every |a − e| must be at most `limit`.
    #[must_use]
    pub fn abs_cap(mut self, limit: f64) -> Self {
        self.max_abs = limit;
        self
    }

    /// Looks at `0..rows` of `axis` only.
    #[must_use]
    pub fn valid_rows(mut self, rows: usize, axis: usize, tail: Tail) -> Self {
        self.valid = Some(Valid { axis, rows, tail });
        self
    }

    /// Judges one pair.
    pub(in crate::compare) fn judge(&self) -> impl Fn(f64, f64) -> Judged + Sync + use<> {
        let thd = self.thd;
        let floor = 2f64.powi(-14) / thd;
        move |a: f64, e: f64| {
            let d = (a - e).abs();
            let r = if d < thd {
                d
            } else {
                d / (a.abs().max(e.abs()).max(floor) + 1e-9)
            };
            Judged {
                bad: !(r <= thd),
                size: r,
            }
        }
    }

    /// Fails `verdict` when `found` is outside of the rule.
    pub(in crate::compare) fn settle(&self, verdict: &mut TensorVerdict, found: &Scan) {
        verdict.allowed = allowance(self.pct, found.total);
        if found.bad > verdict.allowed {
            verdict.mismatch(|| {
                format!(
                    "ratio_reldiff fail: error_count={}/{} (allowed {}), worst rdiff={:e}",
                    found.bad,
                    found.total,
                    allowance(self.pct, found.total),
                    found.worst
                )
            });
        }
        if found.bad > 0 && found.worst >= self.hard {
            verdict.mismatch(|| {
                format!(
                    "ratio_reldiff fail: worst rdiff={:e} >= max_diff_hd={}",
                    found.worst, self.hard
                )
            });
        }
        if !(found.max_abs <= self.max_abs) {
            verdict.mismatch(|| format!("max abs diff={:e} > {}", found.max_abs, self.max_abs));
        }
    }

    /// Compares.
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let found = judge_valid(&mut verdict, actual, expected, self.valid, self.judge());
        self.settle(&mut verdict, &found);
        verdict
    }

    /// Compares the first `rows` of `axis` and the rest of it each by itself, so that one cannot hide behind the other.
    pub fn compare_partition(
        &self,
        name: &str,
        actual: &Tensor,
        expected: &Tensor,
        rows: usize,
        axis: usize,
    ) -> TensorVerdict {
        let rule = format!("token_partition({self}, rows={rows}, axis={axis})");
        let mut verdict = TensorVerdict::start(name, actual, &rule);
        let (within, beyond) = Valid {
            axis,
            rows,
            tail: Tail::Free,
        }
        .split(actual);
        let (mut total, mut allowed) = (0, 0);
        for part in [within, beyond] {
            let found = scan(actual, expected, &Rows::Listed(part), self.judge());
            found.explain(&mut verdict);
            self.settle(&mut verdict, &found);
            total += found.total;
            allowed += allowance(self.pct, found.total);
        }
        (verdict.total, verdict.allowed) = (total, allowed);
        verdict
    }
}

impl fmt::Display for RatioReldiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ratio_reldiff(diff_thd={}, pct_thd={}", self.thd, self.pct)?;
        if self.hard.is_finite() {
            write!(f, ", max_diff_hd={}", self.hard)?;
        }
        if self.max_abs.is_finite() {
            write!(f, ", max_abs_diff={}", self.max_abs)?;
        }
        display(self.valid, f)?;
        f.write_str(")")
    }
}
