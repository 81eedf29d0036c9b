//! Every rule at its edges, and with values that are no numbers.

use super::valid::allowance;
use super::{Allclose, Exact, RatioAllclose, RatioReldiff, Tail};
use crate::compare::{Mismatch, Outcome};
use proptest::prelude::*;
use ring_runtime::Tensor;

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
        Some(Mismatch {
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
