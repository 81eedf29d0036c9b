//! Rules of the sparse-attention indexer: scores in their visible region, and the order made of them.

use std::fmt;

use ring_runtime::Tensor;

use super::elementwise::{RatioAllclose, allowance};
use super::scan::{Judged, wide};
use super::verdict::{Outcome, TensorVerdict};

/// Largest error that one score may have: max(4·(1e-4 + max(|a|,|e|)/128), floor).
#[derive(Clone, Copy, Debug)]
pub struct HardBound {
    /// Floor of the bound (5e-3 in decode, 7e-3 in prefill).
    pub floor: f64,
}

impl HardBound {
    fn of(self, a: f64, e: f64) -> f64 {
        (4.0 * (1e-4 + a.abs().max(e.abs()) / 128.0)).max(self.floor)
    }
}

/// Scores [tokens, columns]: a tolerance with outliers and a hard bound where a token sees a column, exact elsewhere or not looked at.
#[derive(Clone, Copy, Debug)]
pub struct ScoreRegion {
    /// The tolerance: 1e-4, 1/128, 0.5 % in all specs.
    pub rule: RatioAllclose,
    /// Share of outliers of the tolerance.
    pub ratio: f64,
    /// Bound of every single score.
    pub hard: HardBound,
    /// Rows that are in use; the others must equal the golden exactly.
    pub active: usize,
}

impl ScoreRegion {
    /// The specs' rule with this floor and number of active rows.
    pub const fn new(floor: f64, active: usize) -> Self {
        let ratio = 0.005;
        Self {
            rule: RatioAllclose::new(1e-4, 0.007_812_5, ratio),
            ratio,
            hard: HardBound { floor },
            active,
        }
    }

    /// Compares; a column counts where the golden is not `masked`. Every value of both must be finite.
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor, masked: f32) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let judge = self.rule.judge();
        let (rows, columns) = (actual.dims()[0], actual.len() / actual.dims()[0].max(1));
        let (a, e) = (wide(actual), wide(expected));
        let masked = f64::from(masked);
        verdict.total = 0;
        let mut beyond = None;
        for row in 0..rows {
            for column in 0..columns {
                let at = row * columns + column;
                let (a, e) = (a[at], e[at]);
                if !(a.is_finite() && e.is_finite()) {
                    verdict.nonfinite_actual += u64::from(!a.is_finite());
                    verdict.nonfinite_expected += u64::from(!e.is_finite());
                    verdict.first_row = verdict.first_row.or(Some(row as u64));
                    verdict.point(at as u64, a, e);
                    continue;
                }
                if row >= self.active {
                    if a != e {
                        verdict.mismatched += 1;
                        verdict.point(at as u64, a, e);
                        verdict.mismatch(|| format!("inactive row {row} differs from the golden"));
                    }
                    continue;
                }
                if e == masked {
                    continue;
                }
                verdict.total += 1;
                let Judged { bad, size } = judge(a, e);
                verdict.max_abs_err = verdict.max_abs_err.max(size);
                verdict.mismatched += u64::from(bad);
                if size > self.hard.of(a, e) {
                    beyond = beyond.or(Some((at, a, e)));
                }
            }
        }
        if verdict.nonfinite_actual + verdict.nonfinite_expected > 0 {
            verdict.outcome = if verdict.nonfinite_expected > 0 {
                Outcome::GoldenNan
            } else {
                Outcome::Nan
            };
            verdict.message = format!(
                "illegal values in comparison: {} non-finite in the output, {} in the golden",
                verdict.nonfinite_actual, verdict.nonfinite_expected
            );
        }
        if let Some((at, a, e)) = beyond {
            verdict.point(at as u64, a, e);
            verdict.mismatch(|| format!("score {a} instead of {e}: beyond the hard bound"));
        }
        verdict.allowed = allowance(self.ratio, verdict.total);
        if verdict.mismatched > verdict.allowed {
            let (bad, total, allowed) = (verdict.mismatched, verdict.total, verdict.allowed);
            verdict.mismatch(|| format!("{bad} of {total} visible scores are off, allowed {allowed}"));
        }
        verdict
    }
}

impl fmt::Display for ScoreRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "score_region({}, hard_atol={})", self.rule, self.hard.floor)
    }
}

