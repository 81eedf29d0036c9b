//! Reference of the prefill sparse attention and its output projection.

use half::bf16;
use rayon::prelude::*;

use super::{CodedRows, Direction, Matrix, code_rows, product, product_codes, product_on, rotate};
use crate::model::{
    CMP_PAGES, GROUP_DIM, GROUP_HEADS, HEAD_DIM, HEADS, HIDDEN, INDEX_TOPK, NOPE_DIM, O_GROUPS, O_LORA, PAGE, ROPE_DIM,
    WINDOW,
};

/// Rows that are attended to at a time.
const TILE: usize = 128;
/// Compressed columns that are looked at.
const CMP_COLUMNS: usize = 256;

/// Arguments, row-major as in the spec.
#[derive(Clone, Copy, Debug)]
pub struct SparseIn<'a> {
    /// T × 128 × 512.
    pub q: &'a [bf16],
    /// Pages × 128 × 512.
    pub ori_kv: &'a [bf16],
    /// T × 128.
    pub swa_indices: &'a [i32],
    /// 32 × 128 × 512.
    pub cmp_kv: &'a [bf16],
    /// 32.
    pub cmp_block_table: &'a [i32],
    /// T × 1024.
    pub cmp_indices: &'a [i32],
    /// 128.
    pub attn_sink: &'a [f32],
    /// Rows of T × 64, of which the first 32 columns count.
    pub rope_cos: &'a [bf16],
    /// T × 64.
    pub rope_sin: &'a [bf16],
    /// 16 × 1024 × 4096.
    pub wo_a: &'a [bf16],
    /// 7168 × 16384.
    pub wo_b: &'a [i8],
    /// 7168.
    pub wo_b_scale: &'a [f32],
    /// Tokens that attend; the others come out as zero.
    pub num_tokens: usize,
}

/// Running softmax of one head over tiles of rows.
struct Head {
    max: f32,
    sum: f32,
    out: Vec<f32>,
}

impl SparseIn<'_> {
    fn tokens(&self) -> usize {
        self.q.len() / (HEADS * HEAD_DIM)
    }

    /// The rows that token `t` sees, one after the other.
    fn rows_of(&self, t: usize) -> Vec<bf16> {
        let mut rows = Vec::new();
        let window = self.swa_indices[t * WINDOW..][..WINDOW].iter().filter(|r| **r >= 0);
        for r in window {
            rows.extend_from_slice(&self.ori_kv[*r as usize * HEAD_DIM..][..HEAD_DIM]);
        }
        for c in self.cmp_indices[t * INDEX_TOPK..][..CMP_COLUMNS]
            .iter()
            .filter(|c| **c >= 0)
        {
            let column = *c as usize;
            if column >= CMP_PAGES * PAGE || self.cmp_block_table[column / PAGE] < 0 {
                continue;
            }
            let row = self.cmp_block_table[column / PAGE] as usize * PAGE + column % PAGE;
            rows.extend_from_slice(&self.cmp_kv[row * HEAD_DIM..][..HEAD_DIM]);
        }
        rows
    }

    /// Attention output of token `t`, 128 × 512, with its rotary lanes turned back.
    fn attend(&self, t: usize) -> Vec<bf16> {
        let rows = self.rows_of(t);
        let angles = [self.rope_cos, self.rope_sin].map(|table| &table[t * ROPE_DIM..][..ROPE_DIM]);
        let q = &self.q[t * HEADS * HEAD_DIM..][..HEADS * HEAD_DIM];
        attend(q, rows.chunks(TILE * HEAD_DIM), self.attn_sink, angles)
    }

    /// The attended rows, T × 128 × 512; zero from `num_tokens` on.
    pub fn attention(&self) -> Vec<bf16> {
        let width = HEADS * HEAD_DIM;
        let mut out = vec![bf16::ZERO; self.tokens() * width];
        out.par_chunks_mut(width)
            .take(self.num_tokens)
            .enumerate()
            .for_each(|(t, row)| row.copy_from_slice(&self.attend(t)));
        out
    }

    /// The layer's output, T × 7168.
    pub fn output(&self) -> Vec<bf16> {
        output_projection(&self.attention(), self.wo_a, self.wo_b, self.wo_b_scale)
    }
}

