//! Reference of `mtp_projection`.

use half::bf16;
use rayon::prelude::*;

use super::expert::Projection;
use super::{CodedRows, code_rows, inv_rms, widen};
use crate::model::{HIDDEN, RMS_EPS, STREAMS};

/// Chunk of the sums of squares.
const CHUNK: usize = 128;

/// What turns one kind of hidden rows into its part of the sum.
#[derive(Clone, Copy, Debug)]
pub struct Branch<'a> {
    /// Gain of the norm, 7168.
    pub norm: &'a [f32],
    /// Factors before quantisation, 7168.
    pub smooth: &'a [f32],
    /// Projection, 7168 × 7168.
    pub projection: Projection<'a>,
}

impl Branch<'_> {
    /// Norm, codes and projection of rows of 7168.
    fn apply(&self, rows: &[f32]) -> Vec<f32> {
        let mut normed = rows.to_vec();
        normed.par_chunks_mut(HIDDEN).for_each(|row| {
            let inv = inv_rms(row, CHUNK, RMS_EPS);
            for ((x, norm), smooth) in row.iter_mut().zip(self.norm).zip(self.smooth) {
                *x = ((*x * inv) * norm) * smooth;
            }
        });
        let CodedRows { codes, scales } = code_rows(&normed, HIDDEN);
        let acc = self.projection.apply(&codes);
        let column = |i: usize| self.projection.scales[i % HIDDEN];
        acc.iter()
            .enumerate()
            .map(|(i, acc)| (*acc as f32 * scales[i / HIDDEN]) * column(i))
            .collect()
    }
}

/// The reference: `hidden` T × 7168 through `embedding`, `previous` T × 4 × 7168 through `stream`, and their sum.
pub fn mtp_projection(hidden: &[bf16], previous: &[f32], embedding: &Branch<'_>, stream: &Branch<'_>) -> Vec<f32> {
    let e = embedding.apply(&widen(hidden));
    let mut out = stream.apply(previous);
    for (row, out) in out.chunks_mut(HIDDEN).enumerate() {
        let e = &e[row / STREAMS * HIDDEN..][..HIDDEN];
        out.iter_mut().zip(e).for_each(|(p, e)| *p += e);
    }
    out
}
