//! Staging and packing of operands.
//!
//! The left operand is *staged*: each row is converted and copied to a fixed stride, padded with
//! zeros to whole vectors, so that the micro-kernels reach all rows from one pointer with constant
//! offsets. The right operand in `K × N` layout is *packed* into panels of `NR` columns; within a
//! panel, `KU` consecutive `k` of a column lie together, then the columns, then the next `k`.
//!
//! All of it is safe slice code, inlined into the target-feature functions of the paths, where the
//! compiler vectorises it.

#![expect(
    clippy::inline_always,
    reason = "code that is not inlined into a target-feature function is compiled for the baseline target"
)]

use half::bf16;
use ring_runtime::{Element, Tile};

use super::prefetch::prefetch;
use super::scratch::Word;

/// A float operand.
pub(super) trait FloatOperand: Element + Word {
    /// Whether it is f32; otherwise it is bf16.
    const IS_F32: bool;

    /// The value, exactly.
    fn widen(self) -> f32;
}

impl FloatOperand for f32 {
    const IS_F32: bool = true;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl FloatOperand for bf16 {
    const IS_F32: bool = false;

    // Not `bf16::to_f32`: that one quiets NaN with a branch; shifting keeps every bit.
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// Converts `src` into the start of `dst` and zeroes the rest of `dst`.
#[inline(always)]
pub(super) fn stage<S: Copy, D: Copy + Default>(src: &[S], dst: &mut [D], convert: impl Fn(S) -> D) {
    let (head, tail) = dst.split_at_mut(src.len());
    for (d, &s) in head.iter_mut().zip(src) {
        *d = convert(s);
    }
    tail.fill(D::default());
}

/// Packs all of `src` (`K × N`) into panels of `NR` columns; columns and rows beyond it are `pad`.
///
/// `dst` holds `⌈N/NR⌉` panels of `⌈K/KU⌉·KU·NR` elements.
#[inline(always)]
pub(super) fn panels<const NR: usize, const KU: usize, S: Element, D: Copy>(
    src: Tile<'_, S>,
    dst: &mut [D],
    pad: D,
    convert: impl Fn(S) -> D,
) {
    let depth = src.rows().next_multiple_of(KU);
    let width = src.cols();
    let zero = S::default();
    let blank = [zero; 64];
    for k in (0..depth).step_by(KU) {
        let ahead = (k + 8).min(src.rows())..(k + 8 + KU).min(src.rows());
        prefetch(&src.sub(ahead, 0..width));
        let rows: [&[S]; KU] = std::array::from_fn(|u| if k + u < src.rows() { src.row(k + u) } else { &[][..] });
        for (panel, j) in (0..width).step_by(NR).enumerate() {
            let out = &mut dst[(panel * depth + k) * NR..][..KU * NR];
            let cols = NR.min(width - j);
            if cols == NR && k + KU <= src.rows() {
                let rows = rows.map(|row| &row[j..j + NR]);
                interleave::<NR, KU, S, D>(rows, out, &convert);
            } else {
                out.fill(pad);
                for (u, row) in rows.iter().enumerate() {
                    let row = if row.is_empty() {
                        &blank[..cols]
                    } else {
                        &row[j..j + cols]
                    };
                    for (c, &value) in row.iter().enumerate() {
                        out[c * KU + u] = convert(value);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn interleave<const NR: usize, const KU: usize, S: Copy, D>(
    rows: [&[S]; KU],
    out: &mut [D],
    convert: &impl Fn(S) -> D,
) {
    let rows: [&[S; NR]; KU] = rows.map(|row| row.try_into().expect("cut to the panel's width"));
    let out = &mut out[..NR * KU];
    for c in 0..NR {
        for u in 0..KU {
            out[c * KU + u] = convert(rows[u][c]);
        }
    }
}
