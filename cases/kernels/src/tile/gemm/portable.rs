//! Micro-kernels in plain Rust, for machines without the x86 paths and as a second opinion in tests.
//!
//! The loops have constant bounds over small arrays, so that the compiler keeps the sums in whatever
//! vector registers the build target has. Products are rounded before they are added: a fused
//! multiply-add would be a library call on targets that lack the instruction.

#![expect(unsafe_code, reason = "the kernels share the pointer interface of the vector paths")]

use std::marker::PhantomData;

use ring_runtime::Tile;

use super::Store;
use super::driver::{Kernels, Target, Total};
use super::pack::{self, Widen};

/// Products of floats.
pub(super) struct Float<T>(PhantomData<T>);

/// Products of i8, widened to i16 for the sake of targets with a pairwise 16-bit multiply.
pub(super) struct Int;

const MR: usize = 4;
const NR: usize = 8;
const DOT: usize = 2;
const OUTER_STRIDE: usize = 256 + 16;
const DOT_STRIDE: usize = 1024 + 16;

macro_rules! kernels {
    ($lhs:ty, $out:ty, $ku:literal, $lanes:literal, $zero:expr, $widen:expr, $outer:ident, $dot:ident) => {
        type Lhs = $lhs;
        type Rhs = $lhs;
        type Out = $out;
        const OUTER_MR: usize = MR;
        const OUTER_NR: usize = NR;
        const OUTER_KC: usize = 256;
        const OUTER_NC: usize = 128;
        const OUTER_STRIDE: usize = OUTER_STRIDE;
        const KU: usize = $ku;
        const OUTER_IN_PLACE: usize = 0;
        const DOT_MR: usize = DOT;
        const DOT_NR: usize = DOT;
        const DOT_KC: usize = 1024;
        const DOT_STRIDE: usize = DOT_STRIDE;
        const DOT_ROWS: usize = 4;
        const DOT_COLS: usize = 64;
        const LANES: usize = $lanes;

        unsafe fn stage_lhs(src: &[Self::In], dst: &mut [$lhs]) -> $out {
            pack::stage(src, dst, $widen);
            $zero
        }

        unsafe fn pack(src: Tile<'_, Self::In>, dst: &mut [$lhs]) {
            pack::panels::<NR, $ku, Self::In, $lhs>(src, dst, <$lhs>::default(), $widen);
        }

        unsafe fn outer(
            rows: usize,
            k: usize,
            lhs: *const $lhs,
            rhs: *const $lhs,
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

        unsafe fn outer_in_place(_: usize, _: usize, _: *const $lhs, _: (*const Self::In, usize), _: Target<$out>) {
            unreachable!("`OUTER_IN_PLACE` is 0");
        }

        unsafe fn dot(
            rows: usize,
            k: usize,
            lhs: *const $lhs,
            (rhs, stride): (*const Self::In, usize),
            _: *const $out,
            target: Target<$out>,
        ) {
            // SAFETY: `rows` rows of `k` elements at `lhs`, `DOT` rows at `rhs` (contract).
            let (lhs, rhs): ([&[$lhs]; DOT], [&[Self::In]; DOT]) = unsafe {
                (
                    std::array::from_fn(|r| std::slice::from_raw_parts(lhs.add(r.min(rows - 1) * DOT_STRIDE), k)),
                    std::array::from_fn(|c| std::slice::from_raw_parts(rhs.add(c * stride), k)),
                )
            };
            let sums = $dot(lhs, rhs);
            // SAFETY: the target has `rows` rows of `DOT` elements (contract).
            unsafe { put(&sums, rows, &target) };
        }
    };
}

impl<T: Widen> Kernels for Float<T> {
    type In = T;
    kernels!(f32, f32, 1, 8, 0.0, T::widen, float_outer, float_dot);
}

impl Kernels for Int {
    type In = i8;
    kernels!(i16, i32, 2, 8, 0, i16::from, int_outer, int_dot);
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
    for (p, b) in rhs.as_chunks::<NR>().0.iter().enumerate() {
        for r in 0..MR {
            let a = lhs[r][p];
            for c in 0..NR {
                sums[r][c] += a * b[c];
            }
        }
    }
    sums
}

fn int_outer(lhs: [&[i16]; MR], rhs: &[i16]) -> [[i32; NR]; MR] {
    let mut sums = [[0i32; NR]; MR];
    for (p, b) in rhs.as_chunks::<{ 2 * NR }>().0.iter().enumerate() {
        for r in 0..MR {
            let a = [i32::from(lhs[r][2 * p]), i32::from(lhs[r][2 * p + 1])];
            for c in 0..NR {
                let pair = a[0] * i32::from(b[2 * c]) + a[1] * i32::from(b[2 * c + 1]);
                sums[r][c] = sums[r][c].wrapping_add(pair);
            }
        }
    }
    sums
}

fn float_dot<T: Widen>(lhs: [&[f32]; DOT], rhs: [&[T]; DOT]) -> [[f32; DOT]; DOT] {
    let mut lanes = [[[0f32; 8]; DOT]; DOT];
    let (a, b) = (
        lhs.map(|row| row.as_chunks::<8>().0),
        rhs.map(|row| row.as_chunks::<8>().0),
    );
    for p in 0..a[0].len() {
        for r in 0..DOT {
            for c in 0..DOT {
                for l in 0..8 {
                    lanes[r][c][l] += a[r][p][l] * b[c][p][l].widen();
                }
            }
        }
    }
    lanes.map(|row| row.map(|l| ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))))
}

fn int_dot(lhs: [&[i16]; DOT], rhs: [&[i8]; DOT]) -> [[i32; DOT]; DOT] {
    std::array::from_fn(|r| {
        std::array::from_fn(|c| {
            let products = lhs[r].iter().zip(rhs[c]).map(|(&a, &b)| i32::from(a) * i32::from(b));
            products.fold(0i32, i32::wrapping_add)
        })
    })
}
