//! Reference of `gate`.

use half::bf16;
use rayon::prelude::*;

use super::{Matrix, inv_rms, product, round_code, widen};
use crate::model::{CHOSEN, HASH_LAYERS, HIDDEN, RMS_EPS, ROUTE_SCALE};

/// Chunk of the sum of squares.
const CHUNK: usize = 896;
/// Rows that are normalised at a time.
const ROWS: usize = 16;

/// What a layer's router makes of T tokens. Rows that the program leaves alone are zero here.
#[derive(Clone, Debug)]
pub struct Gate {
    /// Codes of the normalised rows, T × 7168.
    pub x_i8: Vec<i8>,
    /// Their scales, T.
    pub x_scale: Vec<f32>,
    /// Rows of `x_i8` that the program writes.
    pub rows: usize,
    /// Tokens in use.
    pub active: usize,
    /// Scores without the bias, T × N.
    pub score: Vec<f32>,
    /// Scores with it: what decides in a layer that routes by score.
    pub biased: Vec<f32>,
    /// Chosen experts, T × 6.
    pub indices: Vec<i32>,
    /// Their weights, T × 6.
    pub weights: Vec<f32>,
}

/// Arguments of the reference.
#[derive(Clone, Copy, Debug)]
pub struct GateInput<'a> {
    /// Rows, T × 7168.
    pub x: &'a [bf16],
    /// Gain, 7168.
    pub norm: &'a [bf16],
    /// Projection, N × 7168.
    pub projection: &'a [f32],
    /// Selection bias, N.
    pub bias: &'a [f32],
    /// Experts of each token id, 6 a row.
    pub table: &'a [i32],
    /// Token ids, T.
    pub input_ids: &'a [i64],
    /// Layer.
    pub layer_id: i32,
    /// Tokens in use, before clamping.
    pub num_tokens: i32,
}

/// √ln(1 + eᶻ), in f64.
fn score(z: f32) -> f32 {
    let z = f64::from(z);
    (z.max(0.0) + (-z.abs()).exp().ln_1p()).sqrt() as f32
}

/// The reference.
pub fn gate(input: &GateInput<'_>) -> Gate {
    let experts = input.bias.len();
    let tokens = input.x.len() / HIDDEN;
    let active = usize::try_from(input.num_tokens).unwrap_or(0).min(tokens);
    let rows = active.next_multiple_of(ROWS).min(tokens);
    let gain = widen(input.norm);
    let x = widen(&input.x[..rows * HIDDEN]);
    let inv: Vec<f32> = x.par_chunks(HIDDEN).map(|row| inv_rms(row, CHUNK, RMS_EPS)).collect();
    let mut xg = x;
    xg.par_chunks_mut(HIDDEN)
        .for_each(|row| row.iter_mut().zip(&gain).for_each(|(x, g)| *x *= g));
    let logits = product(
        active,
        experts,
        HIDDEN,
        Matrix::rows(&xg, HIDDEN),
        Matrix::transposed(input.projection, HIDDEN),
    );
    let mut out = Gate {
        x_i8: vec![0; tokens * HIDDEN],
        x_scale: vec![0.0; tokens],
        rows,
        active,
        score: vec![0.0; tokens * experts],
        biased: vec![0.0; tokens * experts],
        indices: vec![0; tokens * CHOSEN],
        weights: vec![0.0; tokens * CHOSEN],
    };
    for (t, row) in xg.chunks(HIDDEN).enumerate() {
        let multiplier = 127.0 / row.iter().fold(1e-4f32, |m, v| m.max(v.abs()));
        let codes = &mut out.x_i8[t * HIDDEN..][..HIDDEN];
        codes
            .iter_mut()
            .zip(row)
            .for_each(|(code, v)| *code = round_code(v * multiplier));
        if t < active {
            out.x_scale[t] = (1.0 / multiplier) * inv[t];
        }
    }
    for t in 0..active {
        for n in 0..experts {
            let s = score(logits[t * experts + n] as f32 * inv[t]);
            out.score[t * experts + n] = s;
            out.biased[t * experts + n] = s + input.bias[n];
        }
        let chosen: Vec<i32> = if input.layer_id < HASH_LAYERS {
            input.table[input.input_ids[t] as usize * CHOSEN..][..CHOSEN].to_vec()
        } else {
            let biased = &out.biased[t * experts..][..experts];
            let mut order: Vec<i32> = (0..experts as i32).collect();
            order.sort_by(|a, b| biased[*b as usize].total_cmp(&biased[*a as usize]));
            order[..CHOSEN].to_vec()
        };
        let scores: Vec<f32> = chosen.iter().map(|n| out.score[t * experts + *n as usize]).collect();
        let sum: f32 = scores.iter().sum();
        for k in 0..CHOSEN {
            out.indices[t * CHOSEN + k] = chosen[k];
            out.weights[t * CHOSEN + k] = (scores[k] / sum) * ROUTE_SCALE;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_keep_tiny_values() {
        assert!((score(0.0) - 2f32.ln().sqrt()).abs() < 1e-7);
        assert!((score(-40.0) - (-20f32).exp()).abs() < 1e-14);
        assert!((score(100.0) - 10.0).abs() < 1e-6);
    }
}
