//! Prefill attention over an explicit list of rows per token, with sink, inverse rotary and the grouped int8 output projection.

mod attention;
mod case;
mod output;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

pub use case::PrefillSparseAttn;

use crate::creates::{Created, Creates};
use crate::fixture::{Dist, Fixture, Quantised, Rounding};
use crate::golden::sparse_attn::SparseIn;
use crate::model::{GROUP_DIM, HEAD_DIM, HEADS, HIDDEN, O_GROUPS, O_LORA, PREFILL_TOKENS, ROPE_DIM, WINDOW};

/// Static number of tokens.
const TOKENS: usize = PREFILL_TOKENS;
/// Rows of a block of keys.
const KEYS: usize = WINDOW;
/// Blocks of keys of a token: the window, and two of the compressed pool.
const KEY_BLOCKS: usize = 3;
/// Rows that a token may attend to.
const SLOTS: usize = KEYS * KEY_BLOCKS;
/// Low-rank columns of all groups.
const LOW: usize = O_GROUPS * O_LORA;

/// Weights of the output projection.
#[derive(Clone, Debug)]
pub(crate) struct OutWeights {
    /// [16, 1024, 4096] bf16.
    pub(crate) wo_a: Tensor,
    /// [7168, 16384] i8, one scale per row.
    pub(crate) wo_b: Quantised,
}

impl OutWeights {
    /// Uniform weights with a width of one over the root of the inputs.
    pub(crate) fn draw(fixture: Fixture, rounding: Rounding) -> Self {
        Self::draw_as(fixture, Dist::centred, rounding)
    }

    /// Weights of a distribution that is given by its size, which is one over the root of the inputs.
    pub(crate) fn draw_as(fixture: Fixture, dist: fn(f32) -> Dist, rounding: Rounding) -> Self {
        let dist = |inputs: usize| dist((inputs as f32).sqrt().recip());
        Self {
            wo_a: fixture.real("wo_a", DType::Bf16, &[O_GROUPS, O_LORA, GROUP_DIM], dist(GROUP_DIM)),
            wo_b: fixture.quantised_rows("wo_b", HIDDEN, LOW, dist(LOW), rounding),
        }
    }
}

/// Arguments.
#[derive(Clone, Debug)]
pub(crate) struct SparseArgs {
    /// Queries, [128, 128, 512] bf16.
    pub(crate) q: Tensor,
    /// Original pool, [pages, 128, 1, 512] bf16.
    pub(crate) ori_kv: Tensor,
    /// Physical rows of the window, [128, 128] i32, −1 for none.
    pub(crate) swa_indices: Tensor,
    /// Compressed pool, [32, 128, 1, 512] bf16.
    pub(crate) cmp_kv: Tensor,
    /// Pages of the compressed pool, \[32\] i32.
    pub(crate) cmp_block_table: Tensor,
    /// Logical compressed rows, [128, 1024] i32, −1 for none; columns from 256 on are not read.
    pub(crate) cmp_indices: Tensor,
    /// Sink of each head, \[128\] f32.
    pub(crate) attn_sink: Tensor,
    /// Cosines of each token, [128, 64] bf16; the first half counts.
    pub(crate) rope_cos: Tensor,
    /// Sines of each token, [128, 64] bf16.
    pub(crate) rope_sin: Tensor,
    /// Result, [128, 7168] bf16, written.
    pub(crate) attn_out: Tensor,
    /// Tokens that attend; the rows of others come out as zero.
    pub(crate) num_tokens: usize,
}

impl SparseArgs {
    /// Calls `work` with the reference's view of the arguments.
    pub(crate) fn with_reference<R>(&self, weights: &OutWeights, work: impl FnOnce(SparseIn<'_>) -> R) -> R {
        work(SparseIn {
            q: &self.q.read::<bf16>(),
            ori_kv: &self.ori_kv.read::<bf16>(),
            swa_indices: &self.swa_indices.read::<i32>(),
            cmp_kv: &self.cmp_kv.read::<bf16>(),
            cmp_block_table: &self.cmp_block_table.read::<i32>(),
            cmp_indices: &self.cmp_indices.read::<i32>(),
            attn_sink: &self.attn_sink.read::<f32>(),
            rope_cos: &self.rope_cos.read::<bf16>(),
            rope_sin: &self.rope_sin.read::<bf16>(),
            wo_a: &weights.wo_a.read::<bf16>(),
            wo_b: &weights.wo_b.codes.read::<i8>(),
            wo_b_scale: &weights.wo_b.scales.read::<f32>(),
            num_tokens: self.num_tokens,
        })
    }
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct SparseScratch {
    cos_il: Created,
    sin_signed: Created,
    kv: Created,
    bias: Created,
    blk_mi: Created,
    blk_li: Created,
    blk_oi: Created,
    rope_stage: Created,
    o_packed: Created,
    o_r: Created,
    o_r_i8: Created,
    act_scale: Created,
    partials: Created,
}

impl SparseScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let mut create = |name, dtype, rows, cols| creates.tensor(name, dtype, &[rows, cols]);
        let blocks = TOKENS * KEY_BLOCKS * HEADS;
        Self {
            cos_il: create("rope_cos_il", DType::F32, TOKENS, ROPE_DIM),
            sin_signed: create("rope_sin_signed", DType::F32, TOKENS, ROPE_DIM),
            kv: create("sparse_kv", DType::Bf16, TOKENS * SLOTS, HEAD_DIM),
            bias: create("sparse_bias", DType::F32, TOKENS, SLOTS),
            blk_mi: create("sparse_blk_mi", DType::F32, blocks, 1),
            blk_li: create("sparse_blk_li", DType::F32, blocks, 1),
            blk_oi: create("sparse_blk_oi", DType::F32, blocks, HEAD_DIM),
            rope_stage: create("attn_rope_stage", DType::F32, TOKENS * HEADS, ROPE_DIM),
            o_packed: create("o_packed", DType::Bf16, O_GROUPS * TOKENS, GROUP_DIM),
            o_r: create("o_r", DType::F32, TOKENS, LOW),
            o_r_i8: create("o_r_i8", DType::I8, TOKENS, LOW),
            act_scale: create("act_scale_dq", DType::F32, O_GROUPS, TOKENS),
            partials: create("partials", DType::I32, TOKENS, O_GROUPS * HIDDEN),
        }
    }
}

/// Submits the seven launches and, in a manual scope, the 304 tasks of the output projection.
pub(crate) fn prefill_sparse_attn(
    o: &mut Orchestrator<'_>,
    args: &SparseArgs,
    weights: &OutWeights,
    scratch: &SparseScratch,
) -> Result<(), Halted> {
    let attended = attention::submit(o, args, scratch)?;
    output::submit(o, args, weights, scratch, attended)
}
