//! Rules that judge each element by itself and then count.

use std::fmt;

use ring_runtime::Tensor;

use super::scan::{Judged, Rows, Scan, row_width, scan};
use super::verdict::TensorVerdict;

/// What the rows after the valid ones must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Anything: not looked at.
    Free,
    /// Exactly zero.
    Zero,
    /// Exactly the golden's values.
    Equal,
}

/// The rows of an axis that a rule looks at: `0..rows` of `axis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Valid {
    axis: usize,
    rows: usize,
    tail: Tail,
}

impl Valid {
    /// Last-axis rows within, and those beyond.
    fn split(self, tensor: &Tensor) -> (Vec<usize>, Vec<usize>) {
        let dims = tensor.dims();
        assert!(
            self.axis + 1 < dims.len(),
            "valid rows are counted along an axis before the last"
        );
        let inner = dims[self.axis + 1..dims.len() - 1].iter().product::<usize>();
        (0..tensor.len() / row_width(tensor).max(1)).partition(|row| row / inner % dims[self.axis] < self.rows)
    }
}

impl fmt::Display for Valid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", valid_rows={}, valid_axis={}", self.rows, self.axis)?;
        match self.tail {
            Tail::Free => Ok(()),
            Tail::Zero => write!(f, ", zero_tail"),
            Tail::Equal => write!(f, ", equal_tail"),
        }
    }
}

fn display(valid: Option<Valid>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    valid.map_or(Ok(()), |v| write!(f, "{v}"))
}

/// Scans the valid rows into `verdict`, checks the tail, and hands back what was found among the valid rows.
fn judge_valid(
    verdict: &mut TensorVerdict,
    actual: &Tensor,
    expected: &Tensor,
    valid: Option<Valid>,
    judge: impl Fn(f64, f64) -> Judged + Sync,
) -> Scan {
    let Some(valid) = valid else {
        let found = scan(actual, expected, &Rows::All, judge);
        found.explain(verdict);
        return found;
    };
    let (within, beyond) = valid.split(actual);
    let found = scan(actual, expected, &Rows::Listed(within), judge);
    found.explain(verdict);
    let tail = match valid.tail {
        Tail::Free => return found,
        Tail::Zero => scan(actual, expected, &Rows::Listed(beyond), |a, _| Judged {
            bad: a != 0.0,
            size: a.abs(),
        }),
        Tail::Equal => scan(actual, expected, &Rows::Listed(beyond), |a, e| Judged {
            bad: a != e,
            size: (a - e).abs(),
        }),
    };
    let total = verdict.total;
    tail.explain(verdict);
    verdict.total = total + tail.total;
    if tail.bad > 0 {
        verdict.mismatch(|| match valid.tail {
            Tail::Zero => format!("inactive tail contains {} nonzero values", tail.bad),
            Tail::Free | Tail::Equal => format!("inactive tail differs from the golden in {} values", tail.bad),
        });
    }
    found
}

