//! Exact products of int8 codes.
//!
//! Sums of integers are exact in any order, so these are dot products along the inner dimension of both operands, by the
//! machine's own instructions for that. Through a product in f32, exact up to a depth of 1024, goldens of the heavy programs
//! took twice as long, half of it for packing.

use super::{Matrix, blocks};
use crate::simd::Path;

/// Length of the inner dimension of a block: the rows that meet fit the first-level cache.
const DEPTH: usize = 2048;
/// What a row is filled up to with zeros: the widest step of the dot products.
const STEP: usize = 64;
/// Bytes between two rows of a block. More than its length: rows a multiple of 4 KiB apart would share cache sets.
const STRIDE: usize = DEPTH + STEP;
/// Rows of the left operand in a block. Many: the right one, usually the larger, is copied once for each such block.
const BLOCK_M: usize = 1024;
/// Rows of the left operand that meet at once.
const ROWS: usize = 4;
/// Rows of the right operand that meet these at once.
const COLS: usize = 2;
/// Rows of the right operand that rows of the left one meet while they are in the first-level cache.
const NEAR: usize = 4 * COLS;

/// Exact product of int8 codes, `a` (m × k) times `b` (k × n), row-major.
///
/// # Panics
/// If k is 2¹⁷ or more, from where on a sum may not fit an i32.
pub fn product_codes(m: usize, n: usize, k: usize, a: Matrix<'_, i8>, b: Matrix<'_, i8>) -> Vec<i32> {
    assert!(k < 1 << 17, "{k} products of up to 2¹⁴ may not fit an i32");
    let (dots, b) = (Dots::best(), b.transpose());
    blocks((m, BLOCK_M), n, |rows, cols| {
        let mut sum = vec![0i32; rows.1 * cols.1];
        // What is beyond the operands' rows is zero and stays zero.
        let mut left = vec![0i8; rows.1.next_multiple_of(ROWS) * STRIDE];
        let mut right = vec![0i8; cols.1.next_multiple_of(NEAR) * STRIDE];
        for k0 in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - k0);
            copy(a, rows, (k0, depth), &mut left);
            copy(b, cols, (k0, depth), &mut right);
            dots.add_all(&left, &right, depth.next_multiple_of(STEP), cols.1, &mut sum);
        }
        sum
    })
}

/// Copies elements `(i0.., l0..)` of `matrix`, rows [`STRIDE`] apart and zero up to the next step.
fn copy(matrix: Matrix<'_, i8>, (i0, rows): (usize, usize), (l0, depth): (usize, usize), out: &mut [i8]) {
    /// Rows and columns of a transposed tile: whole cache lines on both sides.
    const TILE: (usize, usize) = (64, 64);
    for row in out.chunks_exact_mut(STRIDE).take(rows) {
        row[depth..depth.next_multiple_of(STEP)].fill(0);
    }
    if matrix.col == 1 {
        for (i, out) in out.chunks_exact_mut(STRIDE).take(rows).enumerate() {
            out[..depth].copy_from_slice(&matrix.data[(i0 + i) * matrix.row + l0..][..depth]);
        }
        return;
    }
    for i in (0..rows).step_by(TILE.0) {
        for l in (0..depth).step_by(TILE.1) {
            for l in l..depth.min(l + TILE.1) {
                let codes = &matrix.data[(l0 + l) * matrix.col + i0 + i..][..TILE.0.min(rows - i)];
                for (i, code) in (i..).zip(codes) {
                    out[i * STRIDE + l] = *code;
                }
            }
        }
    }
}

/// Dot products of every row on the left with every one on the right. Rows are of one length, a multiple of [`STEP`].
type Meet = unsafe fn([&[i8]; ROWS], [&[i8]; COLS]) -> [[i32; COLS]; ROWS];

/// A way to compute dot products that this machine has.
#[derive(Clone, Copy)]
struct Dots(Meet);

impl Dots {
    fn best() -> Self {
        match Path::best() {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 => Self(x86::meet_avx512),
            #[cfg(target_arch = "x86_64")]
            Path::Avx2 => Self(x86::meet_avx2),
            _ => Self(meet),
        }
    }

    /// Adds to `sum`, rows of `n`, the dot products of the first `depth` elements of the rows of both.
    #[expect(unsafe_code, reason = "calls a target-feature function after detection")]
    fn add_all(self, left: &[i8], right: &[i8], depth: usize, n: usize, sum: &mut [i32]) {
        let rows = sum.len() / n;
        for near in (0..n).step_by(NEAR) {
            for i in (0..rows).step_by(ROWS) {
                let lefts = std::array::from_fn(|r| &left[(i + r) * STRIDE..][..depth]);
                for j in (near..n.min(near + NEAR)).step_by(COLS) {
                    let rights = std::array::from_fn(|c| &right[(j + c) * STRIDE..][..depth]);
                    // SAFETY: `best`, which alone makes this, takes a function whose features were detected.
                    let dots = unsafe { (self.0)(lefts, rights) };
                    for (sum, dots) in sum.chunks_exact_mut(n).skip(i).zip(dots) {
                        sum[j..].iter_mut().zip(dots).for_each(|(sum, dot)| *sum += dot);
                    }
                }
            }
        }
    }
}

