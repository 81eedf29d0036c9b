//! Attention block of a decode step with the sliding window and the rows of compress ratio 4 that the lightning indexer chooses.

mod case;
mod draw;
mod reference;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

pub use case::DecodeAttentionCsa;
pub(crate) use reference::{CsaReference, block_reference};

use super::compressor::decode::StepArgs;
use super::decode_attend::{TOKENS, matrix};
use super::decode_attention::{
    BlockArgs, BlockWeights, CacheRows, FrontScratch, RequestAngles, back, front, rope_rows,
};
use super::decode_compressor::{DecodeCompressorArgs, DecodeCompressorScratch, decode_compressor};
use super::decode_indexer::{COLUMNS, DecodeIndexerArgs, DecodeIndexerScratch, IndexerWeights, decode_indexer};
use super::decode_indexer_compressor::DecodeIndexerCompressorArgs;
use super::decode_sparse_attn::{CsaSparseArgs, CsaSparseScratch, decode_sparse_attn};
use crate::creates::{Created, Creates};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::{Form, INDEX, RATIO_4};
use crate::model::{HEAD_DIM, HIDDEN, INDEX_DIM, REQUESTS, ROPE_DIM, STEP_TOKENS};
use crate::scopes::BodyScopes;

/// The main compressor of these blocks.
const FORM: Form = RATIO_4;

/// Weights.
#[derive(Clone, Debug)]
pub(crate) struct CsaWeights {
    pub(crate) block: BlockWeights,
    pub(crate) compressor: CompressorWeights,
    pub(crate) indexer: IndexerWeights,
    /// Rotation of index queries and keys, [128, 128] bf16.
    pub(crate) hadamard: Tensor,
}

/// A compressor's state and where its rows lie.
#[derive(Clone, Debug)]
pub(crate) struct StateArgs {
    /// Rolling state, [65, 4, 2·out] f32, updated.
    pub(crate) state: Tensor,
    /// Its pages, [4, 4096] i32.
    pub(crate) block_table: Tensor,
    /// State row of each token, 8 i64, −1 for none.
    pub(crate) slot_mapping: Tensor,
}

/// Arguments.
#[derive(Clone, Debug)]
pub(crate) struct CsaBlockArgs {
    pub(crate) block: BlockArgs,
    /// Of the main compressor.
    pub(crate) main: StateArgs,
    /// Of the indexer's compressor.
    pub(crate) inner: StateArgs,
    /// Compressed pool, [32, 128, 1, 512] bf16; the mapped rows are written.
    pub(crate) cmp_kv: Tensor,
    /// Its pages, [4, 32] i32.
    pub(crate) cmp_block_table: Tensor,
    /// Compressed row that each token completes, 8 i64, −1 for none.
    pub(crate) cmp_slot_mapping: Tensor,
    /// Index keys, [64, 128, 1, 128] i8; the mapped rows are written.
    pub(crate) idx_kv_cache: Tensor,
    /// Their scales, [64, 128, 1, 1] f32.
    pub(crate) idx_kv_scale: Tensor,
    /// Their pages, [4, 64] i32.
    pub(crate) idx_block_table: Tensor,
    /// Key that each token completes, 8 i64, −1 for none.
    pub(crate) idx_slot_mapping: Tensor,
    /// Positions that each request has after the step, 4 i32.
    pub(crate) kv_seq_lens: Tensor,
}

/// The tensors that the body creates, in source order.
#[derive(Debug)]
pub(crate) struct CsaBlockScratch {
    front: FrontScratch,
    /// Angles of each request: cosines and sines of its first token, then of the start of that one's window.
    angles: [Created; 4],
    cmp_out: Created,
    compressor: DecodeCompressorScratch,
    idx_kv: Created,
    idx_score: Created,
    idx_topk: Created,
    indexer: DecodeIndexerScratch,
    attn_out: Created,
    sparse: CsaSparseScratch,
}

impl CsaBlockScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let (front, angles) = FrontScratch::declare(creates, |creates| {
            ["step_cos", "step_sin", "cmp_cos", "cmp_sin"]
                .map(|name| matrix(creates, name, DType::F32, REQUESTS, ROPE_DIM / 2))
        });
        let mut step = |name, dtype, width| creates.tensor(name, dtype, &[REQUESTS, STEP_TOKENS, width]);
        let cmp_out = step("cmp_out", DType::F32, HEAD_DIM);
        let compressor = DecodeCompressorScratch::declare(creates, &FORM);
        let mut step = |name, dtype, width| creates.tensor(name, dtype, &[REQUESTS, STEP_TOKENS, width]);
        Self {
            front,
            angles,
            cmp_out,
            compressor,
            idx_kv: step("idx_kv_unused", DType::F32, INDEX_DIM),
            idx_score: step("idx_score_unused", DType::F32, COLUMNS),
            idx_topk: step("idx_topk_full", DType::I32, COLUMNS),
            indexer: DecodeIndexerScratch::declare(creates),
            attn_out: matrix(creates, "attn_out", DType::Bf16, TOKENS, HIDDEN),
            sparse: CsaSparseScratch::declare(creates),
        }
    }

    /// Angles of the first tokens.
    fn step_angles(&self) -> RequestAngles {
        RequestAngles {
            ratio: 1,
            cos: self.angles[0].tensor(),
            sin: self.angles[1].tensor(),
        }
    }

    /// Angles of the starts of the windows.
    fn window_angles(&self) -> RequestAngles {
        RequestAngles {
            ratio: FORM.ratio,
            cos: self.angles[2].tensor(),
            sin: self.angles[3].tensor(),
        }
    }
}

