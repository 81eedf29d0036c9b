//! Attention block of a decode step with the sliding window and all complete rows of compress ratio 128.

mod case;

use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

pub use case::DecodeAttentionHca;
pub(crate) use case::{DIST, HcaReference, block_reference};

use super::compressor::decode::StepArgs;
use super::decode_attend::{TOKENS, matrix};
use super::decode_attention::{
    BlockArgs, BlockWeights, CacheRows, FrontScratch, RequestAngles, back, front, rope_rows,
};
use super::decode_compressor::{DecodeCompressorArgs, DecodeCompressorScratch, decode_compressor};
use super::decode_sparse_attn_hca::{COMPRESSED, HcaSparseArgs, HcaSparseScratch, decode_sparse_attn_hca};
use crate::creates::{Created, Creates};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::{Form, RATIO_128};
use crate::model::{HEAD_DIM, HIDDEN, REQUESTS, ROPE_DIM, STEP_TOKENS};

/// The compressor of these blocks.
const FORM: Form = RATIO_128;

/// Weights.
#[derive(Clone, Debug)]
pub(crate) struct HcaWeights {
    pub(crate) block: BlockWeights,
    pub(crate) compressor: CompressorWeights,
}

/// Arguments.
#[derive(Clone, Debug)]
pub(crate) struct HcaBlockArgs {
    pub(crate) block: BlockArgs,
    /// Rolling state of the compressor, [64, 8, 1024] f32, updated.
    pub(crate) compress_state: Tensor,
    /// Its pages, [4, 2048] i32.
    pub(crate) state_block_table: Tensor,
    /// State row of each token, 8 i64, −1 for none.
    pub(crate) state_slot_mapping: Tensor,
    /// Compressed pool, [32, 128, 1, 512] bf16; the mapped rows are written.
    pub(crate) cmp_kv: Tensor,
    /// Its pages, [4, 32] i32.
    pub(crate) cmp_block_table: Tensor,
    /// Compressed row that each token completes, 8 i64, −1 for none.
    pub(crate) cmp_slot_mapping: Tensor,
    /// Positions that each request has after the step, 4 i32.
    pub(crate) kv_seq_lens: Tensor,
}

/// The tensors that the body creates, in source order.
#[derive(Debug)]
pub(crate) struct HcaBlockScratch {
    front: FrontScratch,
    cmp_cos: Created,
    cmp_sin: Created,
    cmp_kv_proj: Created,
    compressor: DecodeCompressorScratch,
    attn_out: Created,
    topk: Created,
    sparse: HcaSparseScratch,
}

impl HcaBlockScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let (front, [cmp_cos, cmp_sin]) = FrontScratch::declare(creates, |creates| {
            ["cmp_cos", "cmp_sin"].map(|name| matrix(creates, name, DType::F32, REQUESTS, ROPE_DIM / 2))
        });
        Self {
            front,
            cmp_cos,
            cmp_sin,
            cmp_kv_proj: creates.tensor("cmp_kv_proj", DType::F32, &[REQUESTS, STEP_TOKENS, HEAD_DIM]),
            compressor: DecodeCompressorScratch::declare(creates, &FORM),
            attn_out: matrix(creates, "attn_out", DType::Bf16, TOKENS, HIDDEN),
            topk: matrix(creates, "topk_all", DType::I32, TOKENS, COMPRESSED),
            sparse: HcaSparseScratch::declare(creates),
        }
    }

    fn angles(&self) -> RequestAngles {
        RequestAngles {
            ratio: FORM.ratio,
            cos: self.cmp_cos.tensor(),
            sin: self.cmp_sin.tensor(),
        }
    }
}

/// Submits the block: 32 launches and barriers here, and 48 tasks in a manual scope.
pub(crate) fn decode_attention_hca(
    o: &mut Orchestrator<'_>,
    args: &HcaBlockArgs,
    weights: &HcaWeights,
    s: &HcaBlockScratch,
) -> Result<(), Halted> {
    let late = front(o, &args.block, &weights.block, &s.front, |o| {
        let tokens = Some((&*s.front.rope_cos, &*s.front.rope_sin));
        rope_rows(o, "hca_rope", &args.block, tokens, Some(s.angles()))
    })?;
    let rows = CacheRows::new(&args.block, &s.front);
    let task = rows.task("hca_cache_writeback").run(move |block| rows.write(block));
    o.submit(task)?;
    let compressor = DecodeCompressorArgs {
        step: StepArgs {
            form: FORM,
            x: s.front.x_normed.tensor(),
            state: args.compress_state.clone(),
            state_table: args.state_block_table.clone(),
            state_slots: args.state_slot_mapping.clone(),
            positions: args.block.position_ids.clone(),
            slots: args.cmp_slot_mapping.clone(),
            cos: s.cmp_cos.tensor(),
            sin: s.cmp_sin.tensor(),
        },
        kv: s.cmp_kv_proj.tensor(),
        cmp_kv: args.cmp_kv.clone(),
    };
    decode_compressor(o, &compressor, &weights.compressor, late, &s.compressor)?;
    topk(o, args, &s.topk)?;
    let sparse = HcaSparseArgs {
        attn: s.front.attention(&args.block, &weights.block, &s.attn_out),
        window_indices: args.block.window_indices.clone(),
        cmp_kv: args.cmp_kv.clone(),
        cmp_block_table: args.cmp_block_table.clone(),
        cmp_indices: s.topk.tensor(),
    };
    decode_sparse_attn_hca(o, &sparse, &weights.block.out, &s.sparse)?;
    back(o, &args.block, &s.front, &s.attn_out)
}

/// Lists the complete rows of each token: no choice is made, all are seen.
fn topk(o: &mut Orchestrator<'_>, args: &HcaBlockArgs, lists: &Tensor) -> Result<(), Halted> {
    let (positions, lens, target) = (args.block.position_ids.clone(), args.kv_seq_lens.clone(), lists.clone());
    let task = Task::new("hca_cache_topk", Unit::Scalar)
        .input(&positions)
        .input(&lens)
        .write(lists)
        .run(move |block| {
            let (positions, lens) = (block.read::<i32>(&positions), block.read::<i32>(&lens));
            let mut lists = block.write::<i32>(&target);
            for (t, list) in lists.chunks_mut(COMPRESSED).enumerate() {
                let complete = (positions[t] + 1).min(lens[t / STEP_TOKENS]) / FORM.ratio as i32;
                for (k, entry) in (0..).zip(list) {
                    *entry = if k < complete { k } else { -1 };
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
