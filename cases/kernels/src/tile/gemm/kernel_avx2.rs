//! AVX2 micro-kernels.
//!
//! i8: both sides are widened to i16, `VPMADDWD` adds two exact products per lane. The unsigned ×
//! signed byte product of this instruction set saturates, so it is of no use for exact sums.

#![expect(
    unsafe_code,
    reason = "vector loads and stores through pointers; each function names what it accesses"
)]

use std::arch::x86_64::{
    __m256, __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_add_ps, _mm256_castsi256_ps, _mm256_cvtepi8_epi16,
    _mm256_cvtepu16_epi32, _mm256_fmadd_ps, _mm256_hadd_epi32, _mm256_hadd_ps, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_permute2f128_ps, _mm256_permute2x128_si256, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setzero_ps, _mm256_setzero_si256, _mm256_slli_epi32, _mm256_storeu_ps, _mm256_storeu_si256,
};
use std::marker::PhantomData;

use ring_runtime::Tile;

use super::Store;
use super::driver::{Kernels, Target, by_rows, put};
use super::pack::{self, FloatOperand};
use super::prefetch::ask_for;

/// Products of floats.
pub(super) struct Float<T>(PhantomData<T>);

/// Products of i8.
pub(super) struct Int;

const FLOAT_OUTER_STRIDE: usize = 256 + 16;
const FLOAT_DOT_STRIDE: usize = 1024 + 16;
const INT_OUTER_STRIDE: usize = 512 + 32;
const INT_DOT_STRIDE: usize = 2048 + 32;

impl<T: FloatOperand> Kernels for Float<T> {
    type In = T;
    type Lhs = f32;
    type Rhs = f32;
    type Out = f32;
    const OUTER_MR: usize = 6;
    const OUTER_NR: usize = 16;
    const OUTER_KC: usize = 256;
    const OUTER_NC: usize = 256;
    const OUTER_STRIDE: usize = FLOAT_OUTER_STRIDE;
    const KU: usize = 1;
    const OUTER_IN_PLACE: usize = 12;
    const DOT_MR: usize = 4;
    const DOT_NR: usize = 2;
    const DOT_KC: usize = 1024;
    const DOT_STRIDE: usize = FLOAT_DOT_STRIDE;
    const DOT_ROWS: usize = 4;
    const DOT_COLS: usize = 64;
    const LANES: usize = 8;

    unsafe fn stage_lhs(src: &[T], dst: &mut [f32]) -> f32 {
        // SAFETY: the machine supports the path (contract of `Kernels`).
        unsafe { stage_floats(src, dst) };
        0.0
    }

    unsafe fn pack(src: Tile<'_, T>, dst: &mut [f32]) {
        // SAFETY: the machine supports the path.
        unsafe { pack_floats(src, dst) };
    }

    unsafe fn outer(rows: usize, k: usize, lhs: *const f32, rhs: *const f32, _: *const f32, target: Target<f32>) {
        // SAFETY: the same contract as this function's.
        unsafe { by_rows!(rows, R => float_outer::<R, false, f32>(k, lhs, (rhs, 16), rhs, &target), 1 2 3 4 5 6) }
    }

    unsafe fn outer_in_place(
        rows: usize,
        k: usize,
        lhs: *const f32,
        rhs: (*const T, usize),
        ahead: *const T,
        target: Target<f32>,
    ) {
        // SAFETY: the same contract as this function's.
        unsafe { by_rows!(rows, R => float_outer::<R, true, T>(k, lhs, rhs, ahead, &target), 1 2 3 4 5 6) }
    }

    unsafe fn dot(
        rows: usize,
        k: usize,
        lhs: *const f32,
        rhs: (*const T, usize),
        _: *const f32,
        ahead: Option<(*const T, usize)>,
        target: Target<f32>,
    ) {
        // SAFETY: the same contract as this function's.
        unsafe {
            match ahead {
                Some(ahead) => by_rows!(rows, R => float_dot::<R, true, T>(k, lhs, rhs, ahead, &target), 1 2 3 4),
                None => by_rows!(rows, R => float_dot::<R, false, T>(k, lhs, rhs, rhs, &target), 1 2 3 4),
            }
        }
    }
}

impl Kernels for Int {
    type In = i8;
    type Lhs = i16;
    type Rhs = i16;
    type Out = i32;
    const OUTER_MR: usize = 6;
    const OUTER_NR: usize = 16;
    const OUTER_KC: usize = 512;
    const OUTER_NC: usize = 256;
    const OUTER_STRIDE: usize = INT_OUTER_STRIDE;
    const KU: usize = 2;
    const OUTER_IN_PLACE: usize = 0;
    const DOT_MR: usize = 4;
    const DOT_NR: usize = 2;
    const DOT_KC: usize = 2048;
    const DOT_STRIDE: usize = INT_DOT_STRIDE;
    const DOT_ROWS: usize = 4;
    const DOT_COLS: usize = 64;
    const LANES: usize = 16;

    unsafe fn stage_lhs(src: &[i8], dst: &mut [i16]) -> i32 {
        // SAFETY: the machine supports the path (contract of `Kernels`).
        unsafe { stage_words(src, dst) };
        0
    }

