//! Reductions of the references: the row-sum model of the specs, inverse roots, softmax.

/// Sum of one group of at most 64 lanes: neighbours are added pairwise, and pairs again, in f32.
fn tree(group: &[f32]) -> f32 {
    let mut lanes = [0f32; 64];
    lanes[..group.len()].copy_from_slice(group);
    let mut n = 64;
    while n > 1 {
        n /= 2;
        for i in 0..n {
            lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
        }
    }
    lanes[0]
}

/// Sum of a row in f32: chunks of `chunk` elements ascending from 0, and in a chunk the pairwise sums of its groups of 64 lanes, ascending.
pub fn row_sum(row: &[f32], chunk: usize) -> f32 {
    row.chunks(chunk)
        .map(|c| c.chunks(64).map(tree).fold(0.0, |s, g| s + g))
        .fold(0.0, |s, c| s + c)
}

/// 1 / √(sum · (1/n) + eps): the mean is taken in f32, the root in f64 and rounded once.
pub fn mean_square_inverse(sum: f32, n: usize, eps: f32) -> f32 {
    let mean = sum * (1.0 / n as f32) + eps;
    (1.0 / f64::from(mean).sqrt()) as f32
}

/// 1 / RMS of a row, its squares summed as in [`row_sum`].
pub fn inv_rms(row: &[f32], chunk: usize, eps: f32) -> f32 {
    let squares: Vec<f32> = row.iter().map(|v| v * v).collect();
    mean_square_inverse(row_sum(&squares, chunk), row.len(), eps)
}

/// Softmax of each row of `cols` elements in place: the maximum is subtracted first, exponentials and sums are in f64.
pub fn softmax_rows(values: &mut [f32], cols: usize) {
    for row in values.chunks_mut(cols) {
        let max = row.iter().fold(f32::NEG_INFINITY, |m, v| m.max(*v));
        let exps: Vec<f64> = row.iter().map(|v| f64::from(*v - max).exp()).collect();
        let sum: f64 = exps.iter().sum();
        row.iter_mut().zip(exps).for_each(|(v, e)| *v = (e / sum) as f32);
    }
}

/// Index of the largest element of each row, the first of equal ones.
pub fn argmax_rows(values: &[f32], cols: usize) -> Vec<usize> {
    let row = |row: &[f32]| {
        row.iter()
            .enumerate()
            .fold(0, |best, (i, v)| if *v > row[best] { i } else { best })
    };
    values.chunks(cols).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_follow_the_tree() {
        // 2²⁴ + 1 is lost in f32 when added in sequence, kept when the ones meet first.
        let mut row = vec![0f32; 64];
        row[0] = 16_777_216.0;
        row[2] = 1.0;
        row[3] = 1.0;
        assert_eq!(row_sum(&row, 64), 16_777_218.0);
        assert_eq!(row_sum(&[1.0; 1000], 256), 1000.0);
        assert_eq!(row_sum(&[], 256), 0.0);
    }

    #[test]
    fn inverse_rms_of_known_rows() {
        assert_eq!(inv_rms(&[3.0; 128], 64, 0.0), 1.0 / 3.0);
        assert!((inv_rms(&[0.0; 128], 64, 1e-6) - 1e3).abs() < 1e-2);
    }

    #[test]
    fn softmax_adds_up_and_survives_large_values() {
        let mut v = vec![1e4, 1e4, -1e4, 0.0, 0.0, 0.0];
        softmax_rows(&mut v, 3);
        assert_eq!(v[..3], [0.5, 0.5, 0.0]);
        assert!(v[3..].iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-7));
        assert_eq!(argmax_rows(&[1.0, 3.0, 3.0, 9.0, 0.0, 0.0], 3), [1, 0]);
    }
}
