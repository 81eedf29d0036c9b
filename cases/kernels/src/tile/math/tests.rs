//! Accuracy against f64 over the whole range, special values, and the element-wise functions.

#![expect(clippy::float_cmp, reason = "the expected values are exact")]

use super::*;
use crate::simd::Path;

type Row = fn(&mut [f32]);
type Of = fn(f32) -> f32;

/// Distance of `got` from the exact `want`, in units of the last place of f32 at `want`.
fn ulps(got: f32, want: f64) -> f64 {
    let exponent = (want.abs().log2().floor() as i32).clamp(-126, 127);
    (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
}

/// Every `step`-th float of both signs.
fn floats(step: usize) -> impl Iterator<Item = f32> {
    (0..=u32::MAX).step_by(step).map(f32::from_bits)
}

/// Largest error of `f` over the floats whose exact value is within the range of f32.
fn worst(step: usize, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    for x in floats(step) {
        let want = exact(f64::from(x));
        if want.is_finite() && want.abs() <= f64::from(f32::MAX) {
            let error = ulps(f(x), want);
            if error.is_nan() || error > worst.0 {
                worst = (error, x);
            }
        }
    }
    worst
}

#[test]
fn exp_is_within_0_9_ulp() {
    let (error, at) = worst(1009, exp, f64::exp);
    assert!(error <= 0.9, "{error} ulp at {at:?}");
}

#[test]
fn exp_of_special_values() {
    for (x, want) in [
        (f32::NEG_INFINITY, 0.0),
        (-1e20, 0.0),
        (f32::MIN, 0.0),
        (-104.0, 0.0),
        (0.0, 1.0),
        (-0.0, 1.0),
        (88.73, f32::INFINITY),
        (f32::MAX, f32::INFINITY),
        (f32::INFINITY, f32::INFINITY),
    ] {
        assert_eq!(exp(x).to_bits(), f32::to_bits(want), "exp({x})");
    }
    assert!(exp(f32::NAN).is_nan() && exp(-f32::NAN).is_nan());
    assert!(exp(88.72).is_finite());
    // The least denormal, and the last argument before zero.
    assert_eq!(exp(-103.97).to_bits(), 1);
}

#[test]
fn ln_is_within_0_9_ulp() {
    let (error, at) = worst(1009, ln, |x| if x > 0.0 { x.ln() } else { f64::NAN });
    assert!(error <= 0.9, "{error} ulp at {at:?}");
}

#[test]
fn ln_of_special_values() {
    assert_eq!(
        [0.0, -0.0, f32::INFINITY].map(ln),
        [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY]
    );
    assert_eq!(ln(1.0).to_bits(), 0);
    assert!(
        [-1.0, f32::NEG_INFINITY, f32::NAN, -f32::NAN]
            .iter()
            .all(|&x| ln(x).is_nan())
    );
}

#[test]
fn gates_follow_their_formulas() {
    let (error, at) = worst(4001, sigmoid, |x| {
        if x > -85.0 { 1.0 / ((-x).exp() + 1.0) } else { f64::NAN }
    });
    assert!(error <= 3.0, "{error} ulp at {at:?}");
    let (error, at) = worst(
        4001,
        silu,
        |x| if x > -85.0 { x / ((-x).exp() + 1.0) } else { f64::NAN },
    );
    assert!(error <= 4.0, "{error} ulp at {at:?}");
    assert_eq!([sigmoid(f32::NEG_INFINITY), sigmoid(f32::INFINITY)], [0.0, 1.0]);
    assert!(sigmoid(f32::NAN).is_nan() && silu(f32::NAN).is_nan() && softplus(f32::NAN).is_nan());
    for i in -3400..3400 {
        let x = i as f32 / 40.0;
        let want = f64::from(x).exp().ln_1p();
        let got = f64::from(softplus(x));
        // Between the two branches, around −11, the sum 1 + eˣ has few bits of eˣ left.
        assert!(
            (got - want).abs() <= 2e-7 * want.max(1.0) && (x > -11.0 || got >= 0.999 * want),
            "{x}: {got} not {want}"
        );
    }
}

#[test]
fn inverse_roots_are_correctly_rounded() {
    let (error, at) = worst(1009, inv_sqrt, |x| if x > 0.0 { 1.0 / x.sqrt() } else { f64::NAN });
    assert!(error <= 0.500_001, "{error} ulp at {at:?}");
}

#[test]
fn rows_give_the_bits_of_elements() {
    let x: Vec<f32> = floats(40_503_001)
        .chain([f32::NEG_INFINITY, f32::INFINITY, 0.0, -0.0])
        .collect();
    let pairs: [(Row, Of); 5] = [
        (exp_row, exp),
        (ln_row, ln),
        (sigmoid_row, sigmoid),
        (silu_row, silu),
        (sqrt_softplus_row, |x| softplus(x).sqrt()),
    ];
    for (i, (row, element)) in pairs.into_iter().enumerate() {
        Path::for_each(|path| {
            let mut got = x.clone();
            row(&mut got);
            for (&x, &got) in x.iter().zip(&got) {
                let want = element(x);
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{path:?} {i}: {x:?}: {got} not {want}"
                );
            }
        });
    }
}

#[test]
fn softmax_of_a_masked_row() {
    Path::for_each(check_softmax);
}

fn check_softmax(_: Path) {
    let mut x = [1.0, 3.0, -3.4e38, 2.0];
    let parts = softmax_parts(&mut x);
    assert_eq!((x[1], x[2], parts.max), (1.0, 0.0, 3.0));
    assert!((f64::from(parts.sum) - (1.0 + (-1f64).exp() + (-2f64).exp())).abs() < 1e-6);
    let mut masked = [f32::MIN; 128];
    assert_eq!(
        softmax_parts(&mut masked),
        Softmax {
            max: f32::MIN,
            sum: 128.0
        }
    );
    assert!(softmax_parts(&mut [1.0, f32::NAN]).sum.is_nan());
}

#[test]
fn element_wise_functions() {
    Path::for_each(check_element_wise);
}

fn check_element_wise(_: Path) {
    let x = [1.5f32, -2.0, 3.0];
    let y = [0.5f32, 4.0, -1.0];
    let apply = |f: &dyn Fn(&mut [f32])| {
        let mut x = x;
        f(&mut x);
        x
    };
    assert_eq!(apply(&|x| add(x, &y)), [2.0, 2.0, 2.0]);
    assert_eq!(apply(&|x| mul(x, &y)), [0.75, -8.0, -3.0]);
    assert_eq!(apply(&|x| scale(x, 2.0)), [3.0, -4.0, 6.0]);
    assert_eq!(apply(&|x| divide(x, 2.0)), [0.75, -1.0, 1.5]);
    assert_eq!(apply(&|x| scale_mul(x, 2.0, &y)), [1.5, -16.0, -6.0]);
    assert_eq!(apply(&|x| scale_bias(x, 2.0, &y)), [3.5, 0.0, 5.0]);
    assert_eq!(apply(&|x| blend(x, 2.0, &y, -1.0)), [2.5, -8.0, 7.0]);
}
