//! Scores and weighted rows of all heads of a token over one block of rows.

use half::bf16;
use ring_runtime::{Block, DType, TaskBuilder, Tensor, Tile, TileMut};

use super::{HEAD_TILE, HEAD_TILES, KEYS, TOKENS, matrix};
use crate::creates::{Created, Creates};
use crate::model::{HEAD_DIM, HEADS};
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math};

/// Largest score of a block that is left out.
const DEAD: f32 = -3e38;

/// Largest score, sum of the weights, and weighted rows, per token, head and block of rows.
///
/// Row `((t · 8 + h / 16) · blocks + b) · 16 + h mod 16`: the blocks of a head tile lie together.
#[derive(Debug)]
pub(crate) struct BlockStats {
    max: Created,
    sum: Created,
    out: Created,
    blocks: usize,
}

/// [`BlockStats`] once allocated.
#[derive(Clone, Debug)]
pub(crate) struct StatTensors {
    pub(super) max: Tensor,
    pub(super) sum: Tensor,
    pub(super) out: Tensor,
    pub(super) blocks: usize,
}

impl BlockStats {
    /// Declares the three tensors for `blocks` blocks a token.
    pub(crate) fn declare(creates: &mut Creates, blocks: usize) -> Self {
        let rows = TOKENS * HEADS * blocks;
        Self {
            max: matrix(creates, "sparse_blk_mi", DType::F32, rows, 1),
            sum: matrix(creates, "sparse_blk_li", DType::F32, rows, 1),
            out: matrix(creates, "sparse_blk_oi", DType::F32, rows, HEAD_DIM),
            blocks,
        }
    }

    /// Handles for tasks.
    pub(crate) fn tensors(&self) -> StatTensors {
        StatTensors {
            max: self.max.tensor(),
            sum: self.sum.tensor(),
            out: self.out.tensor(),
            blocks: self.blocks,
        }
    }
}

impl StatTensors {
    /// Declares that `task` fills them.
    pub(crate) fn written_by(&self, task: TaskBuilder) -> TaskBuilder {
        task.write(&self.max).write(&self.sum).write(&self.out)
    }

    /// Declares that `task` reads them.
    pub(super) fn read_by(&self, task: TaskBuilder) -> TaskBuilder {
        task.input(&self.max).input(&self.sum).input(&self.out)
    }

    /// First row of block `b` of a head tile of token `t`.
    pub(super) fn first_row(&self, t: usize, tile: usize, b: usize) -> usize {
        ((t * HEAD_TILES + tile) * self.blocks + b) * HEAD_TILE
    }

    /// Leaves block `b` of token `t` out: it adds nothing in the merge.
    pub(crate) fn skip(&self, block: &Block<'_>, t: usize, b: usize) {
        for tile in 0..HEAD_TILES {
            let first = self.first_row(t, tile, b);
            let rows = first..first + HEAD_TILE;
            block.write::<f32>(&self.max.rows(rows.clone())).fill(DEAD);
            block.write::<f32>(&self.sum.rows(rows.clone())).fill(0.0);
            block.write::<f32>(&self.out.rows(rows)).fill(0.0);
        }
    }
}

/// Room for the heads of one token over one block of rows.
#[derive(Debug)]
pub(crate) struct HeadBatch {
    scores: Vec<f32>,
    weights: Vec<bf16>,
    out: Vec<f32>,
}

impl HeadBatch {
    pub(crate) fn new() -> Self {
        Self {
            scores: vec![0.0; HEADS * KEYS],
            weights: vec![bf16::ZERO; HEADS * KEYS],
            out: vec![0.0; HEADS * HEAD_DIM],
        }
    }

    /// Attends with `q` [128, 512] to `rows` [128, 512] under `bias`, and stores the statistics of block `b` of token `t`.
    pub(crate) fn attend(
        &mut self,
        block: &Block<'_>,
        stats: &StatTensors,
        (t, b): (usize, usize),
        (q, rows, bias): (Tile<'_, bf16>, Tile<'_, bf16>, &[f32]),
    ) {
        let scale = (HEAD_DIM as f32).sqrt().recip();
        let mut scores = TileMut::new(&mut self.scores, HEADS, KEYS);
        gemm(q, Rhs::Nk(rows), &mut scores, Store::Overwrite);
        let (mut max, mut sum) = ([0f32; HEADS], [0f32; HEADS]);
        for h in 0..HEADS {
            let scores = &mut self.scores[h * KEYS..][..KEYS];
            math::scale_bias(scores, scale, bias);
            let parts = math::softmax_parts(scores);
            (max[h], sum[h]) = (parts.max, parts.sum);
            // The sum is that of the weights before rounding.
            cast::narrow(scores, &mut self.weights[h * KEYS..][..KEYS]);
        }
        let mut out = TileMut::new(&mut self.out, HEADS, HEAD_DIM);
        gemm(
            Tile::new(&self.weights, HEADS, KEYS),
            Rhs::Kn(rows),
            &mut out,
            Store::Overwrite,
        );
        for tile in 0..HEAD_TILES {
            let first = stats.first_row(t, tile, b);
            let (rows, heads) = (first..first + HEAD_TILE, tile * HEAD_TILE..(tile + 1) * HEAD_TILE);
            block
                .write::<f32>(&stats.max.rows(rows.clone()))
                .copy_from_slice(&max[heads.clone()]);
            block
                .write::<f32>(&stats.sum.rows(rows.clone()))
                .copy_from_slice(&sum[heads.clone()]);
            let lanes = heads.start * HEAD_DIM..heads.end * HEAD_DIM;
            block
                .write::<f32>(&stats.out.rows(rows))
                .copy_from_slice(&self.out[lanes]);
        }
    }
}
