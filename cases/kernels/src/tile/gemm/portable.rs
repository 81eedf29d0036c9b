//! Micro-kernels in plain Rust, for machines without the x86 paths and as a second opinion in tests.
//!
//! The loops have constant bounds over small arrays, so that the compiler keeps the sums in whatever
//! vector registers the build target has. Products are rounded before they are added: a fused
//! multiply-add would be a library call on targets that lack the instruction.
//!
//! i8 is widened to i16 and multiplied in pairs, which is twice as many products per vector as in f32.

#![expect(unsafe_code, reason = "the kernels share the pointer interface of the vector paths")]

use std::marker::PhantomData;

use ring_runtime::Tile;

use super::Store;
use super::driver::{Kernels, Target, Total};
use super::pack::{self, FloatOperand};
use super::pairs::{Lanes, Words};

/// Products of floats.
pub(super) struct Float<T>(PhantomData<T>);

/// Products of i8.
pub(super) struct Int;

/// Outer form: rows and columns of a tile.
const MR: usize = 4;
const NR: usize = 8;

/// Dot form: columns of a tile, and elements of K per step.
const DOT_NR: usize = 2;
const FLOAT_STEP: usize = 8;
const INT_STEP: usize = 8;

const OUTER_KC: usize = 256;
const OUTER_STRIDE: usize = OUTER_KC + 16;
const DOT_KC: usize = 1024;
const DOT_STRIDE: usize = DOT_KC + 16;

/// What the two kinds share: the geometry but for `$mr` rows of a dot tile and `$lanes` elements per step,
/// `$ku` consecutive `k` in a panel, and the way from pointers to slices.
macro_rules! kernels {
    ($in:ty as $wide:ty, $convert:expr => $out:ty: $ku:literal, $mr:literal, $lanes:expr, $outer:ident, $dot:ident) => {
        type In = $in;
        type Lhs = $wide;
        type Rhs = $wide;
        type Out = $out;
        const OUTER_MR: usize = MR;
        const OUTER_NR: usize = NR;
        const OUTER_KC: usize = OUTER_KC;
        const OUTER_NC: usize = 128;
        const OUTER_STRIDE: usize = OUTER_STRIDE;
        const KU: usize = $ku;
        const OUTER_IN_PLACE: usize = 0;
        const DOT_MR: usize = $mr;
        const DOT_NR: usize = DOT_NR;
        const DOT_KC: usize = DOT_KC;
        const DOT_STRIDE: usize = DOT_STRIDE;
        const DOT_ROWS: usize = 4;
        const DOT_COLS: usize = 64;
        const LANES: usize = $lanes;

        unsafe fn stage_lhs(src: &[$in], dst: &mut [$wide]) -> $out {
            pack::stage(src, dst, $convert);
            <$out>::default()
        }

        unsafe fn pack(src: Tile<'_, $in>, dst: &mut [$wide]) {
            pack::panels::<NR, $ku, $in, $wide>(src, dst, <$wide>::default(), $convert);
        }

        unsafe fn outer(
            rows: usize,
            k: usize,
            lhs: *const $wide,
            rhs: *const $wide,
            _: *const $out,
            target: Target<$out>,
        ) {
            // SAFETY: `rows` rows of `k` elements at `lhs`, `NR · k` elements at `rhs` (contract).
            let (lhs, rhs) = unsafe {
                (
                    std::array::from_fn(|r| std::slice::from_raw_parts(lhs.add(r.min(rows - 1) * OUTER_STRIDE), k)),
                    std::slice::from_raw_parts(rhs, k * NR),
                )
            };
            let sums = $outer(lhs, rhs);
            // SAFETY: the target has `rows` rows of `NR` elements (contract).
            unsafe { put(&sums, rows, &target) };
        }

        unsafe fn outer_in_place(
            _: usize,
            _: usize,
            _: *const $wide,
            _: (*const $in, usize),
            _: *const $in,
            _: Target<$out>,
        ) {
            unreachable!("`OUTER_IN_PLACE` is 0");
        }

        unsafe fn dot(
            rows: usize,
            k: usize,
            lhs: *const $wide,
            (rhs, stride): (*const $in, usize),
            _: *const $out,
            _: Option<(*const $in, usize)>,
            target: Target<$out>,
        ) {
            // SAFETY: `rows` rows of `k` elements at `lhs`, `DOT_NR` rows at `rhs` (contract).
            let (lhs, rhs): ([&[$wide]; $mr], [&[$in]; DOT_NR]) = unsafe {
                (
                    std::array::from_fn(|r| std::slice::from_raw_parts(lhs.add(r.min(rows - 1) * DOT_STRIDE), k)),
                    std::array::from_fn(|c| std::slice::from_raw_parts(rhs.add(c * stride), k)),
                )
            };
            let sums = $dot(lhs, rhs);
            // SAFETY: the target has `rows` rows of `DOT_NR` elements (contract).
            unsafe { put(&sums, rows, &target) };
        }
    };
}

