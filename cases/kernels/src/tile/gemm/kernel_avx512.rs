//! AVX-512 micro-kernels.
//!
//! i8: `VPDPBUSD` multiplies unsigned by signed bytes and adds four products to a lane without
//! saturation. B takes the unsigned side as `b + 128` (one flipped bit), and the sums start from
//! `−128 · Σₖ a`, so the result is the exact signed product.

#![expect(
    unsafe_code,
    reason = "vector loads and stores through pointers; each function names what it accesses"
)]

use std::arch::x86_64::{
    __m512, __m512i, _mm_add_epi32, _mm_add_ps, _mm_loadu_ps, _mm_loadu_si128, _mm_set1_epi32, _mm_storeu_ps,
    _mm_storeu_si128, _mm256_loadu_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_castpd_ps, _mm512_castps_pd,
    _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_dpbusd_epi32, _mm512_extractf32x4_ps,
    _mm512_extracti32x4_epi32, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi8,
    _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_shuffle_f32x4,
    _mm512_slli_epi32, _mm512_storeu_ps, _mm512_storeu_si512, _mm512_unpackhi_pd, _mm512_unpackhi_ps,
    _mm512_unpacklo_pd, _mm512_unpacklo_ps, _mm512_xor_si512,
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
const FLOAT_DOT_STRIDE: usize = 512 + 16;
const INT_OUTER_STRIDE: usize = 512 + 64;
const INT_DOT_STRIDE: usize = 2048 + 64;

impl<T: FloatOperand> Kernels for Float<T> {
    type In = T;
    type Lhs = f32;
    type Rhs = f32;
    type Out = f32;
    const OUTER_MR: usize = 12;
    const OUTER_NR: usize = 32;
    const OUTER_KC: usize = 256;
    const OUTER_NC: usize = 256;
    const OUTER_STRIDE: usize = FLOAT_OUTER_STRIDE;
    const KU: usize = 1;
    const OUTER_IN_PLACE: usize = 36;
    const DOT_MR: usize = 4;
    const DOT_NR: usize = 4;
    const DOT_KC: usize = 512;
    const DOT_STRIDE: usize = FLOAT_DOT_STRIDE;
    const DOT_ROWS: usize = 16;
    const DOT_COLS: usize = 64;
    const LANES: usize = 16;

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
        unsafe {
            by_rows!(rows, R => float_outer::<R, false, f32>(k, lhs, (rhs, 32), rhs, &target), 1 2 3 4 5 6 7 8 9 10 11 12);
        }
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
        unsafe {
            by_rows!(rows, R => float_outer::<R, true, T>(k, lhs, rhs, ahead, &target), 1 2 3 4 5 6 7 8 9 10 11 12);
        }
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
    type Lhs = i8;
    /// `b + 128` as a byte.
    type Rhs = i8;
    type Out = i32;
    const OUTER_MR: usize = 12;
    const OUTER_NR: usize = 32;
    const OUTER_KC: usize = 512;
    const OUTER_NC: usize = 512;
    const OUTER_STRIDE: usize = INT_OUTER_STRIDE;
    const KU: usize = 4;
    const OUTER_IN_PLACE: usize = 0;
    const DOT_MR: usize = 4;
    const DOT_NR: usize = 4;
    const DOT_KC: usize = 2048;
    const DOT_STRIDE: usize = INT_DOT_STRIDE;
    const DOT_ROWS: usize = 16;
    const DOT_COLS: usize = 64;
    const LANES: usize = 64;

    unsafe fn stage_lhs(src: &[i8], dst: &mut [i8]) -> i32 {
        // SAFETY: the machine supports the path (contract of `Kernels`).
        unsafe { stage_biased(src, dst) }
    }

    unsafe fn pack(src: Tile<'_, i8>, dst: &mut [i8]) {
        // SAFETY: the machine supports the path.
        unsafe { pack_bytes(src, dst) };
    }

    unsafe fn outer(rows: usize, k: usize, lhs: *const i8, rhs: *const i8, bias: *const i32, target: Target<i32>) {
        // SAFETY: the same contract as this function's.
        unsafe { by_rows!(rows, R => int_outer::<R>(k, lhs, rhs, bias, &target), 1 2 3 4 5 6 7 8 9 10 11 12) }
    }

    unsafe fn outer_in_place(_: usize, _: usize, _: *const i8, _: (*const i8, usize), _: *const i8, _: Target<i32>) {
        unreachable!("`OUTER_IN_PLACE` is 0: bytes are interleaved first");
    }

    unsafe fn dot(
        rows: usize,
        k: usize,
        lhs: *const i8,
        rhs: (*const i8, usize),
        bias: *const i32,
        ahead: Option<(*const i8, usize)>,
        target: Target<i32>,
    ) {
        // SAFETY: the same contract as this function's.
        unsafe {
            match ahead {
                Some(ahead) => by_rows!(rows, R => int_dot::<R, true>(k, lhs, rhs, bias, ahead, &target), 1 2 3 4),
                None => by_rows!(rows, R => int_dot::<R, false>(k, lhs, rhs, bias, rhs, &target), 1 2 3 4),
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn stage_floats<T: FloatOperand>(src: &[T], dst: &mut [f32]) {
    pack::stage(src, dst, T::widen);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn pack_floats<T: FloatOperand>(src: Tile<'_, T>, dst: &mut [f32]) {
    pack::panels::<32, 1, T, f32>(src, dst, 0.0, T::widen);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn stage_biased(src: &[i8], dst: &mut [i8]) -> i32 {
    pack::stage(src, dst, |x| x);
    let sum: i32 = src.iter().map(|&x| i32::from(x)).sum();
    -128 * sum
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn pack_bytes(src: Tile<'_, i8>, dst: &mut [i8]) {
    pack::panels::<32, 4, i8, i8>(src, dst, 0, |x| x ^ i8::MIN);
}

/// 16 elements, widened.
///
/// # Safety
/// They are readable at `ptr`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn load<T: FloatOperand>(ptr: *const T) -> __m512 {
    // SAFETY: the contract; `FloatOperand` is f32, or bf16 with its 16 bits.
    unsafe {
        if T::IS_F32 {
            _mm512_loadu_ps(ptr.cast())
        } else {
            let halves = _mm256_loadu_si256(ptr.cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
        }
    }
}

/// # Safety
/// As `Kernels::outer`, with `R` rows.
#[target_feature(enable = "avx512f")]
unsafe fn float_outer<const R: usize, const AHEAD: bool, T: FloatOperand>(
    k: usize,
    lhs: *const f32,
    (rhs, stride): (*const T, usize),
    ahead: *const T,
    target: &Target<f32>,
) {
    let mut sums = [[_mm512_setzero_ps(); 2]; R];
    for p in 0..k {
        // SAFETY: `p < k`: within the `k` rows of B and each of the `R` staged rows.
        unsafe {
            if AHEAD {
                ask_for(ahead.wrapping_add(p * stride), 32);
            }
            let b = [load(rhs.add(p * stride)), load(rhs.add(p * stride + 16))];
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = _mm512_set1_ps(*lhs.add(r * FLOAT_OUTER_STRIDE + p));
                sums[0] = _mm512_fmadd_ps(a, b[0], sums[0]);
                sums[1] = _mm512_fmadd_ps(a, b[1], sums[1]);
            }
        }
    }
    // SAFETY: the target has `R` rows of 32 elements.
    unsafe { put!(sums => target, 16, _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps) };
}

/// # Safety
/// As `Kernels::outer`, with `R` rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn int_outer<const R: usize>(k: usize, lhs: *const i8, rhs: *const i8, bias: *const i32, target: &Target<i32>) {
    let mut sums = [[_mm512_setzero_si512(); 2]; R];
    for (r, row) in sums.iter_mut().enumerate() {
        // SAFETY: `bias` has `R` elements.
        *row = [_mm512_set1_epi32(unsafe { *bias.add(r) }); 2];
    }
    for p in (0..k).step_by(4) {
        // SAFETY: `p + 4 ≤ k`: within the panel of `32 k` bytes and each of the `R` staged rows.
        unsafe {
            let b = [
                _mm512_loadu_si512(rhs.add(p * 32).cast()),
                _mm512_loadu_si512(rhs.add(p * 32 + 64).cast()),
            ];
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = _mm512_set1_epi32(lhs.add(r * INT_OUTER_STRIDE + p).cast::<i32>().read_unaligned());
                sums[0] = _mm512_dpbusd_epi32(sums[0], b[0], a);
                sums[1] = _mm512_dpbusd_epi32(sums[1], b[1], a);
            }
        }
    }
    // SAFETY: the target has `R` rows of 32 elements.
    unsafe { put!(sums => target, 16, _mm512_loadu_si512, _mm512_add_epi32, _mm512_storeu_si512) };
}

/// # Safety
/// As `Kernels::dot`, with `R` rows.
#[target_feature(enable = "avx512f")]
unsafe fn float_dot<const R: usize, const AHEAD: bool, T: FloatOperand>(
    k: usize,
    lhs: *const f32,
    (rhs, rhs_stride): (*const T, usize),
    (ahead, ahead_stride): (*const T, usize),
    target: &Target<f32>,
) {
    let mut sums = [[_mm512_setzero_ps(); 4]; 4];
    for p in (0..k).step_by(16) {
        // SAFETY: `p + 16 ≤ k`: within each of the `R` staged rows and the four rows of B.
        unsafe {
            let mut b = [_mm512_setzero_ps(); 4];
            for (c, b) in b.iter_mut().enumerate() {
                if AHEAD {
                    ask_for(ahead.wrapping_add(c * ahead_stride + p), 16);
                }
                *b = load(rhs.add(c * rhs_stride + p));
            }
            for (r, sums) in sums.iter_mut().enumerate().take(R) {
                let a = _mm512_loadu_ps(lhs.add(r * FLOAT_DOT_STRIDE + p));
                for (sum, &b) in sums.iter_mut().zip(&b) {
                    *sum = _mm512_fmadd_ps(a, b, *sum);
                }
            }
        }
    }
    // Lane group r of the reduced vector is row r. The immediates of the extraction are constants,
    // hence the table instead of a loop.
    let all = reduce_ps(&sums);
    let rows = [
        _mm512_extractf32x4_ps::<0>(all),
        _mm512_extractf32x4_ps::<1>(all),
        _mm512_extractf32x4_ps::<2>(all),
        _mm512_extractf32x4_ps::<3>(all),
    ];
    for (r, sum) in rows.into_iter().enumerate().take(R) {
        // SAFETY: the target has `R` rows of four elements.
        unsafe {
            let c = target.ptr.add(r * target.stride);
            let sum = match target.store {
                Store::Overwrite => sum,
                Store::Accumulate => _mm_add_ps(_mm_loadu_ps(c), sum),
            };
            _mm_storeu_ps(c, sum);
        }
    }
}

/// # Safety
/// As `Kernels::dot`, with `R` rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn int_dot<const R: usize, const AHEAD: bool>(
    k: usize,
    lhs: *const i8,
    (rhs, rhs_stride): (*const i8, usize),
    bias: *const i32,
    (ahead, ahead_stride): (*const i8, usize),
    target: &Target<i32>,
) {
    let flip = _mm512_set1_epi8(i8::MIN);
    let mut sums = [[_mm512_setzero_si512(); 4]; 4];
    for p in (0..k).step_by(64) {
        // SAFETY: `p + 64 ≤ k`: within each of the `R` staged rows and the four rows of B.
        unsafe {
            let mut b = [_mm512_setzero_si512(); 4];
            for (c, b) in b.iter_mut().enumerate() {
                if AHEAD {
                    ask_for(ahead.wrapping_add(c * ahead_stride + p), 64);
                }
                *b = _mm512_xor_si512(_mm512_loadu_si512(rhs.add(c * rhs_stride + p).cast()), flip);
            }
            for (r, sums) in sums.iter_mut().enumerate().take(R) {
                let a = _mm512_loadu_si512(lhs.add(r * INT_DOT_STRIDE + p).cast());
                for (sum, &b) in sums.iter_mut().zip(&b) {
                    *sum = _mm512_dpbusd_epi32(*sum, b, a);
                }
            }
        }
    }
    let all = reduce_epi32(&sums);
    let rows = [
        _mm512_extracti32x4_epi32::<0>(all),
        _mm512_extracti32x4_epi32::<1>(all),
        _mm512_extracti32x4_epi32::<2>(all),
        _mm512_extracti32x4_epi32::<3>(all),
    ];
    for (r, sum) in rows.into_iter().enumerate().take(R) {
        // SAFETY: the target has `R` rows of four elements, `bias` has `R`.
        unsafe {
            let c = target.ptr.add(r * target.stride);
            let sum = _mm_add_epi32(sum, _mm_set1_epi32(*bias.add(r)));
            let sum = match target.store {
                Store::Overwrite => sum,
                Store::Accumulate => _mm_add_epi32(_mm_loadu_si128(c.cast()), sum),
            };
            _mm_storeu_si128(c.cast(), sum);
        }
    }
}

/// Sums of the lanes of 16 vectors, in the order of the vectors.
///
/// A macro, and no closures or array adaptors anywhere near: those are compiled without the target
/// features, and then every vector goes through memory.
macro_rules! reduce {
    ($sums:expr, $view:ident, $add:ident) => {{
        let mut quads = [_mm512_setzero_ps(); 4];
        for (quad, &[a, b, c, d]) in quads.iter_mut().zip($sums) {
            let (a, b, c, d) = ($view(a), $view(b), $view(c), $view(d));
            let ab = $add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            let cd = $add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
            let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
            let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
            let high = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
            *quad = $add(low, high);
        }
        let [a, b, c, d] = quads;
        let ab = $add(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
        let cd = $add(_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
        $add(
            _mm512_shuffle_f32x4::<0x88>(ab, cd),
            _mm512_shuffle_f32x4::<0xdd>(ab, cd),
        )
    }};
}

#[target_feature(enable = "avx512f")]
#[inline]
fn as_is(x: __m512) -> __m512 {
    x
}

/// Integer lanes held in a float vector, so that both kinds share the shuffles.
#[target_feature(enable = "avx512f")]
#[inline]
fn add_lanes(x: __m512, y: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_castps_si512(y)))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn reduce_ps(sums: &[[__m512; 4]; 4]) -> __m512 {
    reduce!(sums, as_is, _mm512_add_ps)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn reduce_epi32(sums: &[[__m512i; 4]; 4]) -> __m512i {
    _mm512_castps_si512(reduce!(sums, _mm512_castsi512_ps, add_lanes))
}
