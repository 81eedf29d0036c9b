//! Transcendental functions and element-wise arithmetic of rows.
//!
//! The functions of one element are branch-free and use no fused operations, so that loops over them
//! vectorise and give the same bits on every machine. `exp` and `ln` are within 0.9 ulp of the exact
//! value over their whole range.

#![expect(clippy::inline_always, reason = "see `vectorised!`")]

use crate::simd::vectorised;

/// `ln 2` in two parts; the product of the first with a binary exponent is exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// Adding and subtracting it rounds to the nearest integer, half to even, and leaves the integer in
/// the low bits: 1.5 · 2²³.
const ROUNDER: f32 = 12_582_912.0;

/// `2^n`, `−126 ≤ n ≤ 127`.
#[inline(always)]
fn exp2i(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `eˣ`: 0 for −∞ and below the least denormal, ∞ on overflow, NaN for NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // At the ends the result is 0 and ∞ already; NaN passes both comparisons.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUNDER;
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUNDER.to_bits() as i32);
    let whole = shifted - ROUNDER;
    let high = x - whole * LN_2[0];
    let low = whole * LN_2[1];
    let r = high - low;
    // What the subtraction rounded away; it matters because r is nearly all of the error.
    let lost = (high - r) - low;
    // (eʳ − 1 − r) / r² on |r| ≤ ln 2 / 2, by its series: the next term is below 2⁻²⁸.
    let mut tail = 1.0 / 40_320.0;
    for c in [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        tail = tail * r + c;
    }
    let e = 1.0 + (r + (r * r * tail + lost));
    // In two factors, each of them representable, so that denormals are rounded once.
    let half = n >> 1;
    e * exp2i(half) * exp2i(n.wrapping_sub(half))
}

/// Natural logarithm: −∞ for ±0, NaN for negative numbers and NaN.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    let denormal = x < f32::MIN_POSITIVE;
    let scaled = if denormal { x * 8_388_608.0 } else { x };
    let offset = if denormal { -23 } else { 0 };
    // Splits off the exponent such that the rest lies in [√½, √2).
    let bits = scaled.to_bits().wrapping_sub(0x3f35_04f3);
    let n = (((bits as i32) >> 23) + offset) as f32;
    let f = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3)) - 1.0;
    // ln(1 + f) = 2 artanh(s), s = f / (2 + f), arranged as f − (f²/2 − s · (f²/2 + rest)).
    let s = f / (2.0 + f);
    let z = s * s;
    let rest = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0))));
    let half = 0.5 * f * f;
    let value = n * LN_2[0] - ((half - (s * (half + rest) + n * LN_2[1])) - f);
    let value = if x == f32::INFINITY { x } else { value };
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    if x < 0.0 || x.is_nan() { f32::NAN } else { value }
}

/// `1 / (e⁻ˣ + 1)`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (exp(-x) + 1.0)
}

/// `x · (1 / (e⁻ˣ + 1))`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

/// `ln(eˣ + 1)`, as `max(max(x, 0) + ln(e^−|x| + 1), m · e^min(x, 0))` with `m = clamp(−x − 10, 0, 1)`.
///
/// The second term takes over for `x < −11`, where the sum in the logarithm has lost the exponential.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    let (up, down) = if x > 0.0 { (x, 0.0) } else { (0.0, x) };
    let usual = up + ln(exp(-x.abs()) + 1.0);
    let m = -x - 10.0;
    let m = if m < 0.0 { 0.0 } else { m };
    let m = if m > 1.0 { 1.0 } else { m };
    let tiny = m * exp(down);
    if tiny > usual { tiny } else { usual }
}

/// `1 / √x`, computed in f64 and rounded to f32 once more: correctly rounded but for rare ties.
#[inline(always)]
pub fn inv_sqrt(x: f32) -> f32 {
    (1.0 / f64::from(x).sqrt()) as f32
}

vectorised! {
    /// `x = eˣ`.
    pub fn exp_row(x: &mut [f32]) {
        for x in x {
            *x = exp(*x);
        }
    }
}

vectorised! {
    /// `x = ln x`.
    pub fn ln_row(x: &mut [f32]) {
        for x in x {
            *x = ln(*x);
        }
    }
}

vectorised! {
    /// `x = sigmoid(x)`.
    pub fn sigmoid_row(x: &mut [f32]) {
        for x in x {
            *x = sigmoid(*x);
        }
    }
}

vectorised! {
    /// `x = silu(x)`.
    pub fn silu_row(x: &mut [f32]) {
        for x in x {
            *x = silu(*x);
        }
    }
}

vectorised! {
    /// `x = √softplus(x)`.
    pub fn sqrt_softplus_row(x: &mut [f32]) {
        for x in x {
            *x = softplus(*x).sqrt();
        }
    }
}

vectorised! {
    /// `x = e^(x − shift)`: the numerators of a softmax.
    pub fn exp_minus(x: &mut [f32], shift: f32) {
        for x in x {
            *x = exp(*x - shift);
        }
    }
}

/// The parts of a softmax that online merging needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softmax {
    /// Largest score.
    pub max: f32,
    /// Sum of `e^(score − max)`, in the order of [`super::reduce::sum`].
    pub sum: f32,
}

/// Replaces scores by `e^(score − max)`; returns the maximum and the sum, both NaN-preserving.
///
/// A row of −∞ only gives NaN, as the formula does; masks are large finite numbers.
pub fn softmax_parts(x: &mut [f32]) -> Softmax {
    let max = super::reduce::max(x);
    exp_minus(x, max);
    Softmax {
        max,
        sum: super::reduce::sum(x),
    }
}

vectorised! {
    /// `x = x · scale + bias`, the product rounded first.
    ///
    /// # Panics
    /// If the lengths differ (as all functions on several rows here).
    pub fn scale_bias(x: &mut [f32], scale: f32, bias: &[f32]) {
        assert_eq!(x.len(), bias.len(), "rows of one length");
        for (x, &b) in x.iter_mut().zip(bias) {
            *x = *x * scale + b;
        }
    }
}

vectorised! {
    /// `x = x + y`.
    pub fn add(x: &mut [f32], y: &[f32]) {
        assert_eq!(x.len(), y.len(), "rows of one length");
        for (x, &y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }
}

vectorised! {
    /// `x = x · y`.
    pub fn mul(x: &mut [f32], y: &[f32]) {
        assert_eq!(x.len(), y.len(), "rows of one length");
        for (x, &y) in x.iter_mut().zip(y) {
            *x *= y;
        }
    }
}

vectorised! {
    /// `x = x · factor`.
    pub fn scale(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }
}

vectorised! {
    /// `x = x / divisor`.
    pub fn divide(x: &mut [f32], divisor: f32) {
        for x in x {
            *x /= divisor;
        }
    }
}

vectorised! {
    /// `x = (x · factor) · y`: a normalised row with its gain.
    pub fn scale_mul(x: &mut [f32], factor: f32, y: &[f32]) {
        assert_eq!(x.len(), y.len(), "rows of one length");
        for (x, &y) in x.iter_mut().zip(y) {
            *x = (*x * factor) * y;
        }
    }
}

vectorised! {
    /// `x = alpha · x + beta · y`, both products rounded: one step of an online softmax merge.
    pub fn blend(x: &mut [f32], alpha: f32, y: &[f32], beta: f32) {
        assert_eq!(x.len(), y.len(), "rows of one length");
        for (x, &y) in x.iter_mut().zip(y) {
            *x = alpha * *x + beta * y;
        }
    }
}

#[cfg(test)]
mod tests;
