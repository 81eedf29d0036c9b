//! Reference of `hc_pre`.

use half::bf16;
use rayon::prelude::*;

use super::{Matrix, inv_rms, product, row_sum, sigmoid, softmax_rows};
use crate::model::{HC_DIM, HC_EPS, HC_MIX, HIDDEN, RMS_EPS, SINKHORN_ROUNDS, STREAMS};

/// Chunk of the long sums.
const CHUNK: usize = 256;

/// What `hc_pre` makes of T tokens.
#[derive(Clone, Debug)]
pub struct HcPre {
    /// Collapsed rows, T × 7168.
    pub x_mixed: Vec<bf16>,
    /// Gates of the way back, T × 4.
    pub post: Vec<f32>,
    /// Doubly stochastic mixing matrices, T × 16, row-major.
    pub comb: Vec<f32>,
}

/// Row softmax, then normalisation of columns and rows in turn, of one 4 × 4 matrix.
fn sinkhorn(m: &mut [f32]) {
    softmax_rows(m, STREAMS);
    m.iter_mut().for_each(|v| *v += HC_EPS);
    let columns = |m: &mut [f32]| {
        for j in 0..STREAMS {
            let sum = (m[j] + m[4 + j]) + (m[8 + j] + m[12 + j]);
            (0..STREAMS).for_each(|i| m[4 * i + j] /= sum + HC_EPS);
        }
    };
    columns(m);
    for _ in 1..SINKHORN_ROUNDS {
        for row in m.chunks_mut(STREAMS) {
            let sum = row_sum(row, CHUNK);
            row.iter_mut().for_each(|v| *v /= sum + HC_EPS);
        }
        columns(m);
    }
}

/// The reference, of `x` [T, 4, 7168], `weight` [24, 28672], three values of `scale` and 24 of `base`.
pub fn hc_pre(x: &[f32], weight: &[f32], scale: &[f32], base: &[f32]) -> HcPre {
    let tokens = x.len() / HC_DIM;
    let raw = product(
        tokens,
        HC_MIX,
        HC_DIM,
        Matrix::rows(x, HC_DIM),
        Matrix::transposed(weight, HC_DIM),
    );
    let rows: Vec<_> = (0..tokens)
        .into_par_iter()
        .map(|t| {
            let row = &x[t * HC_DIM..][..HC_DIM];
            let inv = inv_rms(row, CHUNK, RMS_EPS);
            let gate = |n: usize, s: f32| {
                let terms: Vec<f32> = row.iter().zip(&weight[n * HC_DIM..]).map(|(x, w)| x * w).collect();
                sigmoid((row_sum(&terms, CHUNK) * inv) * s + base[n])
            };
            let pre: Vec<f32> = (0..4).map(|h| gate(h, scale[0]) + HC_EPS).collect();
            let post: Vec<f32> = (4..8).map(|h| 2.0 * gate(h, scale[1])).collect();
            let mut comb: Vec<f32> = (8..HC_MIX)
                .map(|n| (raw[t * HC_MIX + n] as f32 * inv) * scale[2] + base[n])
                .collect();
            sinkhorn(&mut comb);
            let stream = |i: usize, d: usize| row[i * HIDDEN + d] * pre[i];
            let mixed: Vec<bf16> = (0..HIDDEN)
                .map(|d| bf16::from_f32((stream(0, d) + stream(1, d)) + (stream(2, d) + stream(3, d))))
                .collect();
            (mixed, post, comb)
        })
        .collect();
    let mut out = HcPre {
        x_mixed: Vec::new(),
        post: Vec::new(),
        comb: Vec::new(),
    };
    for (mixed, post, comb) in rows {
        out.x_mixed.extend(mixed);
        out.post.extend(post);
        out.comb.extend(comb);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sinkhorn_ends_doubly_stochastic() {
        let mut m: Vec<f32> = (0..16).map(|i| ((i * 7) % 5) as f32 - 2.0).collect();
        sinkhorn(&mut m);
        for i in 0..4 {
            let row: f32 = (0..4).map(|j| m[4 * i + j]).sum();
            let column: f32 = (0..4).map(|j| m[4 * j + i]).sum();
            assert!((row - 1.0).abs() < 1e-4 && (column - 1.0).abs() < 1e-4, "{m:?}");
        }
    }
}
