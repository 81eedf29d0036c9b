//! Lightning indexer in decode: int8 heads score every compressed position of a request, and the best 1024 are listed.

pub(crate) mod case;
mod query;
mod score;

use ring_runtime::{DType, Halted, Orchestrator, TaskId, Tensor};

pub use case::DecodeIndexer;

pub(crate) use query::WEIGHT_SCALE;
pub(crate) use score::{MASKED, descending};

use super::decode_indexer_compressor::{
    DecodeIndexerCompressorArgs, DecodeIndexerCompressorScratch, decode_indexer_compressor,
};
use crate::creates::{Created, Creates};
use crate::fixture::compressor::INDEX;
use crate::fixture::rope::MAX_POSITIONS;
use crate::fixture::{CompressorWeights, Dist, Fixture, Quantised};
use crate::golden::indexer::IndexerIn;
use crate::model::{DECODE_TOKENS, HIDDEN, INDEX_DIM, INDEX_HEADS, MATRIX_ROWS, REQUESTS, ROPE_DIM};

/// Columns of the query projection: all heads side by side.
pub(crate) const QUERY: usize = INDEX_HEADS * INDEX_DIM;
/// Columns of a token's scores.
pub(crate) const COLUMNS: usize = MAX_POSITIONS / INDEX.ratio;
/// Rows of queries: one per token and head.
const ROWS: usize = DECODE_TOKENS * INDEX_HEADS;
/// Parts of the inner dimension of the head weights.
const SPLIT: usize = 7;

/// Weights of the indexer, its compressor's included.
#[derive(Clone, Debug)]
pub(crate) struct IndexerWeights {
    /// Query projection, [1536, 8192] i8 with a scale per column.
    pub(crate) wq_b: Quantised,
    /// Head weights, [7168, 64] bf16.
    pub(crate) weights_proj: Tensor,
    pub(crate) inner: CompressorWeights,
}

impl IndexerWeights {
    /// The specs' weights; streams are named `{prefix}wq_b`, `weights_proj` and `inner_…`.
    pub(crate) fn draw(fixture: Fixture, prefix: &str) -> Self {
        Self {
            wq_b: fixture.index_query_weight(&format!("{prefix}wq_b")),
            weights_proj: fixture.real(
                "weights_proj",
                DType::Bf16,
                &[HIDDEN, INDEX_HEADS],
                Dist::normal(0.2313, 0.0),
            ),
            inner: CompressorWeights::draw(fixture, "inner_", &INDEX),
        }
    }

    /// Calls `work` with the reference's view of queries and head weights; each row of angles serves `tokens_per_angle` tokens.
    pub(crate) fn with_reference<R>(
        &self,
        x: &Tensor,
        (qr, qr_scale): (&Tensor, &Tensor),
        (cos, sin): (&Tensor, &Tensor),
        tokens_per_angle: usize,
        hadamard: &Tensor,
        work: impl FnOnce(IndexerIn<'_>) -> R,
    ) -> R {
        work(IndexerIn {
            x: &x.read(),
            qr: &qr.read(),
            qr_scale: &qr_scale.read(),
            wq_b: &self.wq_b.codes.read(),
            wq_b_scale: &self.wq_b.scales.read(),
            weights_proj: &self.weights_proj.read(),
            hadamard: &hadamard.read(),
            cos: &cos.read(),
            sin: &sin.read(),
            tokens_per_angle,
        })
    }
}

/// Arguments of a step.
#[derive(Clone, Debug)]
pub(crate) struct DecodeIndexerArgs {
    /// Activations, metadata, rotation and key pools, which the inner compressor updates first. The angles are those of
    /// each request's first token, for queries and keys alike.
    pub(crate) inner: DecodeIndexerCompressorArgs,
    /// Low-rank query codes, [8, 1536] i8.
    pub(crate) qr: Tensor,
    /// Their scales, [8, 1] f32.
    pub(crate) qr_scale: Tensor,
    /// Pages of the keys, [4, 64] i32.
    pub(crate) key_table: Tensor,
    /// Positions of each request after the step, \[4\] i32.
    pub(crate) kv_seq_lens: Tensor,
    /// Scores, [8, 4096] f32 (or [4, 2, 4096]); tiles of 128 columns beyond a request's keys are left alone.
    pub(crate) score: Tensor,
    /// Best columns plus `offset`, best first, then −1: [8, 4096] i32 (or [4, 2, 4096]).
    pub(crate) topk: Tensor,
    /// Added to every column.
    pub(crate) offset: i32,
}

/// The tensors that the body creates, in source order.
#[derive(Debug)]
pub(crate) struct DecodeIndexerScratch {
    qr_acc: Created,
    qr_proj: Created,
    qr_bf16: Created,
    cos_il: Created,
    sin_signed: Created,
    swap: Created,
    qh_acc: Created,
    query: Created,
    query_scale: Created,
    weights: Created,
    weights_partial: Created,
    inner: DecodeIndexerCompressorScratch,
    score_acc: Created,
}

impl DecodeIndexerScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        // Fields are evaluated as they are written: that is the order of the allocation batches.
        Self {
            qr_acc: creates.tensor("qr_acc_pad", DType::I32, &[MATRIX_ROWS, QUERY]),
            qr_proj: creates.tensor("qr_proj", DType::F32, &[DECODE_TOKENS, QUERY]),
            qr_bf16: creates.tensor("qr_bf16", DType::Bf16, &[ROWS, INDEX_DIM]),
            cos_il: creates.tensor("cos_il_t", DType::F32, &[REQUESTS, ROPE_DIM]),
            sin_signed: creates.tensor("sin_signed_t", DType::F32, &[REQUESTS, ROPE_DIM]),
            swap: creates.tensor("rope_swap_idx_t", DType::I32, &[1, query::ROPE_ROWS * ROPE_DIM]),
            qh_acc: creates.tensor("qh_acc_gm", DType::F32, &[ROWS, INDEX_DIM]),
            query: creates.tensor("qr_hadamard_i8", DType::I8, &[ROWS, INDEX_DIM]),
            query_scale: creates.tensor("qr_hadamard_scale_dq", DType::F32, &[ROWS, 1]),
            weights: creates.tensor("weights", DType::F32, &[MATRIX_ROWS, INDEX_HEADS]),
            weights_partial: creates.tensor("weights_partial", DType::F32, &[SPLIT * MATRIX_ROWS, INDEX_HEADS]),
            inner: DecodeIndexerCompressorScratch::declare(creates),
            score_acc: creates.tensor("score_acc_gm", DType::I32, &[DECODE_TOKENS * COLUMNS, INDEX_HEADS]),
        }
    }
}

/// Submits the 17 launches; the head weights and the inner projections also wait for `late`.
pub(crate) fn decode_indexer(
    o: &mut Orchestrator<'_>,
    args: &DecodeIndexerArgs,
    weights: &IndexerWeights,
    late: TaskId,
    s: &DecodeIndexerScratch,
) -> Result<(), Halted> {
    query::submit(o, args, weights, late, s)?;
    decode_indexer_compressor(o, &args.inner, &weights.inner, late, &s.inner)?;
    score::submit(o, args, s)
}