/// Ordered top-k indices per token: the order may differ from the golden's only among scores too close to call.
#[derive(Clone, Copy, Debug)]
pub struct TopkPairs<'a> {
    /// Error bound of a score.
    pub hard: HardBound,
    /// Visible columns of each token; 0 for an inactive one. Length: tokens.
    pub visible: &'a [usize],
    /// Entries of a full list.
    pub k: usize,
    /// Added to a column to make an index.
    pub offset: i64,
}

impl TopkPairs<'_> {
    /// Compares lists [tokens, width] (−1 after the last entry) with the scores [tokens, columns] of both sides.
    pub fn compare(
        &self,
        name: &str,
        actual: &Tensor,
        expected: &Tensor,
        actual_score: &Tensor,
        expected_score: &Tensor,
    ) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let tokens = self.visible.len();
        let width = actual.len() / tokens.max(1);
        let columns = actual_score.len() / tokens.max(1);
        let (a, e) = (wide(actual), wide(expected));
        let (sa, se) = (wide(actual_score), wide(expected_score));
        for t in 0..tokens {
            let scores = Scores {
                actual: &sa[t * columns..][..columns],
                expected: &se[t * columns..][..columns],
                hard: self.hard,
            };
            let (row_a, row_e) = (&a[t * width..][..width], &e[t * width..][..width]);
            if let Err(message) = self.contract(row_e, self.visible[t]) {
                verdict.outcome = Outcome::GoldenNan;
                verdict.message = format!("token {t}: the golden's list breaks the contract: {message}");
                return verdict;
            }
            let outcome = self.contract(row_a, self.visible[t]).and_then(|()| {
                let n = self.visible[t].min(self.k);
                let column = |v: &f64| (*v as i64 - self.offset) as usize;
                let (list_a, list_e): (Vec<_>, Vec<_>) = (
                    row_a[..n].iter().map(column).collect(),
                    row_e[..n].iter().map(column).collect(),
                );
                scores.admit(&list_a, &list_e)
            });
            verdict.mismatched += row_a.iter().zip(row_e).filter(|(a, e)| a != e).count() as u64;
            if let Err(message) = outcome {
                if let Some(i) = row_a.iter().zip(row_e).position(|(a, e)| a != e) {
                    verdict.point((t * width + i) as u64, row_a[i], row_e[i]);
                }
                verdict.mismatch(|| format!("top-k idx mismatch, token {t}: {message}"));
            }
        }
        verdict.allowed = verdict.mismatched;
        verdict
    }

    /// A list is min(k, visible) distinct indices of visible columns, then −1.
    fn contract(&self, row: &[f64], visible: usize) -> Result<(), String> {
        let n = visible.min(self.k);
        let mut seen = vec![false; visible];
        for (i, v) in row.iter().enumerate() {
            if i >= n {
                if *v != -1.0 {
                    return Err(format!("entry {i} is {v}, not −1"));
                }
                continue;
            }
            let column = *v as i64 - self.offset;
            if column < 0 || column >= visible as i64 {
                return Err(format!("entry {i} is {v}, not a visible column"));
            }
            if std::mem::replace(&mut seen[column as usize], true) {
                return Err(format!("index {v} is listed twice"));
            }
        }
        Ok(())
    }
}

struct Scores<'a> {
    actual: &'a [f64],
    expected: &'a [f64],
    hard: HardBound,
}

