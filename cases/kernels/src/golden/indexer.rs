//! Reference of the lightning indexer: int8 queries, head weights, scores and their order.

use half::bf16;
use rayon::prelude::*;

use super::{CodedRows, Direction, Matrix, code_rows, product, product_codes, rotate};
use crate::model::{HIDDEN, INDEX_DIM, INDEX_HEADS, INDEX_TOPK, Q_LORA, ROPE_DIM};

/// All heads side by side.
const WIDTH: usize = INDEX_HEADS * INDEX_DIM;

/// What the queries and weights are made of, row-major.
#[derive(Clone, Copy, Debug)]
pub struct IndexerIn<'a> {
    /// T × 7168.
    pub x: &'a [bf16],
    /// T × 1536.
    pub qr: &'a [i8],
    /// T.
    pub qr_scale: &'a [f32],
    /// 1536 × 8192.
    pub wq_b: &'a [i8],
    /// 8192.
    pub wq_b_scale: &'a [f32],
    /// 7168 × 64.
    pub weights_proj: &'a [bf16],
    /// 128 × 128.
    pub hadamard: &'a [bf16],
    /// rows × 32: cosines.
    pub cos: &'a [f32],
    /// rows × 32: sines.
    pub sin: &'a [f32],
    /// Tokens that share a row of angles.
    pub tokens_per_angle: usize,
}

impl IndexerIn<'_> {
    fn tokens(&self) -> usize {
        self.qr_scale.len()
    }

    /// Queries and head weights.
    pub fn heads(&self) -> Heads {
        Heads {
            queries: self.queries(),
            weights: self.head_weights(),
        }
    }

    fn queries(&self) -> CodedRows {
        let tokens = self.tokens();
        let up = product_codes(
            tokens,
            WIDTH,
            Q_LORA,
            Matrix::rows(self.qr, Q_LORA),
            Matrix::rows(self.wq_b, WIDTH),
        );
        let mut heads = vec![bf16::ZERO; up.len()];
        heads
            .par_chunks_mut(INDEX_DIM)
            .zip(up.par_chunks(INDEX_DIM))
            .enumerate()
            .for_each(|(row, (out, acc))| {
                let (t, h) = (row / INDEX_HEADS, row % INDEX_HEADS);
                let scale = &self.wq_b_scale[h * INDEX_DIM..][..INDEX_DIM];
                let mut head: Vec<f32> = acc
                    .iter()
                    .zip(scale)
                    .map(|(a, s)| (*a as f32 * self.qr_scale[t]) * s)
                    .collect();
                let angle = t / self.tokens_per_angle * (ROPE_DIM / 2);
                let lanes = &mut head[INDEX_DIM - ROPE_DIM..];
                rotate(
                    lanes,
                    |i| self.cos[angle + i],
                    |i| self.sin[angle + i],
                    Direction::Forward,
                );
                out.iter_mut().zip(head).for_each(|(o, v)| *o = bf16::from_f32(v));
            });
        let turned = product(
            tokens * INDEX_HEADS,
            INDEX_DIM,
            INDEX_DIM,
            Matrix::rows(&heads, INDEX_DIM),
            Matrix::rows(self.hadamard, INDEX_DIM),
        );
        let turned: Vec<f32> = turned.into_iter().map(|v| v as f32).collect();
        code_rows(&turned, INDEX_DIM)
    }

    fn head_weights(&self) -> Vec<f32> {
        let scale = (1.0 / (INDEX_DIM as f64 * INDEX_HEADS as f64).sqrt()) as f32;
        let raw = product(
            self.tokens(),
            INDEX_HEADS,
            HIDDEN,
            Matrix::rows(self.x, HIDDEN),
            Matrix::rows(self.weights_proj, INDEX_HEADS),
        );
        raw.into_iter().map(|v| v as f32 * scale).collect()
    }
}

/// Queries and head weights of all tokens.
#[derive(Clone, Debug)]
pub struct Heads {
    /// A row of 128 codes per token and head, with its scale.
    pub queries: CodedRows,
    /// T × 64.
    pub weights: Vec<f32>,
}

