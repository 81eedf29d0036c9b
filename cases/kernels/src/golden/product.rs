//! Matrix products of the references.
//!
//! Floating-point operands are multiplied and added in f64, through `matrixmultiply`; int8 codes are multiplied exactly,
//! through [`codes`]. Operands are widened block by block, so that a product takes megabytes beside its operands.

mod codes;

use half::bf16;
use rayon::prelude::*;

pub use codes::product_codes;

/// An operand element.
pub trait Wide: Copy + Sync + Send {
    /// Exact value.
    fn wide(self) -> f64;
}

impl Wide for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Wide for bf16 {
    fn wide(self) -> f64 {
        f64::from(f32::from_bits(u32::from(self.to_bits()) << 16))
    }
}

/// A matrix in a slice, element `(i, j)` at `i · row + j · col`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T> {
    data: &'a [T],
    row: usize,
    col: usize,
}

impl<'a, T: Copy> Matrix<'a, T> {
    /// Rows of contiguous elements, `stride` apart.
    pub fn rows(data: &'a [T], stride: usize) -> Self {
        Self {
            data,
            row: stride,
            col: 1,
        }
    }

    /// The transpose of rows of contiguous elements, `stride` apart.
    pub fn transposed(data: &'a [T], stride: usize) -> Self {
        Self {
            data,
            row: 1,
            col: stride,
        }
    }

    fn transpose(self) -> Self {
        Self {
            row: self.col,
            col: self.row,
            ..self
        }
    }

    /// Widens elements `(i0.., j0..)` into a dense block in the operand's own storage order, so that both sides
    /// are walked along contiguous memory; hands back the block's row and column strides.
    fn block<F>(
        self,
        (i0, rows): (usize, usize),
        (j0, cols): (usize, usize),
        out: &mut Vec<F>,
        to: impl Fn(T) -> F,
    ) -> (isize, isize) {
        out.clear();
        if self.col == 1 {
            for i in i0..i0 + rows {
                out.extend(self.data[i * self.row + j0..][..cols].iter().map(|v| to(*v)));
            }
            (cols as isize, 1)
        } else {
            assert_eq!(self.row, 1, "a matrix is contiguous along one of its axes");
            for j in j0..j0 + cols {
                out.extend(self.data[j * self.col + i0..][..rows].iter().map(|v| to(*v)));
            }
            (1, rows as isize)
        }
    }
}

/// Columns of a block.
const BLOCK_N: usize = 256;
/// Length of the inner dimension of a block.
const BLOCK_K: usize = 1024;

#[expect(unsafe_code, reason = "matrixmultiply takes raw pointers and strides")]
fn dgemm(m: usize, k: usize, n: usize, a: (&[f64], isize, isize), b: (&[f64], isize, isize), c: &mut [f64]) {
    assert!(
        a.0.len() >= m * k && b.0.len() >= k * n && c.len() >= m * n,
        "blocks hold what is multiplied"
    );
    // SAFETY: `block` made `a` and `b` dense blocks of m × k and k × n elements with these strides, `c` is dense
    // m × n (asserted above), and it is borrowed exclusively.
    unsafe {
        matrixmultiply::dgemm(
            m,
            k,
            n,
            1.0,
            a.0.as_ptr(),
            a.1,
            a.2,
            b.0.as_ptr(),
            b.1,
            b.2,
            1.0,
            c.as_mut_ptr(),
            n as isize,
            1,
        );
    }
}

/// `a` (m × k) times `b` (k × n) in f64 on the calling thread: for references that are parallel over tokens already.
pub fn product_on<A: Wide, B: Wide>(m: usize, n: usize, k: usize, a: Matrix<'_, A>, b: Matrix<'_, B>) -> Vec<f64> {
    let mut c = vec![0f64; m * n];
    let (mut wide_a, mut wide_b) = (Vec::new(), Vec::new());
    for k0 in (0..k).step_by(BLOCK_K) {
        let depth = BLOCK_K.min(k - k0);
        let (ra, ca) = a.block((0, m), (k0, depth), &mut wide_a, Wide::wide);
        let (rb, cb) = b.block((k0, depth), (0, n), &mut wide_b, Wide::wide);
        dgemm(m, depth, n, (&wide_a, ra, ca), (&wide_b, rb, cb), &mut c);
    }
    c
}

/// Rows of `a` in a block: bounds what a thread widens.
const BLOCK_M: usize = 256;

/// Splits an m × n result into blocks of `block_m` rows, computes them in parallel and puts them together, row-major.
fn blocks<T: Copy + Default + Send + Sync>(
    (m, block_m): (usize, usize),
    n: usize,
    work: impl Fn((usize, usize), (usize, usize)) -> Vec<T> + Sync,
) -> Vec<T> {
    let list: Vec<_> = (0..n)
        .step_by(BLOCK_N)
        .flat_map(|j| {
            (0..m)
                .step_by(block_m)
                .map(move |i| ((i, block_m.min(m - i)), (j, BLOCK_N.min(n - j))))
        })
        .collect();
    let parts: Vec<_> = list
        .into_par_iter()
        .map(|(rows, cols)| (rows, cols, work(rows, cols)))
        .collect();
    let mut out = vec![T::default(); m * n];
    for ((i0, rows), (j0, cols), part) in parts {
        for i in 0..rows {
            out[(i0 + i) * n + j0..][..cols].copy_from_slice(&part[i * cols..][..cols]);
        }
    }
    out
}

/// `a` (m × k) times `b` (k × n), multiplied and added in f64, row-major.
pub fn product<A: Wide, B: Wide>(m: usize, n: usize, k: usize, a: Matrix<'_, A>, b: Matrix<'_, B>) -> Vec<f64> {
    blocks((m, BLOCK_M), n, |rows, cols| {
        let mut c = vec![0f64; rows.1 * cols.1];
        let (mut wide_a, mut wide_b) = (Vec::new(), Vec::new());
        for k0 in (0..k).step_by(BLOCK_K) {
            let depth = BLOCK_K.min(k - k0);
            let (ra, ca) = a.block(rows, (k0, depth), &mut wide_a, Wide::wide);
            let (rb, cb) = b.block((k0, depth), cols, &mut wide_b, Wide::wide);
            dgemm(rows.1, depth, cols.1, (&wide_a, ra, ca), (&wide_b, rb, cb), &mut c);
        }
        c
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Stream;

    #[test]
    fn products_agree_with_the_naive_loop() {
        let (m, n, k) = (260, 270, 1100);
        let bytes = |name: &str, n: usize| {
            let stream = Stream::new(1, name);
            (0..n).map(move |i| f32::from(stream.bits(i as u64) as i8))
        };
        let a: Vec<f32> = bytes("a", m * k).map(|v| v / 64.0).collect();
        let b: Vec<bf16> = bytes("b", n * k).map(bf16::from_f32).collect();
        for (matrix, at) in [(Matrix::rows(&b, n), (n, 1)), (Matrix::transposed(&b, k), (1, k))] {
            let whole = product(m, n, k, Matrix::rows(&a, k), matrix);
            let one = product_on(m, n, k, Matrix::rows(&a, k), matrix);
            for (i, j) in [(0, 0), (259, 269), (100, 256), (256, 3)] {
                let want: f64 = (0..k)
                    .map(|l| f64::from(a[i * k + l]) * b[l * at.0 + j * at.1].wide())
                    .sum();
                assert_eq!(
                    (whole[i * n + j], one[i * n + j]),
                    (want, want),
                    "exact: the values have few bits"
                );
            }
        }
    }
}
