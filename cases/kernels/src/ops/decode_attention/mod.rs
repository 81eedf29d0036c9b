//! What the attention blocks of a decode step share: hyper-connection mix, rotary rows, normalisation and projections in
//! front, rows of the step in the pool, and the mix back; with their fixture and reference.

pub(crate) mod draw;
pub(crate) mod reference;
mod rope;

use half::bf16;
use ring_runtime::{Block, DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub(crate) use rope::{RequestAngles, rope_rows};

use super::decode_attend::{DecodeArgs, TOKENS, matrix, pool_rows};
use super::hc_post::{HcPostArgs, hc_post};
use super::hc_pre::{HcPreOut, HcPreScratch, HcWeights, hc_pre};
use super::prefill_sparse_attn::OutWeights;
use super::qkv_proj_rope::{QkvArgs, QkvScratch, QkvWeights, qkv_proj_rope};
use super::rmsnorm::rms_norm;
use crate::creates::{Created, Creates};
use crate::fixture::RopeTables;
use crate::model::{HEAD_DIM, HEADS, HIDDEN, Q_LORA, ROPE_DIM, STREAMS};
use crate::ops::tapped::Tapped;

/// Weights of a block, but for those of compressors and indexers.
#[derive(Clone, Debug)]
pub(crate) struct BlockWeights {
    pub(crate) hc: HcWeights,
    /// Gain before the projections, \[7168\] bf16.
    pub(crate) norm: Tensor,
    pub(crate) qkv: QkvWeights,
    /// Sink of each head, \[128\] f32.
    pub(crate) attn_sink: Tensor,
    pub(crate) out: OutWeights,
}

/// Activations, pool and metadata of a step that every block has.
#[derive(Clone, Debug)]
pub(crate) struct BlockArgs {
    /// Streams, [8, 4, 7168] f32.
    pub(crate) x_hc: Tensor,
    /// Tables of all positions, each [16384, 64] bf16.
    pub(crate) rope: RopeTables,
    /// Original pool, [128, 128, 1, 512] bf16; the mapped rows are written.
    pub(crate) kv_cache: Tensor,
    /// Physical row of each token, 8 i64, −1 for none.
    pub(crate) slot_mapping: Tensor,
    /// Physical rows of each window with those of the step, [8, 128] i32, −1 for none.
    pub(crate) window_indices: Tensor,
    /// Positions, 8 i32.
    pub(crate) position_ids: Tensor,
    /// Streams after the block, [8, 4, 7168] f32, written.
    pub(crate) x_out: Tapped,
}

/// The tensors in front of the attention, in source order.
#[derive(Debug)]
pub(crate) struct FrontScratch {
    x_mixed: Created,
    post: Created,
    comb: Created,
    hc_pre: HcPreScratch,
    pub(crate) rope_cos: Created,
    pub(crate) rope_sin: Created,
    pub(crate) x_normed: Created,
    q: Created,
    pub(crate) kv: Created,
    pub(crate) qr: Created,
    pub(crate) qr_scale: Created,
    qkv: QkvScratch,
}

impl FrontScratch {
    /// Declares them; `angles` declares what stands behind the rotary rows.
    pub(crate) fn declare<R>(creates: &mut Creates, angles: impl FnOnce(&mut Creates) -> R) -> (Self, R) {
        let x_mixed = matrix(creates, "x_mixed", DType::Bf16, TOKENS, HIDDEN);
        let post = matrix(creates, "post_t", DType::F32, TOKENS, STREAMS);
        let comb = matrix(creates, "comb_t", DType::F32, TOKENS, STREAMS * STREAMS);
        let hc_pre = HcPreScratch::declare(creates, TOKENS);
        let rope_cos = matrix(creates, "rope_cos_t", DType::Bf16, TOKENS, ROPE_DIM);
        let rope_sin = matrix(creates, "rope_sin_t", DType::Bf16, TOKENS, ROPE_DIM);
        let angles = angles(creates);
        let scratch = Self {
            x_mixed,
            post,
            comb,
            hc_pre,
            rope_cos,
            rope_sin,
            x_normed: matrix(creates, "x_normed", DType::Bf16, TOKENS, HIDDEN),
            q: creates.tensor("q", DType::Bf16, &[TOKENS, HEADS, HEAD_DIM]),
            kv: matrix(creates, "kv", DType::Bf16, TOKENS, HEAD_DIM),
            qr: matrix(creates, "qr", DType::I8, TOKENS, Q_LORA),
            qr_scale: matrix(creates, "qr_scale", DType::F32, TOKENS, 1),
            qkv: QkvScratch::declare(creates, TOKENS),
        };
        (scratch, angles)
    }

    /// Arguments of the sparse attention behind it.
    pub(crate) fn attention(&self, args: &BlockArgs, weights: &BlockWeights, attn_out: &Tensor) -> DecodeArgs {
        DecodeArgs {
            q: self.q.tensor(),
            ori_kv: args.kv_cache.clone(),
            attn_sink: weights.attn_sink.clone(),
            rope_cos: self.rope_cos.tensor(),
            rope_sin: self.rope_sin.tensor(),
            attn_out: attn_out.clone(),
        }
    }
}

/// Submits the mix (8 launches), what `rope` submits, the normalisation, a barrier behind it, and the projections (9).
///
/// Returns the barrier, which holds work back that should not come before the query projection.
pub(crate) fn front(
    o: &mut Orchestrator<'_>,
    args: &BlockArgs,
    weights: &BlockWeights,
    s: &FrontScratch,
    rope: impl FnOnce(&mut Orchestrator<'_>) -> Result<(), Halted>,
) -> Result<TaskId, Halted> {
    let mixed = HcPreOut {
        x_mixed: s.x_mixed.tensor(),
        post: s.post.tensor(),
        comb: s.comb.tensor(),
    };
    hc_pre(o, &args.x_hc, &weights.hc, &mixed, &s.hc_pre)?;
    rope(o)?;
    let normed = rms_norm(o, &s.x_mixed, &weights.norm, &s.x_normed)?;
    let late = Task::new("late_dep", Unit::Scalar).after(normed).dependency_only();
    let late = o.submit(late)?.id;
    let qkv = QkvArgs {
        x: s.x_normed.tensor(),
        rope_cos: s.rope_cos.tensor(),
        rope_sin: s.rope_sin.tensor(),
        q: s.q.tensor(),
        kv: s.kv.tensor(),
        qr: s.qr.tensor(),
        qr_scale: s.qr_scale.tensor(),
    };
    qkv_proj_rope(o, &qkv, &weights.qkv, late, &s.qkv)?;
    Ok(late)
}

/// Submits the mix back of `attn_out` [8, 7168] bf16.
pub(crate) fn back(
    o: &mut Orchestrator<'_>,
    args: &BlockArgs,
    s: &FrontScratch,
    attn_out: &Tensor,
) -> Result<(), Halted> {
    let args = HcPostArgs {
        x: attn_out.clone(),
        residual: args.x_hc.clone(),
        post: s.post.tensor(),
        comb: s.comb.tensor(),
        y: args.x_out.clone(),
    };
    hc_post(o, &args)
}

/// The step's rows on their way into the pool.
#[derive(Clone, Debug)]
pub(crate) struct CacheRows {
    kv: Tensor,
    mapping: Tensor,
    pool: Tensor,
}

impl CacheRows {
    pub(crate) fn new(args: &BlockArgs, s: &FrontScratch) -> Self {
        Self {
            kv: s.kv.tensor(),
            mapping: args.slot_mapping.clone(),
            pool: args.kv_cache.clone(),
        }
    }

    /// A task with the arguments that [`CacheRows::write`] takes.
    pub(crate) fn task(&self, name: &'static str) -> ring_runtime::TaskBuilder {
        Task::new(name, Unit::Vector)
            .input(&self.kv)
            .input(&self.mapping)
            .inout(&self.pool)
    }

    /// Copies each token's row to where the mapping says, in ascending order: of two tokens on one row the later stays.
    pub(crate) fn write(&self, block: &Block<'_>) {
        let (rows, mapping) = (block.tile::<bf16>(&self.kv), block.read::<i64>(&self.mapping));
        let pool = pool_rows(&self.pool);
        for (t, slot) in mapping.iter().enumerate() {
            if let Ok(slot) = usize::try_from(*slot) {
                let mut target = block.write::<bf16>(&pool.rows(slot..slot + 1));
                target.copy_from_slice(rows.tile().row(t));
            }
        }
    }
}
