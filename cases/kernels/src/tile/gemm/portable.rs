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
use super::pack::{self, FloatOperand, Widen};

/// Products of floats.
pub(super) struct Float<T>(PhantomData<T>);

/// Products of i8, in f32: a block of K has at most 1024 products of at most 2¹⁴, so that all of its
/// sums are integers within the 2²⁴ that f32 holds exactly, and any target multiplies f32 fast.
pub(super) struct Int;

const MR: usize = 4;
const NR: usize = 8;
const DOT: usize = 2;
const OUTER_STRIDE: usize = 256 + 16;
const DOT_STRIDE: usize = KC + 16;

/// Longest block of K; see [`Int`].
const KC: usize = 1024;

/// How the f32 sums of a tile become results.
trait Finish<C> {
    fn finish(sum: f32) -> C;
}

impl<T> Finish<f32> for Float<T> {
    fn finish(sum: f32) -> f32 {
        sum
    }
}

impl Finish<i32> for Int {
    fn finish(sum: f32) -> i32 {
        sum as i32
    }
}

macro_rules! kernels {
    ($in:ty => $out:ty) => {
        type In = $in;
        type Lhs = f32;
        type Rhs = f32;
        type Out = $out;
        const OUTER_MR: usize = MR;
        const OUTER_NR: usize = NR;
        const OUTER_KC: usize = 256;
        const OUTER_NC: usize = 128;
        const OUTER_STRIDE: usize = OUTER_STRIDE;
        const KU: usize = 1;
        const OUTER_IN_PLACE: usize = 0;
        const DOT_MR: usize = DOT;
        const DOT_NR: usize = DOT;
        const DOT_KC: usize = KC;
        const DOT_STRIDE: usize = DOT_STRIDE;
        const DOT_ROWS: usize = 4;
        const DOT_COLS: usize = 64;
        const LANES: usize = 8;

        unsafe fn stage_lhs(src: &[$in], dst: &mut [f32]) -> $out {
            pack::stage(src, dst, <$in>::widen);
            <$out>::default()
        }

        unsafe fn pack(src: Tile<'_, $in>, dst: &mut [f32]) {
            pack::panels::<NR, 1, $in, f32>(src, dst, 0.0, <$in>::widen);
        }

        unsafe fn outer(rows: usize, k: usize, lhs: *const f32, rhs: *const f32, _: *const $out, target: Target<$out>) {
            // SAFETY: `rows` rows of `k` elements at `lhs`, `NR · k` elements at `rhs` (contract).
            let (lhs, rhs) = unsafe {
                (
                    std::array::from_fn(|r| std::slice::from_raw_parts(lhs.add(r.min(rows - 1) * OUTER_STRIDE), k)),
                    std::slice::from_raw_parts(rhs, k * NR),
                )
            };
            let sums = outer(lhs, rhs);
            // SAFETY: the target has `rows` rows of `NR` elements (contract).
            unsafe { put(&sums, rows, &target, Self::finish) };
        }

        unsafe fn outer_in_place(_: usize, _: usize, _: *const f32, _: (*const $in, usize), _: Target<$out>) {
            unreachable!("`OUTER_IN_PLACE` is 0");
        }

        unsafe fn dot(
            rows: usize,
            k: usize,
            lhs: *const f32,
            (rhs, stride): (*const $in, usize),
            _: *const $out,
            target: Target<$out>,
        ) {
            // SAFETY: `rows` rows of `k` elements at `lhs`, `DOT` rows at `rhs` (contract).
            let (lhs, rhs): ([&[f32]; DOT], [&[$in]; DOT]) = unsafe {
                (
                    std::array::from_fn(|r| std::slice::from_raw_parts(lhs.add(r.min(rows - 1) * DOT_STRIDE), k)),
                    std::array::from_fn(|c| std::slice::from_raw_parts(rhs.add(c * stride), k)),
                )
            };
            let sums = dot(lhs, rhs);
            // SAFETY: the target has `rows` rows of `DOT` elements (contract).
            unsafe { put(&sums, rows, &target, Self::finish) };
        }
    };
}

impl<T: FloatOperand> Kernels for Float<T> {
    kernels!(T => f32);
}

impl Kernels for Int {
    kernels!(i8 => i32);
}

/// # Safety
/// The target has `rows` rows of `N` elements.
unsafe fn put<C: Total, const M: usize, const N: usize>(
    sums: &[[f32; N]; M],
    rows: usize,
    target: &Target<C>,
    finish: impl Fn(f32) -> C,
) {
    for (r, row) in sums.iter().enumerate().take(rows) {
        // SAFETY: the contract; a row is `N` elements that only the target reaches.
        let out = unsafe { std::slice::from_raw_parts_mut(target.ptr.add(r * target.stride), N) };
        for (c, &sum) in out.iter_mut().zip(row) {
            *c = match target.store {
                Store::Overwrite => finish(sum),
                Store::Accumulate => c.plus(finish(sum)),
            };
        }
    }
}

fn outer(lhs: [&[f32]; MR], rhs: &[f32]) -> [[f32; NR]; MR] {
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

fn dot<T: Widen>(lhs: [&[f32]; DOT], rhs: [&[T]; DOT]) -> [[f32; DOT]; DOT] {
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