impl<T: FloatOperand> Kernels for Float<T> {
    kernels!(T as f32, T::widen => f32: 1, 2, FLOAT_STEP, float_outer, float_dot);
}

impl Kernels for Int {
    kernels!(i8 as i16, i16::from => i32: 2, 4, INT_STEP, int_outer, int_dot);
}

/// # Safety
/// The target has `rows` rows of `N` elements.
unsafe fn put<C: Total, const M: usize, const N: usize>(sums: &[[C; N]; M], rows: usize, target: &Target<C>) {
    for (r, row) in sums.iter().enumerate().take(rows) {
        // SAFETY: the contract; a row is `N` elements that only the target reaches.
        let out = unsafe { std::slice::from_raw_parts_mut(target.ptr.add(r * target.stride), N) };
        for (c, &sum) in out.iter_mut().zip(row) {
            *c = match target.store {
                Store::Overwrite => sum,
                Store::Accumulate => c.plus(sum),
            };
        }
    }
}

fn float_outer(lhs: [&[f32]; MR], rhs: &[f32]) -> [[f32; NR]; MR] {
    let mut sums = [[0f32; NR]; MR];
    let panel = rhs.as_chunks::<NR>().0;
    // Of one length, so that the bounds are checked once and not in the loop.
    let lhs = lhs.map(|row| &row[..panel.len()]);
    for p in 0..panel.len() {
        for r in 0..MR {
            for c in 0..NR {
                sums[r][c] += lhs[r][p] * panel[p][c];
            }
        }
    }
    sums
}

fn int_outer(lhs: [&[i16]; MR], rhs: &[i16]) -> [[i32; NR]; MR] {
    let mut sums = [[Lanes::zero(); 2]; MR];
    let (panel, _) = rhs.as_chunks::<8>().0.as_chunks::<2>();
    let lhs = lhs.map(|row| &row.as_chunks::<2>().0[..panel.len()]);
    for (p, halves) in panel.iter().enumerate() {
        let halves = [Words::load(&halves[0]), Words::load(&halves[1])];
        for r in 0..MR {
            let pair = Words::repeat(lhs[r][p]);
            for h in 0..2 {
                sums[r][h] = sums[r][h].plus_products(pair, halves[h]);
            }
        }
    }
    let mut out = [[0; NR]; MR];
    for (out, [low, high]) in out.iter_mut().zip(sums) {
        out[..4].copy_from_slice(&low.get());
        out[4..].copy_from_slice(&high.get());
    }
    out
}

fn float_dot<T: FloatOperand>(lhs: [&[f32]; 2], rhs: [&[T]; DOT_NR]) -> [[f32; DOT_NR]; 2] {
    let mut lanes = [[[0f32; FLOAT_STEP]; DOT_NR]; 2];
    let (a, b) = (
        lhs.map(|row| row.as_chunks::<FLOAT_STEP>().0),
        rhs.map(|row| row.as_chunks::<FLOAT_STEP>().0),
    );
    for p in 0..a[0].len() {
        for r in 0..2 {
            for c in 0..DOT_NR {
                for l in 0..FLOAT_STEP {
                    lanes[r][c][l] += a[r][p][l] * b[c][p][l].widen();
                }
            }
        }
    }
    lanes.map(|row| row.map(|l| ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))))
}

fn int_dot(lhs: [&[i16]; 4], rhs: [&[i8]; DOT_NR]) -> [[i32; DOT_NR]; 4] {
    let mut sums = [[Lanes::zero(); DOT_NR]; 4];
    let a = lhs.map(|row| row.as_chunks::<INT_STEP>().0);
    let steps = a[0].len();
    let a = a.map(|row| &row[..steps]);
    let b = rhs.map(|row| &row.as_chunks::<INT_STEP>().0[..steps]);
    for p in 0..steps {
        let b = b.map(|row| Words::widen(row[p]));
        for r in 0..4 {
            let a = Words::load(&a[r][p]);
            for c in 0..DOT_NR {
                sums[r][c] = sums[r][c].plus_products(a, b[c]);
            }
        }
    }
    sums.map(|row| row.map(Lanes::total))
}
