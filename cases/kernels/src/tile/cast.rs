//! Conversions between element types, with the rounding that the specs state.

use half::bf16;

use super::reduce;
use crate::simd::vectorised;

/// Smallest row magnitude that quantisation reckons with: keeps the scale of a zero row finite.
pub const AMAX_FLOOR: f32 = 1e-4;

/// Largest quantised magnitude.
pub const INT8_MAX: f32 = 127.0;

/// Scale of a quantised row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScale {
    /// What values are multiplied with: `127 / amax`.
    pub quant: f32,
    /// What integers are multiplied with: `1 / quant`.
    pub dequant: f32,
}

impl RowScale {
    /// The scale of a row whose largest magnitude is `amax`, floored at [`AMAX_FLOOR`]. NaN stays NaN.
    pub fn of_amax(amax: f32) -> Self {
        // Not `f32::max`, which would drop a NaN.
        let amax = if amax < AMAX_FLOOR { AMAX_FLOOR } else { amax };
        let quant = INT8_MAX / amax;
        Self {
            quant,
            dequant: 1.0 / quant,
        }
    }
}

/// Rounds to bf16, half to even; overflow goes to infinity, NaN stays NaN.
#[inline]
pub fn bf16_rne(x: f32) -> bf16 {
    bf16::from_bits(bf16_bits(x))
}

/// Branch-free, so that loops over it vectorise (`bf16::from_f32` branches on NaN).
#[expect(clippy::inline_always, reason = "see `vectorised!`")]
#[inline(always)]
fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    // The carry of rounding could turn a NaN into infinity or zero; the quiet bit keeps it one.
    let quiet = (bits >> 16) | 0x40;
    (if x.is_nan() { quiet } else { rounded }) as u16
}

/// Rounds to the nearest integer, half to even; saturates, and NaN gives 0.
#[inline]
pub fn rint_i32(x: f32) -> i32 {
    x.round_ties_even() as i32
}

/// `trunc_i8(f16(rint(x · scale)))`.
///
/// The step through f16 is exact up to 2048 and monotonic beyond, and the last step saturates, so it
/// never changes the outcome and is left out. NaN gives 0; its row's scale is NaN then.
#[expect(clippy::inline_always, reason = "see `vectorised!`")]
#[inline(always)]
pub fn quantise(x: f32, scale: f32) -> i8 {
    let y = x * scale;
    let y = if y > 127.0 { 127.0 } else { y };
    let y = if y < -128.0 { -128.0 } else { y };
    let y = if y.is_nan() { 0.0 } else { y };
    // Adding 1.5 · 2²³ rounds half to even and leaves the integer in the low bits. A cast from float
    // saturates as well, but does not vectorise.
    (y + 12_582_912.0).to_bits() as i8
}

vectorised! {
    /// Widens a row exactly.
    ///
    /// # Panics
    /// If the lengths differ (as all functions on two rows here).
    pub fn widen(src: &[bf16], dst: &mut [f32]) {
        assert_eq!(src.len(), dst.len(), "rows of one length");
        for (d, s) in dst.iter_mut().zip(src) {
            *d = f32::from_bits(u32::from(s.to_bits()) << 16);
        }
    }
}

vectorised! {
    /// Rounds a row to bf16; see [`bf16_rne`].
    pub fn narrow(src: &[f32], dst: &mut [bf16]) {
        assert_eq!(src.len(), dst.len(), "rows of one length");
        for (d, &s) in dst.iter_mut().zip(src) {
            *d = bf16::from_bits(bf16_bits(s));
        }
    }
}

vectorised! {
    /// `dst = bf16(src · factor)`, the product rounded to f32 first.
    pub fn narrow_scaled(src: &[f32], factor: f32, dst: &mut [bf16]) {
        assert_eq!(src.len(), dst.len(), "rows of one length");
        for (d, &s) in dst.iter_mut().zip(src) {
            *d = bf16::from_bits(bf16_bits(s * factor));
        }
    }
}

vectorised! {
    /// Quantises a row with a given scale; see [`quantise`].
    pub fn quantise_row(src: &[f32], scale: f32, dst: &mut [i8]) {
        assert_eq!(src.len(), dst.len(), "rows of one length");
        for (d, &s) in dst.iter_mut().zip(src) {
            *d = quantise(s, scale);
        }
    }
}

/// Quantises a row by its own largest magnitude and returns its scale.
pub fn quantise_row_amax(src: &[f32], dst: &mut [i8]) -> RowScale {
    let scale = RowScale::of_amax(reduce::amax(src));
    quantise_row(src, scale.quant, dst);
    scale
}

vectorised! {
    /// `dst = (f32(acc) · row) · column`, in this order: an integer product back in floats.
    pub fn dequantise(acc: &[i32], row: f32, column: &[f32], dst: &mut [f32]) {
        assert!(acc.len() == dst.len() && column.len() == dst.len(), "rows of one length");
        for ((d, &a), &c) in dst.iter_mut().zip(acc).zip(column) {
            *d = (a as f32 * row) * c;
        }
    }
}