/// Attention of one token, queries `q` 128 × 512, over blocks of 512-wide rows: one softmax step per block, ascending, with
/// the weights of a block rounded to bf16 relative to its own largest score. Rotary lanes are turned back by `angles`
/// (cosines, sines). Without any row the result is zero.
pub(super) fn attend<'a>(
    q: &[bf16],
    blocks: impl Iterator<Item = &'a [bf16]>,
    sink: &[f32],
    [rope_cos, rope_sin]: [&[bf16]; 2],
) -> Vec<bf16> {
    let scale = (HEAD_DIM as f64).sqrt().recip() as f32;
    let mut heads: Vec<Head> = (0..HEADS)
        .map(|_| Head {
            max: f32::NEG_INFINITY,
            sum: 0.0,
            out: vec![0.0; HEAD_DIM],
        })
        .collect();
    for tile in blocks {
        let n = tile.len() / HEAD_DIM;
        let keys = Matrix::transposed(tile, HEAD_DIM);
        let scores = product_on(HEADS, n, HEAD_DIM, Matrix::rows(q, HEAD_DIM), keys);
        let scores: Vec<f32> = scores.iter().map(|s| *s as f32 * scale).collect();
        let maxima: Vec<f32> = scores
            .chunks(n)
            .map(|row| row.iter().fold(f32::NEG_INFINITY, |m, s| m.max(*s)))
            .collect();
        let weight = |(i, s): (usize, &f32)| f64::from(s - maxima[i / n]).exp() as f32;
        let weights: Vec<f32> = scores.iter().enumerate().map(weight).collect();
        let narrow = super::narrow(&weights);
        let part = product_on(
            HEADS,
            HEAD_DIM,
            n,
            Matrix::rows(&narrow, n),
            Matrix::rows(tile, HEAD_DIM),
        );
        for (h, head) in heads.iter_mut().enumerate() {
            let max = head.max.max(maxima[h]);
            let factor = |m: f32| f64::from(m - max).exp() as f32;
            let (old, new) = (factor(head.max), factor(maxima[h]));
            let sum: f32 = weights[h * n..][..n].iter().sum();
            head.sum = old * head.sum + new * sum;
            for (o, p) in head.out.iter_mut().zip(&part[h * HEAD_DIM..]) {
                *o = old * *o + new * *p as f32;
            }
            head.max = max;
        }
    }
    let mut out = Vec::with_capacity(HEADS * HEAD_DIM);
    for (h, head) in heads.iter_mut().enumerate() {
        let sink = f64::from(sink[h] - head.max).exp() as f32;
        let denominator = head.sum + sink;
        head.out.iter_mut().for_each(|o| *o /= denominator);
        let (cos, sin) = (|i: usize| rope_cos[i].to_f32(), |i: usize| rope_sin[i].to_f32());
        rotate(&mut head.out[NOPE_DIM..], cos, sin, Direction::Inverse);
        out.extend(head.out.iter().map(|v| bf16::from_f32(*v)));
    }
    out
}

/// Grouped low-rank projection of attended rows T × 128 × 512: bf16 per group, int8 back to 7168.
pub fn output_projection(attended: &[bf16], wo_a: &[bf16], wo_b: &[i8], wo_b_scale: &[f32]) -> Vec<bf16> {
    let tokens = attended.len() / (HEADS * HEAD_DIM);
    let mut sum = vec![0f32; tokens * HIDDEN];
    for g in 0..O_GROUPS {
        let a = Matrix::rows(&attended[g * GROUP_HEADS * HEAD_DIM..], HEADS * HEAD_DIM);
        let w = Matrix::transposed(&wo_a[g * O_LORA * GROUP_DIM..], GROUP_DIM);
        let low: Vec<f32> = product(tokens, O_LORA, GROUP_DIM, a, w)
            .iter()
            .map(|v| *v as f32)
            .collect();
        let CodedRows { codes, scales } = code_rows(&low, O_LORA);
        let back = Matrix::transposed(&wo_b[g * O_LORA..], O_GROUPS * O_LORA);
        let part = product_codes(tokens, HIDDEN, O_LORA, Matrix::rows(&codes, O_LORA), back);
        sum.par_chunks_mut(HIDDEN)
            .zip(part.par_chunks(HIDDEN))
            .zip(&scales[..])
            .for_each(|((sum, part), scale)| {
                sum.iter_mut().zip(part).for_each(|(s, p)| *s += *p as f32 * scale);
            });
    }
    sum.par_chunks(HIDDEN)
        .flat_map_iter(|row| row.iter().zip(wo_b_scale).map(|(s, w)| bf16::from_f32(s * w)))
        .collect()
}
