//! Reference of `qkv_proj_rope`.

use half::bf16;
use rayon::prelude::*;

use super::{
    CodedRows, Direction, Matrix, Wide, mean_square_inverse, product, product_codes, rotate, round_code, row_sum,
};
use crate::model::{HEAD_DIM, HEADS, HIDDEN, NOPE_DIM, Q_LORA, RMS_EPS, ROPE_DIM};

/// Arguments, row-major as in the spec.
#[derive(Clone, Copy, Debug)]
pub struct QkvIn<'a> {
    /// T × 7168.
    pub x: &'a [bf16],
    /// 7168 × 1536.
    pub wq_a: &'a [bf16],
    /// 1536 × 65536.
    pub wq_b: &'a [i8],
    /// 65536.
    pub wq_b_scale: &'a [f32],
    /// 7168 × 512.
    pub wkv: &'a [bf16],
    /// 1536.
    pub gamma_cq: &'a [bf16],
    /// 512.
    pub gamma_ckv: &'a [bf16],
    /// T × 64, of which the first 32 columns count.
    pub rope_cos: &'a [bf16],
    /// T × 64.
    pub rope_sin: &'a [bf16],
}

/// A product of bf16 rows with a `k × n` weight: partials over `splits` equal parts of `k`, each rounded to f32, added ascending.
fn split_product(x: &[bf16], w: &[bf16], (n, k): (usize, usize), splits: usize) -> Vec<f32> {
    let tokens = x.len() / k;
    let depth = k / splits;
    let mut sum = vec![0f32; tokens * n];
    for s in 0..splits {
        let part = product(
            tokens,
            n,
            depth,
            Matrix::rows(&x[s * depth..], k),
            Matrix::rows(&w[s * depth * n..], n),
        );
        sum.iter_mut().zip(part).for_each(|(sum, p)| *sum += p as f32);
    }
    sum
}

impl QkvIn<'_> {
    fn tokens(&self) -> usize {
        self.x.len() / HIDDEN
    }

    /// Turns the last 64 lanes of a head by the angle of token `t`.
    fn turn(&self, t: usize, head: &mut [f32]) {
        let angle = |table: &[bf16], i: usize| table[t * ROPE_DIM + i].wide() as f32;
        rotate(
            &mut head[NOPE_DIM..],
            |i| angle(self.rope_cos, i),
            |i| angle(self.rope_sin, i),
            Direction::Forward,
        );
    }

    /// The low-rank query: codes T × 1536 and one scale per token.
    pub fn qr(&self) -> CodedRows {
        let down = split_product(self.x, self.wq_a, (Q_LORA, HIDDEN), 2);
        let rows: Vec<_> = down
            .par_chunks(Q_LORA)
            .map(|row| {
                let squares: Vec<f32> = row.iter().map(|v| v * v).collect();
                let inv = mean_square_inverse(row_sum(&squares, 256), Q_LORA, RMS_EPS);
                let gain = |k: usize| self.gamma_cq[k].to_f32();
                let amax = row
                    .iter()
                    .enumerate()
                    .fold(0f32, |m, (k, v)| m.max((v * gain(k)).abs()));
                let multiplier = 127.0 / (inv * amax).max(1e-4);
                let code = |(k, v): (usize, &f32)| round_code(((v * inv) * gain(k)) * multiplier);
                (row.iter().enumerate().map(code).collect::<Vec<i8>>(), 1.0 / multiplier)
            })
            .collect();
        let scales = rows.iter().map(|(_, scale)| *scale).collect();
        CodedRows {
            codes: rows.into_iter().flat_map(|(codes, _)| codes).collect(),
            scales,
        }
    }

    /// The queries, T × 128 × 512, that these codes lead to.
    pub fn q(&self, qr: &CodedRows) -> Vec<bf16> {
        let width = HEADS * HEAD_DIM;
        let up = product_codes(
            self.tokens(),
            width,
            Q_LORA,
            Matrix::rows(&qr.codes, Q_LORA),
            Matrix::rows(self.wq_b, width),
        );
        let mut q = vec![bf16::ZERO; up.len()];
        q.par_chunks_mut(HEAD_DIM)
            .zip(up.par_chunks(HEAD_DIM))
            .enumerate()
            .for_each(|(i, (q, up))| {
                let (t, h) = (i / HEADS, i % HEADS);
                let scale = &self.wq_b_scale[h * HEAD_DIM..][..HEAD_DIM];
                let mut head: Vec<f32> = up
                    .iter()
                    .zip(scale)
                    .map(|(a, s)| (*a as f32 * qr.scales[t]) * s)
                    .collect();
                let squares: Vec<f32> = head.iter().map(|v| v * v).collect();
                let inv = mean_square_inverse(row_sum(&squares, HEAD_DIM), HEAD_DIM, RMS_EPS);
                head.iter_mut().for_each(|v| *v *= inv);
                self.turn(t, &mut head);
                q.iter_mut().zip(head).for_each(|(q, v)| *q = bf16::from_f32(v));
            });
        q
    }

    /// The shared key-value rows, T × 512.
    pub fn kv(&self) -> Vec<bf16> {
        let mut raw = split_product(self.x, self.wkv, (HEAD_DIM, HIDDEN), 4);
        raw.par_chunks_mut(HEAD_DIM).enumerate().for_each(|(t, row)| {
            let squares: Vec<f32> = row.iter().map(|v| v * v).collect();
            let inv = mean_square_inverse(row_sum(&squares, HEAD_DIM), HEAD_DIM, RMS_EPS);
            row.iter_mut()
                .zip(self.gamma_ckv)
                .for_each(|(v, g)| *v = (*v * inv) * g.to_f32());
            self.turn(t, row);
        });
        super::narrow(&raw)
    }
}
