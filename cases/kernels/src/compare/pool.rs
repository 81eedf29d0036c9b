//! Paged pools: the rows that a mapping names get a tolerance, all others must be as they were.

use std::fmt;

use ring_runtime::Tensor;

use super::elementwise::{RatioAllclose, RatioReldiff};
use super::scan::{Judged, Rows, row_width, scan};
use super::verdict::TensorVerdict;

/// What holds for the named rows.
#[derive(Clone, Copy, Debug)]
pub enum PoolRule {
    /// Absolute and relative tolerance with a share of outliers.
    Allclose(RatioAllclose),
    /// Relative difference.
    Reldiff(RatioReldiff),
}

/// Which rows must be finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FiniteRule {
    /// All rows of both pools.
    Everywhere,
    /// The named rows; others may hold an infinity (a state that starts at −∞) as long as it stays.
    Mapped,
}

/// A pool under one or several slot mappings.
///
/// The pool is seen as rows of its last axis. With `ranks` > 1 its rows are split evenly over the
/// ranks, and so is each mapping: a slot counts within its rank. A mapping is wrong when an entry is
/// below −1, out of range, or names a row twice (mappings of one pool are disjoint).
#[derive(Clone, Copy, Debug)]
pub struct MappedPool {
    rule: PoolRule,
    finite: FiniteRule,
    ranks: usize,
    active: Option<usize>,
}

impl MappedPool {
    /// One rank, every entry of the mapping active.
    pub const fn new(rule: PoolRule, finite: FiniteRule) -> Self {
        Self {
            rule,
            finite,
            ranks: 1,
            active: None,
        }
    }

    /// Shorthand: absolute and relative tolerance on the named rows.
    pub const fn allclose(atol: f64, rtol: f64, ratio: f64, finite: FiniteRule) -> Self {
        Self::new(PoolRule::Allclose(RatioAllclose::new(atol, rtol, ratio)), finite)
    }

    /// Pool and mappings have a leading axis of this many ranks.
    #[must_use]
    pub const fn ranks(mut self, ranks: usize) -> Self {
        self.ranks = ranks;
        self
    }

    /// Entries from `count` on (of each rank) must be −1.
    #[must_use]
    pub const fn active(mut self, count: usize) -> Self {
        self.active = Some(count);
        self
    }

    /// The named rows, ascending, or what is wrong with the mapping.
    fn named(&self, rows: usize, mappings: &[&[i64]]) -> Result<Vec<usize>, String> {
        let per_rank = rows / self.ranks;
        let mut named = Vec::new();
        for (m, mapping) in mappings.iter().enumerate() {
            let entries = mapping.len() / self.ranks;
            for (i, &slot) in mapping.iter().enumerate() {
                let (rank, entry) = (i / entries, i % entries);
                if slot < -1 || slot >= per_rank as i64 {
                    return Err(format!("mapping {m} entry {i} names row {slot} of {per_rank}"));
                }
                if slot >= 0 && self.active.is_some_and(|active| entry >= active) {
                    return Err(format!("mapping {m} entry {i} is inactive but names row {slot}"));
                }
                if slot >= 0 {
                    named.push(rank * per_rank + slot as usize);
                }
            }
        }
        named.sort_unstable();
        match named.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("row {} is named twice", pair[0])),
            None => Ok(named),
        }
    }

    /// Compares; `mappings` hold one slot per token, −1 for none.
    pub fn compare(&self, name: &str, actual: &Tensor, expected: &Tensor, mappings: &[&[i64]]) -> TensorVerdict {
        let mut verdict = TensorVerdict::start(name, actual, self);
        let rows = actual.len() / row_width(actual).max(1);
        let named = match self.named(rows, mappings) {
            Ok(named) => named,
            Err(message) => {
                verdict.mismatch(|| format!("mapping of `{name}` is wrong: {message}"));
                return verdict;
            }
        };
        let mut is_named = vec![false; rows];
        for &row in &named {
            is_named[row] = true;
        }
        let others: Vec<usize> = (0..rows).filter(|&row| !is_named[row]).collect();

        let found = match self.rule {
            PoolRule::Allclose(rule) => scan(actual, expected, &Rows::Listed(named), rule.judge()),
            PoolRule::Reldiff(rule) => scan(actual, expected, &Rows::Listed(named), rule.judge()),
        };
        found.explain(&mut verdict);
        let judge = |a: f64, e: f64| Judged {
            bad: a.to_bits() != e.to_bits(),
            size: (a - e).abs(),
        };
        let mut rest = scan(actual, expected, &Rows::Listed(others), judge);
        let changed = (rest.bad, rest.first);
        if self.finite == FiniteRule::Mapped {
            (
                rest.nonfinite_actual,
                rest.nonfinite_expected,
                rest.nonfinite_rows,
                rest.all_nan_rows,
            ) = (0, 0, 0, 0);
            (rest.first_nonfinite, rest.first_row) = (None, None);
            (rest.max_abs, rest.max_rel) = (0.0, 0.0);
        }
        rest.explain(&mut verdict);
        verdict.total = found.total;
        if let (bad @ 1.., Some((flat, a, e))) = changed {
            // The row that should not have moved is the better pointer than an outlier within the tolerance.
            if verdict.nonfinite_actual + verdict.nonfinite_expected == 0 {
                verdict.first = None;
                verdict.point(flat, a, e);
            }
            let row = flat as usize / row_width(actual);
            verdict.mismatch(|| format!("unmapped physical row {row} of `{name}` changed ({bad} values in all)"));
        }
        match self.rule {
            PoolRule::Allclose(rule) => rule.settle(&mut verdict, &found),
            PoolRule::Reldiff(rule) => rule.settle(&mut verdict, &found),
        }
        verdict
    }
}