    unsafe fn pack(src: Tile<'_, i8>, dst: &mut [i16]) {
        // SAFETY: the machine supports the path.
        unsafe { pack_words(src, dst) };
    }

    unsafe fn outer(rows: usize, k: usize, lhs: *const i16, rhs: *const i16, _: *const i32, target: Target<i32>) {
        // SAFETY: the same contract as this function's.
        unsafe { by_rows!(rows, R => int_outer::<R>(k, lhs, rhs, &target), 1 2 3 4 5 6) }
    }

    unsafe fn outer_in_place(_: usize, _: usize, _: *const i16, _: (*const i8, usize), _: *const i8, _: Target<i32>) {
        unreachable!("`OUTER_IN_PLACE` is 0: bytes are interleaved first");
    }

    unsafe fn dot(
        rows: usize,
        k: usize,
        lhs: *const i16,
        rhs: (*const i8, usize),
        _: *const i32,
        ahead: Option<(*const i8, usize)>,
        target: Target<i32>,
    ) {
        // SAFETY: the same contract as this function's.
        unsafe {
            match ahead {
                Some(ahead) => by_rows!(rows, R => int_dot::<R, true>(k, lhs, rhs, ahead, &target), 1 2 3 4),
                None => by_rows!(rows, R => int_dot::<R, false>(k, lhs, rhs, rhs, &target), 1 2 3 4),
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
fn stage_floats<T: FloatOperand>(src: &[T], dst: &mut [f32]) {
    pack::stage(src, dst, T::widen);
}

#[target_feature(enable = "avx2,fma")]
fn pack_floats<T: FloatOperand>(src: Tile<'_, T>, dst: &mut [f32]) {
    pack::panels::<16, 1, T, f32>(src, dst, 0.0, T::widen);
}

#[target_feature(enable = "avx2,fma")]
fn stage_words(src: &[i8], dst: &mut [i16]) {
    pack::stage(src, dst, i16::from);
}

#[target_feature(enable = "avx2,fma")]
fn pack_words(src: Tile<'_, i8>, dst: &mut [i16]) {
    pack::panels::<16, 2, i8, i16>(src, dst, 0, i16::from);
}

/// 8 elements, widened.
///
/// # Safety
/// They are readable at `ptr`.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn load<T: FloatOperand>(ptr: *const T) -> __m256 {
    // SAFETY: the contract; `FloatOperand` is f32, or bf16 with its 16 bits.
    unsafe {
        if T::IS_F32 {
            _mm256_loadu_ps(ptr.cast())
        } else {
            let halves = _mm_loadu_si128(ptr.cast());
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
        }
    }
}

/// # Safety
/// As `Kernels::outer`, with `R` rows.
#[target_feature(enable = "avx2,fma")]
unsafe fn float_outer<const R: usize, const AHEAD: bool, T: FloatOperand>(
    k: usize,
    lhs: *const f32,
    (rhs, stride): (*const T, usize),
    ahead: *const T,
    target: &Target<f32>,
) {
    let mut sums = [[_mm256_setzero_ps(); 2]; R];
    for p in 0..k {
        // SAFETY: `p < k`: within the `k` rows of B and each of the `R` staged rows.
        unsafe {
            if AHEAD {
                ask_for(ahead.wrapping_add(p * stride), 16);
            }
            let b = [load(rhs.add(p * stride)), load(rhs.add(p * stride + 8))];
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = _mm256_set1_ps(*lhs.add(r * FLOAT_OUTER_STRIDE + p));
                sums[0] = _mm256_fmadd_ps(a, b[0], sums[0]);
                sums[1] = _mm256_fmadd_ps(a, b[1], sums[1]);
            }
        }
    }
    // SAFETY: the target has `R` rows of 16 elements.
    unsafe { put!(sums => target, 8, _mm256_loadu_ps, _mm256_add_ps, _mm256_storeu_ps) };
}

/// # Safety
/// As `Kernels::outer`, with `R` rows.
#[target_feature(enable = "avx2")]
unsafe fn int_outer<const R: usize>(k: usize, lhs: *const i16, rhs: *const i16, target: &Target<i32>) {
    let mut sums = [[_mm256_setzero_si256(); 2]; R];
    for p in (0..k).step_by(2) {
        // SAFETY: `p + 2 ≤ k`: within the panel of `16 k` elements and each of the `R` staged rows.
        unsafe {
            let b = [
                _mm256_loadu_si256(rhs.add(p * 16).cast()),
                _mm256_loadu_si256(rhs.add(p * 16 + 16).cast()),
            ];
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = _mm256_set1_epi32(lhs.add(r * INT_OUTER_STRIDE + p).cast::<i32>().read_unaligned());
                sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(a, b[0]));
                sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(a, b[1]));
            }
        }
    }
    // SAFETY: the target has `R` rows of 16 elements.
    unsafe { put!(sums => target, 8, _mm256_loadu_si256, _mm256_add_epi32, _mm256_storeu_si256) };
}

