//! What the three sparse attentions of a decode step share: attention over blocks of 128 rows, merge with the sink and
//! inverse rotary, grouped int8 output projection, and the fixture of the standalone programs.
//!
//! They differ in where rows come from, in how many blocks a token has, and in how the work is cut into tasks.

mod attend;
pub(crate) mod draw;
mod merge;
mod projection;

use ring_runtime::{DType, Tensor};

pub(crate) use attend::{BlockStats, HeadBatch};
pub(crate) use merge::{RopeLanes, merge_all, merge_tile, rope_cs};
pub(crate) use projection::{Cut, Dequant, ProjectionScratch, project};

use crate::creates::{Created, Creates};
use crate::model::{DECODE_TOKENS, HEAD_DIM, HEADS, PAGE, WINDOW};

/// Static number of tokens.
pub(crate) const TOKENS: usize = DECODE_TOKENS;
/// Rows of a block.
pub(crate) const KEYS: usize = WINDOW;
/// Score of a column that holds no row.
pub(crate) const MASK: f32 = -1e20;
/// Heads whose statistics lie together.
pub(crate) const HEAD_TILE: usize = 16;
/// Head tiles of a token.
pub(crate) const HEAD_TILES: usize = HEADS / HEAD_TILE;

/// Arguments of every variant.
#[derive(Clone, Debug)]
pub(crate) struct DecodeArgs {
    /// Queries, [8, 128, 512] bf16.
    pub(crate) q: Tensor,
    /// Original pool, [128, 128, 1, 512] bf16.
    pub(crate) ori_kv: Tensor,
    /// Sink of each head, \[128\] f32.
    pub(crate) attn_sink: Tensor,
    /// Cosines of each token, [8, 64] bf16; the first half counts.
    pub(crate) rope_cos: Tensor,
    /// Sines of each token, [8, 64] bf16.
    pub(crate) rope_sin: Tensor,
    /// Result, [8, 7168] bf16, written.
    pub(crate) attn_out: Tensor,
}

/// A pool as rows of 512.
pub(crate) fn pool_rows(pool: &Tensor) -> Tensor {
    pool.reshape(&[pool.len() / HEAD_DIM, HEAD_DIM])
}

/// Physical row of logical compressed row `c` under the table of a request.
pub(crate) fn compressed_row(table: &[i32], c: usize) -> usize {
    table[c / PAGE] as usize * PAGE + c % PAGE
}

/// Declares a matrix.
pub(crate) fn matrix(creates: &mut Creates, name: &'static str, dtype: DType, rows: usize, cols: usize) -> Created {
    creates.tensor(name, dtype, &[rows, cols])
}
