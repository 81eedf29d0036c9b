//! Reference of the expert networks.

use half::bf16;
use rayon::prelude::*;

use super::{Matrix, code_rows, product_codes, sigmoid};
use crate::model::{EXPERT_DIM, HIDDEN, SWIGLU_LIMIT};

/// One int8 projection: codes [out, in], a scale per output.
#[derive(Clone, Copy, Debug)]
pub struct Projection<'a> {
    /// Codes, row-major.
    pub codes: &'a [i8],
    /// Scales.
    pub scales: &'a [f32],
}

impl Projection<'_> {
    /// Number `index` of several projections with `outputs` outputs each.
    fn nth(self, index: usize, outputs: usize) -> Self {
        let size = self.codes.len() / self.scales.len() * outputs;
        Self {
            codes: &self.codes[index * size..][..size],
            scales: &self.scales[index * outputs..][..outputs],
        }
    }

    /// Exact products of rows of codes.
    pub(super) fn apply(&self, rows: &[i8]) -> Vec<i32> {
        let inputs = self.codes.len() / self.scales.len();
        product_codes(
            rows.len() / inputs,
            self.scales.len(),
            inputs,
            Matrix::rows(rows, inputs),
            Matrix::transposed(self.codes, inputs),
        )
    }
}

/// The projections of one expert, or of several along a leading axis.
#[derive(Clone, Copy, Debug)]
pub struct Expert<'a> {
    /// w1.
    pub gate: Projection<'a>,
    /// w3.
    pub up: Projection<'a>,
    /// w2.
    pub down: Projection<'a>,
}

impl Expert<'_> {
    /// Number of experts stored.
    fn stored(&self) -> usize {
        self.down.scales.len() / HIDDEN
    }

    fn nth(&self, index: usize) -> Self {
        Self {
            gate: self.gate.nth(index, EXPERT_DIM),
            up: self.up.nth(index, EXPERT_DIM),
            down: self.down.nth(index, HIDDEN),
        }
    }
}

/// Rows of codes `x`, n × 7168, with their scales, through one expert; each result row is multiplied by its `weight`.
pub fn feed_forward(x: &[i8], x_scale: &[f32], weight: &[f32], expert: &Expert<'_>) -> Vec<bf16> {
    let (gate, up) = (expert.gate.apply(x), expert.up.apply(x));
    let mut hidden = vec![0f32; x_scale.len() * EXPERT_DIM];
    hidden.par_chunks_mut(EXPERT_DIM).enumerate().for_each(|(t, row)| {
        for (d, h) in row.iter_mut().enumerate() {
            let value = |acc: &[i32], p: &Projection<'_>| (acc[t * EXPERT_DIM + d] as f32 * x_scale[t]) * p.scales[d];
            let g = value(&gate, &expert.gate).min(SWIGLU_LIMIT);
            let u = value(&up, &expert.up).clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT);
            *h = (g * sigmoid(g)) * u;
        }
    });
    let hidden = code_rows(&hidden, EXPERT_DIM);
    let acc = expert.down.apply(&hidden.codes);
    let mut y = vec![bf16::ZERO; acc.len()];
    y.par_chunks_mut(HIDDEN).enumerate().for_each(|(t, row)| {
        let scale = hidden.scales[t] * weight[t];
        for (d, y) in row.iter_mut().enumerate() {
            *y = bf16::from_f32((acc[t * HIDDEN + d] as f32 * scale) * expert.down.scales[d]);
        }
    });
    y
}

/// What a rank's local experts received, `most` rows at most for each.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Rows, experts × most × 7168.
    pub x: &'a [i8],
    /// Their scales.
    pub scale: &'a [f32],
    /// Their route weights.
    pub weights: &'a [f32],
    /// Rows of each expert.
    pub count: &'a [i32],
}

/// The rows of all experts, experts × most × 7168; zero beyond an expert's count. Expert `e` has the weights of `e` modulo the number stored.
///
/// # Panics
/// If a count is outside of 0 to `most`.
pub fn expert_routed(received: &Received<'_>, experts: &Expert<'_>) -> Vec<bf16> {
    let most = received.scale.len() / received.count.len();
    let mut y = vec![bf16::ZERO; received.x.len()];
    let stored = experts.stored();
    for index in 0..stored {
        // The rows of all experts with these weights at once.
        let rows: Vec<usize> = (index..received.count.len())
            .step_by(stored)
            .flat_map(|e| {
                let count = usize::try_from(received.count[e]).expect("a count is not negative");
                assert!(count <= most, "expert {e} received {count} rows of {most}");
                (0..count).map(move |row| e * most + row)
            })
            .collect();
        if rows.is_empty() {
            continue;
        }
        let x: Vec<i8> = rows
            .iter()
            .flat_map(|r| &received.x[r * HIDDEN..][..HIDDEN])
            .copied()
            .collect();
        let gather = |from: &[f32]| -> Vec<f32> { rows.iter().map(|r| from[*r]).collect() };
        let part = feed_forward(
            &x,
            &gather(received.scale),
            &gather(received.weights),
            &experts.nth(index),
        );
        for (row, part) in rows.iter().zip(part.chunks(HIDDEN)) {
            y[row * HIDDEN..][..HIDDEN].copy_from_slice(part);
        }
    }
    y
}