/// # Safety
/// As `Kernels::dot`, with `R` rows.
#[target_feature(enable = "avx2,fma")]
unsafe fn float_dot<const R: usize, const AHEAD: bool, T: FloatOperand>(
    k: usize,
    lhs: *const f32,
    (rhs, rhs_stride): (*const T, usize),
    (ahead, ahead_stride): (*const T, usize),
    target: &Target<f32>,
) {
    let mut sums = [[_mm256_setzero_ps(); 2]; 4];
    for p in (0..k).step_by(8) {
        // SAFETY: `p + 8 ≤ k`: within each of the `R` staged rows and the two rows of B.
        unsafe {
            if AHEAD {
                ask_for(ahead.wrapping_add(p), 8);
                ask_for(ahead.wrapping_add(ahead_stride + p), 8);
            }
            let b = [load(rhs.add(p)), load(rhs.add(rhs_stride + p))];
            for (r, sums) in sums.iter_mut().enumerate().take(R) {
                let a = _mm256_loadu_ps(lhs.add(r * FLOAT_DOT_STRIDE + p));
                sums[0] = _mm256_fmadd_ps(a, b[0], sums[0]);
                sums[1] = _mm256_fmadd_ps(a, b[1], sums[1]);
            }
        }
    }
    let mut all = [0f32; 8];
    // SAFETY: `all` has eight elements.
    unsafe { _mm256_storeu_ps(all.as_mut_ptr(), reduce_ps(&sums)) };
    for r in 0..R {
        for half in 0..2 {
            // SAFETY: the target has `R` rows of two elements.
            unsafe {
                let c = target.ptr.add(r * target.stride + half);
                *c = match target.store {
                    Store::Overwrite => all[2 * r + half],
                    Store::Accumulate => *c + all[2 * r + half],
                };
            }
        }
    }
}

/// # Safety
/// As `Kernels::dot`, with `R` rows.
#[target_feature(enable = "avx2")]
unsafe fn int_dot<const R: usize, const AHEAD: bool>(
    k: usize,
    lhs: *const i16,
    (rhs, rhs_stride): (*const i8, usize),
    (ahead, ahead_stride): (*const i8, usize),
    target: &Target<i32>,
) {
    let mut sums = [[_mm256_setzero_si256(); 2]; 4];
    for p in (0..k).step_by(16) {
        // SAFETY: `p + 16 ≤ k`: within each of the `R` staged rows and the two rows of B.
        unsafe {
            if AHEAD {
                ask_for(ahead.wrapping_add(p), 16);
                ask_for(ahead.wrapping_add(ahead_stride + p), 16);
            }
            let b = [
                _mm256_cvtepi8_epi16(_mm_loadu_si128(rhs.add(p).cast())),
                _mm256_cvtepi8_epi16(_mm_loadu_si128(rhs.add(rhs_stride + p).cast())),
            ];
            for (r, sums) in sums.iter_mut().enumerate().take(R) {
                let a = _mm256_loadu_si256(lhs.add(r * INT_DOT_STRIDE + p).cast());
                sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(a, b[0]));
                sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(a, b[1]));
            }
        }
    }
    let mut all = [0i32; 8];
    // SAFETY: `all` has eight elements.
    unsafe { _mm256_storeu_si256(all.as_mut_ptr().cast(), reduce_epi32(&sums)) };
    for r in 0..R {
        for half in 0..2 {
            // SAFETY: the target has `R` rows of two elements.
            unsafe {
                let c = target.ptr.add(r * target.stride + half);
                *c = match target.store {
                    Store::Overwrite => all[2 * r + half],
                    Store::Accumulate => (*c).wrapping_add(all[2 * r + half]),
                };
            }
        }
    }
}

/// Sums of the lanes of 8 vectors, in the order of the vectors.
#[target_feature(enable = "avx2")]
fn reduce_ps(s: &[[__m256; 2]; 4]) -> __m256 {
    let low = _mm256_hadd_ps(_mm256_hadd_ps(s[0][0], s[0][1]), _mm256_hadd_ps(s[1][0], s[1][1]));
    let high = _mm256_hadd_ps(_mm256_hadd_ps(s[2][0], s[2][1]), _mm256_hadd_ps(s[3][0], s[3][1]));
    _mm256_add_ps(
        _mm256_permute2f128_ps::<0x20>(low, high),
        _mm256_permute2f128_ps::<0x31>(low, high),
    )
}

/// Sums of the lanes of 8 vectors, in the order of the vectors.
#[target_feature(enable = "avx2")]
fn reduce_epi32(s: &[[__m256i; 2]; 4]) -> __m256i {
    let low = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0][0], s[0][1]), _mm256_hadd_epi32(s[1][0], s[1][1]));
    let high = _mm256_hadd_epi32(_mm256_hadd_epi32(s[2][0], s[2][1]), _mm256_hadd_epi32(s[3][0], s[3][1]));
    _mm256_add_epi32(
        _mm256_permute2x128_si256::<0x20>(low, high),
        _mm256_permute2x128_si256::<0x31>(low, high),
    )
}