vectorised! {
    /// `dst = dst + f32(acc) · row`: one partial of a sum over groups with a scale each.
    pub fn dequantise_add(acc: &[i32], row: f32, dst: &mut [f32]) {
        assert_eq!(acc.len(), dst.len(), "rows of one length");
        for (d, &a) in dst.iter_mut().zip(acc) {
            *d += a as f32 * row;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Path;
    use half::f16;

    /// Every 2⁸-th bit pattern, offset so that low bits vary, and all the ties.
    fn patterns() -> impl Iterator<Item = f32> {
        let sparse = (0..1u32 << 24).map(|i| f32::from_bits((i << 8) | (i.wrapping_mul(0x9e37) & 0xff)));
        let ties =
            (0..=u32::from(u16::MAX)).flat_map(|h| [0x7fff, 0x8000, 0x8001].map(|low| f32::from_bits((h << 16) | low)));
        sparse.chain(ties)
    }

    #[test]
    fn bf16_rounds_as_the_reference_does() {
        for x in patterns() {
            let (got, want) = (bf16_rne(x), bf16::from_f32(x));
            assert_eq!(got.is_nan(), x.is_nan(), "{x:?}");
            assert!(
                got.to_bits() == want.to_bits() || x.is_nan(),
                "{x:?}: {got:?} not {want:?}"
            );
        }
    }

    #[test]
    fn rows_convert_as_elements_do() {
        Path::for_each(check_rows);
    }

    fn check_rows(_: Path) {
        let src: Vec<f32> = patterns().step_by(16381).collect();
        let mut narrow_row = vec![bf16::ZERO; src.len()];
        narrow(&src, &mut narrow_row);
        let mut wide = vec![0f32; src.len()];
        widen(&narrow_row, &mut wide);
        for ((&s, &n), &w) in src.iter().zip(&narrow_row).zip(&wide) {
            assert_eq!(n.to_bits(), bf16_rne(s).to_bits());
            assert_eq!(w.to_bits(), u32::from(n.to_bits()) << 16);
        }
        let mut scaled = narrow_row.clone();
        narrow_scaled(&src, 3.0, &mut scaled);
        assert!(
            src.iter()
                .zip(&scaled)
                .all(|(s, d)| d.to_bits() == bf16_rne(s * 3.0).to_bits())
        );
    }

    #[test]
    fn quantising_takes_the_steps_of_the_spec() {
        // Through f16 and a truncation, as the specs write it, for all that a row may hold.
        for i in -130_000i32..=130_000 {
            let x = i as f32 / 1000.0;
            let hop = f16::from_f32(x.round_ties_even()).to_f32();
            assert_eq!(quantise(x, 1.0), hop.trunc() as i8, "{x}");
        }
        assert_eq!([0.5, 1.5, 2.5, -0.5, -1.5].map(|x| quantise(x, 1.0)), [0, 2, 2, 0, -2]);
        for x in patterns() {
            let x = x * 1e-3;
            assert_eq!(quantise(x, 1.0), x.round_ties_even() as i8, "{x:?}");
        }
        assert_eq!(
            [0.5, 1.5, 2.5, -2.5, 3e9, f32::NAN].map(rint_i32),
            [0, 2, 2, -2, i32::MAX, 0]
        );
    }

    #[test]
    fn a_row_uses_its_whole_range() {
        Path::for_each(check_range);
    }

    fn check_range(_: Path) {
        let src: Vec<f32> = (0..300).map(|i| (i as f32 - 150.0) * 0.37).collect();
        let mut dst = vec![0i8; 300];
        let scale = quantise_row_amax(&src, &mut dst);
        assert_eq!(dst[0], -127);
        for (&s, &d) in src.iter().zip(&dst) {
            assert!(
                (f32::from(d) * scale.dequant - s).abs() <= 0.5001 * scale.dequant,
                "{s} became {d}"
            );
        }
        let zero = quantise_row_amax(&[0.0; 7], &mut [1i8; 7]);
        assert_eq!(zero.quant.to_bits(), (127.0f32 / 1e-4).to_bits());
        assert!(quantise_row_amax(&[1.0, f32::NAN, 2.0], &mut [0; 3]).dequant.is_nan());
    }

    #[test]
    fn products_are_scaled_in_order() {
        Path::for_each(check_scaling);
    }

    fn check_scaling(_: Path) {
        let acc = [i32::MAX, -7, 16_777_217, 0];
        let column = [1e-3f32, 2e-3, 0.7, 5.0];
        let mut dst = [0f32; 4];
        dequantise(&acc, 0.3, &column, &mut dst);
        for i in 0..4 {
            assert_eq!(dst[i].to_bits(), ((acc[i] as f32 * 0.3) * column[i]).to_bits());
        }
        let before = dst;
        dequantise_add(&acc, 0.1, &mut dst);
        for i in 0..4 {
            assert_eq!(dst[i].to_bits(), (before[i] + acc[i] as f32 * 0.1).to_bits());
        }
    }
}