/// A pool of keys: rows of 128 codes with a scale each.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    /// Codes.
    pub codes: &'a [i8],
    /// Scales.
    pub scales: &'a [f32],
}

/// Scores and lists of all tokens, row-major.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The lowest finite number where a token does not see the column.
    pub scores: Vec<f32>,
    /// Columns best first, then −1.
    pub lists: Vec<i32>,
}

impl Heads {
    /// Scores of token `t` over these rows of the pool.
    fn scores(&self, t: usize, rows: &[usize], keys: Keys<'_>) -> Vec<f32> {
        let codes: Vec<i8> = rows
            .iter()
            .flat_map(|r| &keys.codes[r * INDEX_DIM..][..INDEX_DIM])
            .copied()
            .collect();
        let first = t * INDEX_HEADS;
        let acc = product_codes(
            rows.len(),
            INDEX_HEADS,
            INDEX_DIM,
            Matrix::rows(&codes, INDEX_DIM),
            Matrix::transposed(&self.queries.codes[first * INDEX_DIM..], INDEX_DIM),
        );
        let score = |(acc, row): (&[i32], &usize)| {
            let head = |h: usize| {
                let positive = (acc[h] as f32 * self.queries.scales[first + h]).max(0.0);
                f64::from(positive) * f64::from(self.weights[first + h])
            };
            (0..INDEX_HEADS).map(head).sum::<f64>() as f32 * keys.scales[*row]
        };
        acc.chunks(INDEX_HEADS).zip(rows).map(score).collect()
    }

    /// Scores and lists of `columns` a token, of which token `t` sees `visible[t]`; `row(t, j)` is the pool's row of its column `j`.
    pub fn rank(
        &self,
        (columns, offset): (usize, i32),
        visible: &[usize],
        keys: Keys<'_>,
        row: impl Fn(usize, usize) -> usize,
    ) -> Ranked {
        let mut ranked = Ranked {
            scores: vec![f32::MIN; visible.len() * columns],
            lists: vec![-1; visible.len() * columns],
        };
        for (t, &visible) in visible.iter().enumerate().filter(|(_, visible)| **visible > 0) {
            let rows: Vec<usize> = (0..visible).map(|j| row(t, j)).collect();
            let scores = self.scores(t, &rows, keys);
            let list = ranked.lists[t * columns..][..columns].iter_mut().zip(order(&scores));
            list.for_each(|(entry, column)| *entry = column as i32 + offset);
            ranked.scores[t * columns..][..visible].copy_from_slice(&scores);
        }
        ranked
    }
}

/// Columns of the largest 1024 scores, descending, the first of equal ones first.
fn order(scores: &[f32]) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..scores.len()).collect();
    columns.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    columns.truncate(INDEX_TOPK);
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_heads_do_not_count_and_scales_do() {
        let mut codes = vec![0i8; 2 * INDEX_DIM];
        (codes[0], codes[INDEX_DIM]) = (10, -10);
        let mut queries = vec![0i8; INDEX_HEADS * INDEX_DIM];
        (queries[0], queries[INDEX_DIM]) = (3, -3);
        let mut weights = vec![0f32; INDEX_HEADS];
        (weights[0], weights[1]) = (1.0, -2.0);
        let heads = Heads {
            queries: CodedRows {
                codes: queries,
                scales: vec![0.1; INDEX_HEADS],
            },
            weights,
        };
        let keys = Keys {
            codes: &codes,
            scales: &[0.5, 0.25],
        };
        // Column j is row 1 − j. Row 0 meets head 0 (30 · 0.1 · 1), row 1 head 1 (30 · 0.1 · −2).
        let ranked = heads.rank((3, 10), &[2], keys, |_, j| 1 - j);
        assert_eq!(ranked.scores, [-6.0 * 0.25, 3.0 * 0.5, f32::MIN]);
        assert_eq!(ranked.lists, [11, 10, -1]);
        assert_eq!(order(&[0.5, 2.0, 2.0, -1.0]), [1, 2, 0, 3]);
    }
}
