//! Prefill attention block with the sliding window only: hyper-connection mix, projections, cache write, sparse attention, mix back.

pub(crate) mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

pub use case::PrefillAttentionSwa;

use super::hc_post::{HcPostArgs, hc_post_prefill};
use super::hc_pre::{HcPreOut, HcPreScratch, HcWeights, hc_pre};
use super::prefill_sparse_attn::{OutWeights, SparseArgs, SparseScratch, prefill_sparse_attn};
use super::qkv_proj_rope::{QkvArgs, QkvScratch, QkvWeights, materialize_rope_rows, qkv_proj_rope};
use super::rmsnorm::rms_norm;
use crate::creates::{Created, Creates};
use crate::fixture::RopeTables;
use crate::model::{
    CMP_PAGES, HEAD_DIM, HEADS, HIDDEN, INDEX_TOPK, PAGE, PREFILL_TOKENS, Q_LORA, ROPE_DIM, STREAMS, WINDOW,
};

/// Static number of tokens.
const TOKENS: usize = PREFILL_TOKENS;

/// Weights of the block.
#[derive(Clone, Debug)]
pub(crate) struct SwaWeights {
    pub(crate) hc: HcWeights,
    /// Gain before the projections, [7168] bf16.
    pub(crate) norm: Tensor,
    pub(crate) qkv: QkvWeights,
    /// Sink of each head, [128] f32.
    pub(crate) attn_sink: Tensor,
    pub(crate) out: OutWeights,
}

/// Activations, pools and tables of one tile.
#[derive(Clone, Debug)]
pub(crate) struct SwaArgs {
    /// Streams, [128, 4, 7168] f32.
    pub(crate) x_hc: Tensor,
    /// Tables of all positions, each [16384, 64] bf16.
    pub(crate) rope: RopeTables,
    /// Original pool, [pages, 128, 1, 512] bf16, rows of the new tokens are written.
    pub(crate) kv_cache: Tensor,
    /// Pages of the request, [pages] i32.
    pub(crate) block_table: Tensor,
    /// Physical row of each new token, [128] i64, −1 for none.
    pub(crate) ori_slot_mapping: Tensor,
    /// [128] i32.
    pub(crate) position_ids: Tensor,
    /// Streams after the block, [128, 4, 7168] f32, written.
    pub(crate) x_out: Tensor,
    /// Tokens that are live.
    pub(crate) num_tokens: usize,
}

/// The tensors that the body creates, in source order.
#[derive(Debug)]
pub(crate) struct SwaScratch {
    x_mixed: Created,
    post: Created,
    comb: Created,
    hc_pre: HcPreScratch,
    x_normed: Created,
    rope_cos: Created,
    rope_sin: Created,
    q: Created,
    kv: Created,
    qr: Created,
    qr_scale: Created,
    qkv: QkvScratch,
    swa_indices: Created,
    cmp_block_table: Created,
    cmp_kv: Created,
    cmp_indices: Created,
    attn_out: Created,
    sparse: SparseScratch,
}

impl SwaScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        // Fields are evaluated as they are written: that is the order of the allocation batches.
        Self {
            x_mixed: creates.tensor("x_mixed", DType::Bf16, &[TOKENS, HIDDEN]),
            post: creates.tensor("post", DType::F32, &[TOKENS, STREAMS]),
            comb: creates.tensor("comb", DType::F32, &[TOKENS, STREAMS * STREAMS]),
            hc_pre: HcPreScratch::declare(creates, TOKENS),
            x_normed: creates.tensor("x_normed", DType::Bf16, &[TOKENS, HIDDEN]),
            rope_cos: creates.tensor("rope_cos_t", DType::Bf16, &[TOKENS, ROPE_DIM]),
            rope_sin: creates.tensor("rope_sin_t", DType::Bf16, &[TOKENS, ROPE_DIM]),
            q: creates.tensor("q", DType::Bf16, &[TOKENS, HEADS, HEAD_DIM]),
            kv: creates.tensor("kv", DType::Bf16, &[TOKENS, HEAD_DIM]),
            qr: creates.tensor("qr", DType::I8, &[TOKENS, Q_LORA]),
            qr_scale: creates.tensor("qr_scale", DType::F32, &[TOKENS, 1]),
            qkv: QkvScratch::declare(creates, TOKENS),
            swa_indices: creates.tensor("swa_indices", DType::I32, &[TOKENS, WINDOW]),
            cmp_block_table: creates.tensor("cmp_block_table_dummy", DType::I32, &[CMP_PAGES]),
            cmp_kv: creates.tensor("cmp_kv_dummy", DType::Bf16, &[CMP_PAGES, PAGE, 1, HEAD_DIM]),
            cmp_indices: creates.tensor("cmp_indices_dummy", DType::I32, &[TOKENS, INDEX_TOPK]),
            attn_out: creates.tensor("attn_out", DType::Bf16, &[TOKENS, HIDDEN]),
            sparse: SparseScratch::declare(creates),
        }
    }
}

