//! Reference of `hc_post`.

use half::bf16;
use rayon::prelude::*;

use crate::model::{HC_DIM, HIDDEN, STREAMS};

/// `y[o] = x · post[o] + Σᵢ residual[i] · comb[i, o]` of the first `live` tokens, zero for the others.
///
/// `x` [T, 7168], `residual` [T, 4, 7168], `post` [T, 4], `comb` [T, 16]; the result is [T, 4, 7168].
pub fn hc_post(x: &[bf16], residual: &[f32], post: &[f32], comb: &[f32], live: usize) -> Vec<f32> {
    let mut y = vec![0f32; residual.len()];
    y.par_chunks_mut(HC_DIM).take(live).enumerate().for_each(|(t, y)| {
        for (i, y) in y.iter_mut().enumerate() {
            let (o, d) = (i / HIDDEN, i % HIDDEN);
            *y = (0..STREAMS).fold(x[t * HIDDEN + d].to_f32() * post[t * STREAMS + o], |sum, i| {
                sum + residual[t * HC_DIM + i * HIDDEN + d] * comb[t * 16 + STREAMS * i + o]
            });
        }
    });
    y
}