impl fmt::Display for MappedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            PoolRule::Allclose(rule) => write!(f, "mapped_pool({rule}")?,
            PoolRule::Reldiff(rule) => write!(f, "mapped_pool({rule}")?,
        }
        f.write_str("; other rows equal)")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    const RULE: MappedPool = MappedPool::allclose(0.1, 0.0, 0.0, FiniteRule::Everywhere);
    const INF: f32 = f32::INFINITY;

    fn pool(values: [f32; 8]) -> Tensor {
        Tensor::from_vec(&[2, 2, 1, 2], values.to_vec())
    }

    #[track_caller]
    fn check(rule: MappedPool, actual: [f32; 8], expected: [f32; 8], slots: &[i64], outcome: Outcome) -> TensorVerdict {
        let v = rule.compare("pool", &pool(actual), &pool(expected), &[slots]);
        assert_eq!(v.outcome, outcome, "{v:?}");
        v
    }

    #[test]
    fn named_rows_have_a_tolerance_and_others_none() {
        let e = [0., 0., 1., 1., 2., 2., 3., 3.];
        check(RULE, [0., 0., 1.05, 1., 2., 2., 3., 3.], e, &[1, -1], Outcome::Pass);
        check(RULE, [0., 0., 1.5, 1., 2., 2., 3., 3.], e, &[1, -1], Outcome::Mismatch);
        let v = check(
            RULE,
            [0., 0., 1., 1., 2.001, 2., 3., 3.],
            e,
            &[1, -1],
            Outcome::Mismatch,
        );
        assert_eq!(v.first.unwrap().index, [1, 0, 0, 0]);
        assert!(v.message.contains("unmapped physical row 2"), "{}", v.message);
    }

    #[test]
    fn wrong_mappings_fail() {
        let e = [0.; 8];
        for slots in [&[4i64, -1][..], &[-2, 0], &[1, 1]] {
            let v = check(RULE, e, e, slots, Outcome::Mismatch);
            assert!(v.message.contains("mapping"), "{}", v.message);
        }
        check(RULE.active(1), e, e, &[2, 3], Outcome::Mismatch);
        check(RULE.active(1), e, e, &[2, -1], Outcome::Pass);
        let v = RULE.compare("pool", &pool(e), &pool(e), &[&[0, 1], &[1]]);
        assert_eq!(v.outcome, Outcome::Mismatch);
    }

    #[test]
    fn ranks_count_their_own_rows() {
        let mut a = [0.; 8];
        a[4] = 0.05;
        // Row 2 is row 0 of rank 1.
        check(RULE.ranks(2), a, [0.; 8], &[-1, 0], Outcome::Pass);
        check(RULE.ranks(2), a, [0.; 8], &[0, -1], Outcome::Mismatch);
        check(RULE.ranks(2), a, [0.; 8], &[-1, 2], Outcome::Mismatch);
    }

    #[test]
    fn infinities_may_stay_in_unnamed_rows_only_where_the_rule_says_so() {
        let p = [-INF, 0., 1., 1., 0., 0., 0., 0.];
        let mapped = MappedPool::allclose(0.1, 0.0, 0.0, FiniteRule::Mapped);
        check(mapped, p, p, &[1], Outcome::Pass);
        check(RULE, p, p, &[1], Outcome::GoldenNan);
        check(mapped, p, p, &[0], Outcome::GoldenNan);
        check(
            mapped,
            [f32::NAN, 0., 1., 1., 0., 0., 0., 0.],
            p,
            &[1],
            Outcome::Mismatch,
        );
        check(mapped, [-INF, 0., f32::NAN, 1., 0., 0., 0., 0.], p, &[1], Outcome::Nan);
    }
}