impl CsaBlockArgs {
    /// Arguments of the main compressor.
    fn compressor(&self, x: &Tensor, angles: RequestAngles, kv: &Tensor, cmp_kv: &Tensor) -> DecodeCompressorArgs {
        DecodeCompressorArgs {
            step: self.step(FORM, &self.main, x, angles, &self.cmp_slot_mapping),
            kv: kv.clone(),
            cmp_kv: cmp_kv.clone(),
        }
    }

    fn step(&self, form: Form, state: &StateArgs, x: &Tensor, angles: RequestAngles, slots: &Tensor) -> StepArgs {
        StepArgs {
            form,
            x: x.clone(),
            state: state.state.clone(),
            state_table: state.block_table.clone(),
            state_slots: state.slot_mapping.clone(),
            positions: self.block.position_ids.clone(),
            slots: slots.clone(),
            cos: angles.cos,
            sin: angles.sin,
        }
    }

    /// Arguments of the indexer, given the low-rank queries and where its results go (keys, scores, lists).
    ///
    /// Its compressor turns keys by the angles of the first token, not of the window: so does the original.
    fn indexer(
        &self,
        hadamard: &Tensor,
        x: &Tensor,
        angles: RequestAngles,
        (qr, qr_scale): (&Tensor, &Tensor),
        [kv, score, topk]: [&Tensor; 3],
    ) -> DecodeIndexerArgs {
        DecodeIndexerArgs {
            inner: DecodeIndexerCompressorArgs {
                step: self.step(INDEX, &self.inner, x, angles, &self.idx_slot_mapping),
                hadamard: hadamard.clone(),
                kv: kv.clone(),
                cache: self.idx_kv_cache.clone(),
                scale: self.idx_kv_scale.clone(),
            },
            qr: qr.clone(),
            qr_scale: qr_scale.clone(),
            key_table: self.idx_block_table.clone(),
            kv_seq_lens: self.kv_seq_lens.clone(),
            score: score.clone(),
            topk: topk.clone(),
            offset: 0,
        }
    }
}

/// Submits the block: 48 launches and barriers here, eight in the bodies of a loop and 24 tasks in a manual scope.
pub(crate) fn decode_attention_csa(
    o: &mut Orchestrator<'_>,
    args: &CsaBlockArgs,
    weights: &CsaWeights,
    s: &CsaBlockScratch,
    bodies: BodyScopes,
) -> Result<(), Halted> {
    let late = front(o, &args.block, &weights.block, &s.front, |o| {
        let tokens = Some((&*s.front.rope_cos, &*s.front.rope_sin));
        rope_rows(o, "csa_rope_step", &args.block, tokens, Some(s.step_angles()))?;
        rope_rows(o, "csa_cmp_rope", &args.block, None, Some(s.window_angles()))
    })?;
    let rows = CacheRows::new(&args.block, &s.front);
    let task = rows.task("csa_cache_writeback").run(move |block| rows.write(block));
    o.submit(task)?;
    let x = &s.front.x_normed;
    let compressor = args.compressor(x, s.window_angles(), &s.cmp_out, &args.cmp_kv);
    decode_compressor(o, &compressor, &weights.compressor, late, &s.compressor)?;
    let indexer = args.indexer(
        &weights.hadamard,
        x,
        s.step_angles(),
        (&s.front.qr, &s.front.qr_scale),
        [&s.idx_kv, &s.idx_score, &s.idx_topk],
    );
    decode_indexer(o, &indexer, &weights.indexer, late, &s.indexer)?;
    let sparse = CsaSparseArgs {
        attn: s.front.attention(&args.block, &weights.block, &s.attn_out),
        window_indices: args.block.window_indices.clone(),
        cmp_kv: args.cmp_kv.clone(),
        cmp_block_table: args.cmp_block_table.clone(),
        idx_topk: s.idx_topk.reshape(&[TOKENS, COLUMNS]),
        position_ids: args.block.position_ids.clone(),
    };
    decode_sparse_attn(o, &sparse, &weights.block.out, &s.sparse, bodies)?;
    back(o, &args.block, &s.front, &s.attn_out)
}
