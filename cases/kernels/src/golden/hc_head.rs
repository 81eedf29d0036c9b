//! Reference of `hc_head`.

use half::bf16;
use rayon::prelude::*;

use super::{inv_rms, sigmoid};
use crate::model::{HC_DIM, HC_EPS, HIDDEN, RMS_EPS, STREAMS};

/// Chunk of the sum of squares.
const CHUNK: usize = 512;
/// Parts of the projection's sum.
const SPLIT: usize = 8;

/// Dot product in f64, rounded once.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
}

/// The reference, for any number of tokens: `x` [T, 4, 7168], `weight` [4, 28672], `scale` and `base` \[4\].
pub fn hc_head(x: &[f32], weight: &[f32], scale: f32, base: &[f32]) -> Vec<bf16> {
    const PART: usize = HC_DIM / SPLIT;
    let mut y = vec![bf16::ZERO; x.len() / STREAMS];
    y.par_chunks_mut(HIDDEN).zip(x.par_chunks(HC_DIM)).for_each(|(y, x)| {
        let inv = inv_rms(x, CHUNK, RMS_EPS);
        let gates: [f32; STREAMS] = std::array::from_fn(|h| {
            let row = &weight[h * HC_DIM..][..HC_DIM];
            let parts = x.chunks(PART).zip(row.chunks(PART)).map(|(x, w)| dot(x, w));
            let mixed = parts.fold(0.0, |sum, part| sum + part);
            sigmoid((mixed * inv) * scale + base[h]) + HC_EPS
        });
        for (d, y) in y.iter_mut().enumerate() {
            let stream = |h: usize| x[h * HIDDEN + d] * gates[h];
            *y = bf16::from_f32((stream(0) + stream(1)) + (stream(2) + stream(3)));
        }
    });
    y
}