impl Scores<'_> {
    fn bound(&self, c: usize) -> f64 {
        self.hard.of(self.actual[c], self.expected[c])
    }

    /// Whether the list of the program may stand for the golden's.
    fn admit(&self, actual: &[usize], expected: &[usize]) -> Result<(), String> {
        if actual == expected {
            return Ok(());
        }
        for c in actual
            .iter()
            .zip(expected)
            .filter(|(a, e)| a != e)
            .flat_map(|(a, e)| [*a, *e])
        {
            let error = (self.actual[c] - self.expected[c]).abs();
            if !(error <= self.bound(c)) {
                return Err(format!("column {c} moved and its score is off by {error:e}"));
            }
        }
        for scores in [self.expected, self.actual] {
            // Largest `score − bound` seen so far from the end: a later candidate that beats an earlier one.
            let mut best: Option<usize> = None;
            for &c in actual.iter().rev() {
                if let Some(b) = best
                    && scores[b] - scores[c] > self.bound(b) + self.bound(c)
                {
                    return Err(format!("column {b} stands after the lesser column {c}"));
                }
                if best.is_none_or(|b| scores[c] - self.bound(c) > scores[b] - self.bound(b)) {
                    best = Some(c);
                }
            }
            let omitted = expected.iter().filter(|c| !actual.contains(c));
            for &o in omitted {
                for &added in actual.iter().filter(|c| !expected.contains(c)) {
                    if scores[o] - scores[added] > self.bound(o) + self.bound(added) {
                        return Err(format!("column {o} was left out for the lesser column {added}"));
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for TopkPairs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topk_pairs(k={}, hard_atol={})", self.k, self.hard.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: f32 = -3.402_823_5e38;

    fn list(values: &[i32]) -> Tensor {
        Tensor::from_vec(&[1, values.len()], values.to_vec())
    }

    fn scores(values: &[f32]) -> Tensor {
        Tensor::from_vec(&[1, values.len()], values.to_vec())
    }

    fn topk(actual: &[i32], expected: &[i32], visible: usize) -> Outcome {
        let s = scores(&[1.0, 0.5, 0.501, 0.2, 0.9]);
        let rule = TopkPairs {
            hard: HardBound { floor: 5e-3 },
            visible: &[visible],
            k: 3,
            offset: 0,
        };
        rule.compare("topk", &list(actual), &list(expected), &s, &s).outcome
    }

    #[test]
    fn lists_may_differ_among_close_scores() {
        assert_eq!(topk(&[0, 4, 2, -1], &[0, 4, 2, -1], 5), Outcome::Pass);
        assert_eq!(topk(&[0, 4, 1, -1], &[0, 4, 2, -1], 5), Outcome::Pass, "0.5 for 0.501");
        assert_eq!(
            topk(&[0, 4, 3, -1], &[0, 4, 2, -1], 5),
            Outcome::Mismatch,
            "0.2 for 0.501"
        );
        assert_eq!(topk(&[2, 0, 4, -1], &[0, 4, 2, -1], 5), Outcome::Mismatch, "order");
        assert_eq!(topk(&[0, 0, 2, -1], &[0, 4, 2, -1], 5), Outcome::Mismatch, "twice");
        assert_eq!(topk(&[0, 4, 2, 1], &[0, 4, 2, -1], 5), Outcome::Mismatch, "tail");
        assert_eq!(topk(&[0, 2, 1, -1], &[0, 2, 1, -1], 3), Outcome::Pass);
        assert_eq!(topk(&[0, 1, 2, -1], &[0, 2, 1, -1], 3), Outcome::Pass);
        assert_eq!(topk(&[-1, -1, -1, -1], &[-1, -1, -1, -1], 0), Outcome::Pass);
        assert_eq!(
            topk(&[0, 1, 2, -1], &[7, 4, 2, -1], 3),
            Outcome::GoldenNan,
            "broken golden"
        );
    }

    #[test]
    fn a_wrong_score_does_not_excuse_its_order() {
        let rule = TopkPairs {
            hard: HardBound { floor: 5e-3 },
            visible: &[2],
            k: 2,
            offset: 10,
        };
        let (e, a) = (scores(&[0.9, 0.1]), scores(&[0.0, 0.1]));
        assert!(rule.compare("t", &list(&[10, 11]), &list(&[10, 11]), &e, &e).passed());
        let v = rule.compare("t", &list(&[11, 10]), &list(&[10, 11]), &a, &e);
        assert_eq!(v.outcome, Outcome::Mismatch);
    }

    #[test]
    fn scores_count_where_they_are_visible() {
        let rule = ScoreRegion::new(5e-3, 1);
        let e = scores(&[1.0, 2.0, MASK]);
        assert!(rule.compare("s", &scores(&[1.0, 2.0, 0.0]), &e, MASK).passed());
        assert_eq!(
            rule.compare("s", &scores(&[1.02, 2.0, 0.0]), &e, MASK).outcome,
            Outcome::Mismatch
        );
        assert_eq!(
            rule.compare("s", &scores(&[1.0, 2.0, f32::NAN]), &e, MASK).outcome,
            Outcome::Nan
        );
        let inactive = ScoreRegion::new(5e-3, 0);
        assert_eq!(
            inactive.compare("s", &scores(&[1.0, 2.0, 0.0]), &e, MASK).outcome,
            Outcome::Mismatch
        );
    }
}