/// Most elements that may be outside: `ratio · total`, ties to even.
pub(super) fn allowance(ratio: f64, total: u64) -> u64 {
    (ratio * total as f64).round_ties_even() as u64
}

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
    pub(super) fn judge(&self) -> impl Fn(f64, f64) -> Judged + Sync + use<> {
        let (atol, rtol) = (self.atol, self.rtol);
        // Written so that a NaN is bad.
        move |a, e| Judged {
            bad: !((a - e).abs() <= atol + rtol * e.abs()),
            size: (a - e).abs(),
        }
    }

    /// Fails `verdict` when more than the allowance of `found` is bad.
    pub(super) fn settle(&self, verdict: &mut TensorVerdict, found: &Scan) {
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
    pub(super) fn judge(&self) -> impl Fn(f64, f64) -> Judged + Sync + use<> {
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
    pub(super) fn settle(&self, verdict: &mut TensorVerdict, found: &Scan) {
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

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;
    use proptest::prelude::*;

    fn t(rows: usize, values: &[f32]) -> Tensor {
        Tensor::from_vec(&[rows, values.len() / rows.max(1)], values.to_vec())
    }

    const NAN: f32 = f32::NAN;
    const INF: f32 = f32::INFINITY;

    #[test]
    fn tolerance_is_atol_plus_rtol_times_the_golden() {
        let rule = RatioAllclose::new(0.5, 0.25, 0.0);
        let e = t(1, &[2.0, -2.0, 0.0]);
        assert!(rule.compare("x", &t(1, &[3.0, -1.0, 0.5]), &e).passed());
        let v = rule.compare("x", &t(1, &[3.0, -1.0, 0.75]), &e);
        assert_eq!((v.outcome, v.mismatched, v.total), (Outcome::Mismatch, 1, 3));
        assert_eq!(
            v.first,
            Some(super::super::Mismatch {
                index: vec![0, 2],
                actual: 0.75,
                expected: 0.0
            })
        );
    }

    #[test]
    fn the_allowance_rounds_half_to_even() {
        assert_eq!(
            (
                allowance(0.5, 1),
                allowance(0.5, 3),
                allowance(0.005, 100),
                allowance(0.005, 300)
            ),
            (0, 2, 0, 2)
        );
    }

    #[test]
    fn outliers_up_to_the_ratio_pass() {
        let mut a = vec![1f32; 1000];
        a[..5].fill(9.0);
        let e = t(10, &[1f32; 1000]);
        let rule = RatioAllclose::new(1e-4, 1e-2, 0.005);
        assert!(rule.compare("x", &t(10, &a), &e).passed());
        a[5] = 9.0;
        let v = rule.compare("x", &t(10, &a), &e);
        assert_eq!((v.outcome, v.mismatched, v.allowed), (Outcome::Mismatch, 6, 5));
    }

    #[test]
    fn one_nan_fails_any_ratio_and_is_not_a_mismatch() {
        let e = t(4, &[0.0; 8]);
        let a = t(4, &[0.0, 0.0, 0.0, 0.0, NAN, NAN, 0.0, INF]);
        for v in [
            RatioAllclose::new(1e9, 1e9, 1.0).compare("x", &a, &e),
            RatioReldiff::new(1e9, 1.0).compare("x", &a, &e),
            Allclose::new(1e9, 1e9).compare("x", &a, &e),
            Exact.compare("x", &a, &e),
        ] {
            assert_eq!(v.outcome, Outcome::Nan, "{v:?}");
            assert_eq!(
                (v.nonfinite_actual, v.first_row, v.nonfinite_rows, v.all_nan_rows),
                (3, Some(2), 2, 1)
            );
            assert_eq!(v.first.unwrap().index, [2, 0]);
            assert!(v.max_abs_err.is_nan());
        }
    }

    #[test]
    fn a_broken_golden_is_told_apart() {
        for (a, e) in [(0.0, NAN), (NAN, NAN), (INF, INF), (NAN, INF)] {
            let v = RatioAllclose::new(1.0, 1.0, 1.0).compare("x", &t(1, &[a]), &t(1, &[e]));
            assert_eq!(v.outcome, Outcome::GoldenNan, "{a} {e}");
        }
    }

    #[test]
    fn empty_outputs_pass() {
        let empty = Tensor::from_vec(&[0, 4], Vec::<f32>::new());
        assert!(RatioAllclose::new(0.0, 0.0, 0.0).compare("x", &empty, &empty).passed());
        assert!(RatioReldiff::new(1e-3, 0.0).compare("x", &empty, &empty).passed());
    }

    #[test]
    fn the_tail_is_held_to_its_own_rule() {
        let (a, e) = (
            t(3, &[1.0, 1.0, 0.0, 5.0, 0.0, 0.0]),
            t(3, &[1.0, 1.0, 0.0, 5.0, 0.0, 0.0]),
        );
        let rule = RatioReldiff::new(1e-3, 0.0);
        assert!(rule.valid_rows(2, 0, Tail::Zero).compare("x", &a, &e).passed());
        let v = rule.valid_rows(1, 0, Tail::Zero).compare("x", &a, &e);
        assert_eq!((v.outcome, v.first.unwrap().index), (Outcome::Mismatch, vec![1, 1]));
        assert!(rule.valid_rows(1, 0, Tail::Equal).compare("x", &a, &e).passed());
        let b = t(3, &[1.0, 1.0, 0.0, 9.0, 0.0, NAN]);
        assert!(rule.valid_rows(1, 0, Tail::Free).compare("x", &b, &e).passed());
        assert_eq!(
            rule.valid_rows(1, 0, Tail::Zero).compare("x", &b, &e).outcome,
            Outcome::Nan
        );
    }

    #[test]
    fn valid_rows_may_be_of_an_inner_axis() {
        let e = Tensor::from_vec(&[2, 3, 2], vec![0f32; 12]);
        let mut bad = vec![0f32; 12];
        bad[4] = 1.0; // [0, 2, 0]
        bad[11] = 1.0; // [1, 2, 1]
        let a = Tensor::from_vec(&[2, 3, 2], bad);
        let rule = RatioAllclose::new(0.0, 0.0, 0.0);
        assert!(rule.valid_rows(2, 1, Tail::Free).compare("x", &a, &e).passed());
        assert_eq!(rule.valid_rows(3, 1, Tail::Free).compare("x", &a, &e).mismatched, 2);
    }

    #[test]
    fn reldiff_is_absolute_below_the_threshold() {
        let thd = 3e-3;
        let rule = RatioReldiff::new(thd, 0.0);
        let pass = |a, e| rule.compare("x", &t(1, &[a]), &t(1, &[e])).passed();
        assert!(pass(0.0029, 0.0) && pass(1.0029, 1.0) && pass(1000.0, 1002.0));
        assert!(!pass(0.0031, 0.0) && !pass(1000.0, 1004.0));
        // The hard limit needs a bad element at or beyond it.
        let v = RatioReldiff::new(thd, 1.0)
            .hard_limit(1.0)
            .compare("x", &t(1, &[-1.0]), &t(1, &[1.0]));
        assert_eq!(v.outcome, Outcome::Mismatch, "{v:?}");
        let v = RatioReldiff::new(thd, 1.0)
            .abs_cap(0.25)
            .compare("x", &t(1, &[10.3]), &t(1, &[10.0]));
        assert_eq!(v.outcome, Outcome::Mismatch);
    }

    #[test]
    fn partitions_are_counted_apart() {
        // 10 % of 20 elements may be bad: two of ten in the short part may not.
        let mut a = vec![1f32; 20];
        a[18..].fill(2.0);
        let (a, e) = (t(10, &a), t(10, &[1f32; 20]));
        let rule = RatioReldiff::new(5e-3, 0.1);
        assert!(rule.compare("x", &a, &e).passed());
        let v = rule.compare_partition("x", &a, &e, 5, 0);
        assert_eq!((v.outcome, v.mismatched, v.total), (Outcome::Mismatch, 2, 20));
    }

    proptest! {
        #[test]
        fn a_tensor_matches_itself_and_no_count_is_lost(values in prop::collection::vec(-1e6f32..1e6, 1..400), flip in any::<prop::sample::Index>()) {
            let e = t(1, &values);
            prop_assert!(RatioAllclose::new(0.0, 0.0, 0.0).compare("x", &e, &e).passed());
            prop_assert!(RatioReldiff::new(1e-6, 0.0).compare("x", &e, &e).passed());
            prop_assert!(Exact.compare("x", &e, &e).passed());
            let mut other = values.clone();
            let i = flip.index(other.len());
            other[i] += 1.0 + other[i].abs();
            let v = RatioAllclose::new(1e-3, 1e-3, 0.0).compare("x", &t(1, &other), &e);
            prop_assert_eq!((v.outcome, v.mismatched, v.total), (Outcome::Mismatch, 1, values.len() as u64));
            prop_assert_eq!(v.first.unwrap().index[1], i);
        }
    }
}