fn meet(left: [&[i8]; ROWS], right: [&[i8]; COLS]) -> [[i32; COLS]; ROWS] {
    let dot = |a: &[i8], b: &[i8]| a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
    left.map(|a| right.map(|b| dot(a, b)))
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![expect(unsafe_code, reason = "loads of vectors")]

    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_madd_epi16,
        _mm256_setzero_si256, _mm256_storeu_si256, _mm512_dpbusd_epi32, _mm512_loadu_si512, _mm512_reduce_add_epi32,
        _mm512_set1_epi8, _mm512_setzero_si512, _mm512_sub_epi32, _mm512_xor_si512,
    };

    use super::{COLS, ROWS};

    /// The instruction takes codes without a sign on its left: `a + 128`, so that `128 · Σ b` goes off at the end.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn meet_avx512(left: [&[i8]; ROWS], right: [&[i8]; COLS]) -> [[i32; COLS]; ROWS] {
        // SAFETY: the chunk is 64 bytes long.
        let load = |from: &[i8; 64]| -> __m512i { unsafe { _mm512_loadu_si512(from.as_ptr().cast()) } };
        let left = left.map(|row| row.as_chunks().0);
        let right = right.map(|row| row.as_chunks().0);
        let steps = right[0].len();
        let (left, right) = (left.map(|row| &row[..steps]), right.map(|row| &row[..steps]));
        let shift = _mm512_set1_epi8(i8::MIN);
        let mut sums = [[_mm512_setzero_si512(); COLS]; ROWS];
        let mut excess = [_mm512_setzero_si512(); COLS];
        for step in 0..steps {
            let b = right.map(|row| load(&row[step]));
            for (excess, b) in excess.iter_mut().zip(b) {
                *excess = _mm512_dpbusd_epi32(*excess, shift, b);
            }
            for (sums, row) in sums.iter_mut().zip(left) {
                let a = _mm512_xor_si512(load(&row[step]), shift);
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = _mm512_dpbusd_epi32(*sum, a, b);
                }
            }
        }
        sums.map(|sums| {
            let mut all = [0; COLS];
            for ((all, sum), excess) in all.iter_mut().zip(sums).zip(excess) {
                *all = _mm512_reduce_add_epi32(_mm512_sub_epi32(sum, excess));
            }
            all
        })
    }

    /// Pairs of products of codes as i16 are added by the instruction itself.
    #[target_feature(enable = "avx2")]
    pub(super) fn meet_avx2(left: [&[i8]; ROWS], right: [&[i8]; COLS]) -> [[i32; COLS]; ROWS] {
        // SAFETY: the chunk is 16 bytes long.
        let load = |from: &[i8; 16]| -> __m128i { unsafe { _mm_loadu_si128(from.as_ptr().cast()) } };
        let left = left.map(|row| row.as_chunks().0);
        let right = right.map(|row| row.as_chunks().0);
        let steps = right[0].len();
        let (left, right) = (left.map(|row| &row[..steps]), right.map(|row| &row[..steps]));
        let mut sums = [[_mm256_setzero_si256(); COLS]; ROWS];
        for step in 0..steps {
            let b = right.map(|row| _mm256_cvtepi8_epi16(load(&row[step])));
            for (sums, row) in sums.iter_mut().zip(left) {
                let a = _mm256_cvtepi8_epi16(load(&row[step]));
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(a, b));
                }
            }
        }
        let total = |sum: __m256i| -> i32 {
            let mut lanes = [0i32; 8];
            // SAFETY: the array is 32 bytes long.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
            lanes.iter().sum()
        };
        sums.map(|sums| sums.map(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Stream;

    /// Codes over the full range, −128 included.
    fn codes(name: &str, n: usize) -> Vec<i8> {
        let stream = Stream::new(1, name);
        (0..n).map(|i| stream.bits(i as u64) as i8).collect()
    }

    #[test]
    fn codes_multiply_exactly() {
        for (m, n, k) in [(3, 300, 2500), (270, 5, 2048), (1, 1, 1), (2, 67, 33)] {
            let (a, b) = (codes("a", m * k), codes("b", n * k));
            for (b_matrix, at) in [(Matrix::rows(&b, n), (n, 1)), (Matrix::transposed(&b, k), (1, k))] {
                let want: Vec<i64> = (0..m * n)
                    .map(|at_c| {
                        let (i, j) = (at_c / n, at_c % n);
                        let products = (0..k).map(|l| i64::from(a[i * k + l]) * i64::from(b[l * at.0 + j * at.1]));
                        products.sum()
                    })
                    .collect();
                Path::for_each(|path| {
                    let got = product_codes(m, n, k, Matrix::rows(&a, k), b_matrix);
                    let got: Vec<i64> = got.into_iter().map(i64::from).collect();
                    assert!(got == want, "{m} × {n} × {k} on {path:?}");
                });
            }
        }
    }

    #[test]
    fn the_largest_sums_that_fit_are_exact() {
        let k = (1 << 17) - 1;
        for (a, b) in [(-128i8, -128i8), (-128, 127), (127, -128)] {
            let want = i64::from(a) * i64::from(b) * k as i64;
            let (a, b) = (vec![a; k], vec![b; k]);
            Path::for_each(|path| {
                let got = product_codes(1, 1, k, Matrix::rows(&a, k), Matrix::transposed(&b, k));
                assert_eq!(
                    got.iter().map(|v| i64::from(*v)).collect::<Vec<_>>(),
                    [want],
                    "{path:?}"
                );
            });
        }
    }

    #[test]
    #[should_panic(expected = "may not fit")]
    fn longer_sums_are_refused() {
        let a = vec![0i8; 1 << 17];
        product_codes(
            1,
            1,
            a.len(),
            Matrix::rows(&a, a.len()),
            Matrix::transposed(&a, a.len()),
        );
    }
}
