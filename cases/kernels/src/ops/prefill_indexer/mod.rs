//! Lightning indexer in prefill: int8 heads score the compressed keys that a tile's tokens see, and list them best first.

pub(crate) mod case;
mod query;
mod score;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

pub use case::PrefillIndexer;
pub(crate) use score::topk_copy;

use super::decode_indexer::{IndexerWeights, QUERY};
use super::prefill_indexer_compressor::{
    PrefillIndexerCompressorArgs, PrefillIndexerCompressorScratch, prefill_indexer_compressor,
};
use crate::creates::{Created, Creates};
use crate::model::{INDEX_DIM, INDEX_HEADS, PREFILL_TOKENS, ROPE_DIM};
use crate::scopes::BodyScopes;

/// Most columns that are scored.
pub(crate) const SCORE_CAP: usize = 256;
/// Columns of the buffer that is sorted.
const SORT_WIDTH: usize = 2048;
/// Rows of queries: one per token and head.
const ROWS: usize = PREFILL_TOKENS * INDEX_HEADS;
/// Lanes of a head that are not turned.
const NOPE: usize = INDEX_DIM - ROPE_DIM;

/// Arguments of a tile.
#[derive(Clone, Debug)]
pub(crate) struct PrefillIndexerArgs {
    /// Activations, metadata, rotation and key pools, which the inner compressor updates first.
    pub(crate) inner: PrefillIndexerCompressorArgs,
    /// Low-rank query codes, [128, 1536] i8.
    pub(crate) qr: Tensor,
    /// Their scales, [128, 1] f32.
    pub(crate) qr_scale: Tensor,
    /// Cosines of each token, [128, 32] f32.
    pub(crate) cos: Tensor,
    /// Sines of each token, [128, 32] f32.
    pub(crate) sin: Tensor,
    /// Pages of the keys, \[64\] i32.
    pub(crate) key_table: Tensor,
    /// Scores, [128, 256] f32, written.
    pub(crate) score: Tensor,
    /// Columns best first, then −1: [128, 1024] i32, written.
    pub(crate) topk: Tensor,
}

/// The tensors that the body creates, in source order.
#[derive(Debug)]
pub(crate) struct PrefillIndexerScratch {
    qr_proj: Created,
    rope_out: Created,
    query: Created,
    query_scale: Created,
    weights: Created,
    inner: PrefillIndexerCompressorScratch,
    score_wide: Created,
}

impl PrefillIndexerScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        // Fields are evaluated as they are written: that is the order of the allocation batches.
        Self {
            qr_proj: creates.tensor("qr_proj", DType::F32, &[PREFILL_TOKENS, QUERY]),
            rope_out: creates.tensor("qr_rope_out", DType::Bf16, &[ROWS, ROPE_DIM]),
            query: creates.tensor("qr_hadamard_i8", DType::I8, &[ROWS, INDEX_DIM]),
            query_scale: creates.tensor("qr_hadamard_scale_dq", DType::F32, &[ROWS, 1]),
            weights: creates.tensor("weights", DType::F32, &[PREFILL_TOKENS, INDEX_HEADS]),
            inner: PrefillIndexerCompressorScratch::declare(creates),
            score_wide: creates.tensor("score_wide", DType::F32, &[PREFILL_TOKENS, SORT_WIDTH]),
        }
    }
}

/// Submits seven launches beside those of the inner compressor, and eight more in the bodies of a loop.
pub(crate) fn prefill_indexer(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    args: &PrefillIndexerArgs,
    weights: &IndexerWeights,
    s: &PrefillIndexerScratch,
) -> Result<(), Halted> {
    query::submit(o, args, weights, s)?;
    let completion = prefill_indexer_compressor(o, &args.inner, &weights.inner, &s.inner)?;
    score::submit(o, bodies, args, completion, s)
}