/// Submits the block: 31 launches and barriers here, 304 tasks in a manual scope and the mix back one scope deeper.
pub(crate) fn prefill_attention_swa(
    o: &mut Orchestrator<'_>,
    args: &SwaArgs,
    weights: &SwaWeights,
    s: &SwaScratch,
) -> Result<(), Halted> {
    let mixed = HcPreOut {
        x_mixed: s.x_mixed.tensor(),
        post: s.post.tensor(),
        comb: s.comb.tensor(),
    };
    hc_pre(o, &args.x_hc, &weights.hc, &mixed, &s.hc_pre)?;
    let normed = rms_norm(o, &s.x_mixed, &weights.norm, &s.x_normed)?;
    let late = o
        .submit(Task::new("late_dep", Unit::Scalar).after(normed).dependency_only())?
        .id;
    let tables = (&args.rope.cos, &args.rope.sin);
    materialize_rope_rows(
        o,
        tables,
        &args.position_ids,
        args.num_tokens,
        (&s.rope_cos, &s.rope_sin),
    )?;
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
    cache_write(o, args, &s.kv)?;
    window_indices(o, args, &s.swa_indices)?;
    fill(o, "prefill_swa_dummy_cmp_table", Unit::Scalar, &s.cmp_block_table, 0)?;
    fill(o, "prefill_swa_empty_cmp_meta", Unit::Vector, &s.cmp_indices, -1)?;
    let sparse = SparseArgs {
        q: qkv.q,
        ori_kv: args.kv_cache.clone(),
        swa_indices: s.swa_indices.tensor(),
        cmp_kv: s.cmp_kv.tensor(),
        cmp_block_table: s.cmp_block_table.tensor(),
        cmp_indices: s.cmp_indices.tensor(),
        attn_sink: weights.attn_sink.clone(),
        rope_cos: qkv.rope_cos,
        rope_sin: qkv.rope_sin,
        attn_out: s.attn_out.tensor(),
        num_tokens: args.num_tokens,
    };
    prefill_sparse_attn(o, &sparse, &weights.out, &s.sparse)?;
    let back = HcPostArgs {
        x: s.attn_out.tensor(),
        residual: args.x_hc.clone(),
        post: mixed.post,
        comb: mixed.comb,
        y: args.x_out.clone(),
    };
    hc_post_prefill(o, &back, args.num_tokens)
}

/// Copies the rows of live tokens to where the mapping says.
fn cache_write(o: &mut Orchestrator<'_>, args: &SwaArgs, kv: &Tensor) -> Result<(), Halted> {
    let (source, mapping, num_tokens) = (kv.clone(), args.ori_slot_mapping.clone(), args.num_tokens);
    let pool = args.kv_cache.reshape(&[args.kv_cache.len() / HEAD_DIM, HEAD_DIM]);
    let task = Task::new("prefill_swa_cache_write", Unit::Scalar)
        .input(kv)
        .input(&mapping)
        .inout(&args.kv_cache)
        .run(move |block| {
            let (rows, mapping) = (block.tile::<bf16>(&source), block.read::<i64>(&mapping));
            for (t, slot) in mapping.iter().enumerate().take(num_tokens) {
                if let Ok(slot) = usize::try_from(*slot) {
                    block
                        .write::<bf16>(&pool.rows(slot..slot + 1))
                        .copy_from_slice(rows.tile().row(t));
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Lists the physical rows of each live token's window, ascending by position.
fn window_indices(o: &mut Orchestrator<'_>, args: &SwaArgs, indices: &Tensor) -> Result<(), Halted> {
    let (positions, table) = (args.position_ids.clone(), args.block_table.clone());
    let (target, num_tokens) = (indices.clone(), args.num_tokens);
    let task = Task::new("prefill_swa_window_indices", Unit::Scalar)
        .input(&positions)
        .input(&table)
        .write(indices)
        .run(move |block| {
            let (positions, table) = (block.read::<i32>(&positions), block.read::<i32>(&table));
            let mut target = block.write::<i32>(&target);
            target.fill(-1);
            for (t, row) in target.chunks_mut(WINDOW).enumerate().take(num_tokens) {
                let seen = positions[t] as usize + 1;
                let width = WINDOW.min(seen);
                for (k, row) in row.iter_mut().enumerate().take(width) {
                    let position = seen - width + k;
                    let page = table[position / PAGE];
                    if page >= 0 {
                        *row = page * PAGE as i32 + (position % PAGE) as i32;
                    }
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Fills a placeholder.
fn fill(o: &mut Orchestrator<'_>, name: &'static str, unit: Unit, tensor: &Tensor, value: i32) -> Result<(), Halted> {
    let target = tensor.clone();
    let task = Task::new(name, unit)
        .write(tensor)
        .run(move |block| block.write::<i32>(&target).fill(value));
    o.submit(task)?;
    Ok(())
}
