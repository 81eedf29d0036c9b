//! What the three prefill attention blocks have in common: everything before the compressed rows, and everything after.

pub(crate) mod fixture;

use half::bf16;
use ring_runtime::{Block, DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::hc_post::{HcPostArgs, hc_post_prefill};
use super::hc_pre::{HcPreOut, HcPreScratch, HcWeights, hc_pre};
use super::prefill_sparse_attn::{OutWeights, SparseArgs, SparseScratch, prefill_sparse_attn};
use super::qkv_proj_rope::{QkvArgs, QkvScratch, QkvWeights, materialize_rope_rows, qkv_proj_rope};
use super::rmsnorm::rms_norm;
use crate::creates::{Created, Creates};
use crate::fixture::RopeTables;
use crate::model::{HEAD_DIM, HEADS, HIDDEN, PAGE, PREFILL_TOKENS, Q_LORA, ROPE_DIM, STREAMS, WINDOW};
use crate::ops::tapped::Tapped;
use crate::scopes::BodyScopes;

/// Static number of tokens.
pub(crate) const TOKENS: usize = PREFILL_TOKENS;

/// Weights that every kind of block has.
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

/// Activations, window pool and tables of one tile.
#[derive(Clone, Debug)]
pub(crate) struct BlockArgs {
    /// Streams, [128, 4, 7168] f32.
    pub(crate) x_hc: Tensor,
    /// Tables of all positions, each [16384, 64] bf16.
    pub(crate) rope: RopeTables,
    /// Original pool, [pages, 128, 1, 512] bf16, rows of the new tokens are written.
    pub(crate) kv_cache: Tensor,
    /// Pages of the request, \[128\] i32.
    pub(crate) block_table: Tensor,
    /// Physical row of each new token, \[128\] i64, −1 for none.
    pub(crate) ori_slot_mapping: Tensor,
    /// Position of each token, \[128\] i32.
    pub(crate) position_ids: Tensor,
    /// Streams after the block, [128, 4, 7168] f32, written.
    pub(crate) x_out: Tapped,
    /// Tokens that are live.
    pub(crate) num_tokens: usize,
}

impl BlockArgs {
    /// The same tile from `x_hc` to `x_out`.
    pub(crate) fn between(&self, x_hc: &Tensor, x_out: impl Into<Tapped>) -> Self {
        Self {
            x_hc: x_hc.clone(),
            x_out: x_out.into(),
            ..self.clone()
        }
    }
}

/// The tensors that the front of a body creates, in source order.
#[derive(Debug)]
pub(crate) struct FrontScratch {
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
}

impl FrontScratch {
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
        }
    }
}

/// What the front hands on.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    mixed: HcPreOut,
    /// Normalised rows, queries and their low-rank codes.
    pub(crate) qkv: QkvArgs,
}

/// Submits the mix, the projections and the cache write `cache_write`: 21 launches and a barrier.
pub(crate) fn front(
    o: &mut Orchestrator<'_>,
    cache_write: &'static str,
    args: &BlockArgs,
    weights: &BlockWeights,
    s: &FrontScratch,
) -> Result<Front, Halted> {
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
    materialize_rope_rows(
        o,
        (&args.rope.cos, &args.rope.sin),
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
    write_cache(o, cache_write, args, &s.kv)?;
    Ok(Front { mixed, qkv })
}

/// Copies the rows of live tokens to where the mapping says.
fn write_cache(o: &mut Orchestrator<'_>, name: &'static str, args: &BlockArgs, kv: &Tensor) -> Result<(), Halted> {
    let (source, mapping, num_tokens) = (kv.clone(), args.ori_slot_mapping.clone(), args.num_tokens);
    let pool = args.kv_cache.reshape(&[args.kv_cache.len() / HEAD_DIM, HEAD_DIM]);
    let task = Task::new(name, Unit::Scalar)
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

/// What a block that lists window rows reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct WindowList {
    pub(crate) positions: Tensor,
    pub(crate) table: Tensor,
    /// [128, 128] i32.
    pub(crate) rows: Tensor,
    num_tokens: usize,
}

impl WindowList {
    pub(crate) fn of(args: &BlockArgs, rows: &Tensor) -> Self {
        Self {
            positions: args.position_ids.clone(),
            table: args.block_table.clone(),
            rows: rows.clone(),
            num_tokens: args.num_tokens,
        }
    }

    /// Lists the physical rows of the windows of `tokens`, ascending by position; −1 beyond them and for tokens that are not live.
    pub(crate) fn fill(&self, block: &Block<'_>, tokens: std::ops::Range<usize>) {
        let (positions, table) = (block.read::<i32>(&self.positions), block.read::<i32>(&self.table));
        let mut target = block.write::<i32>(&self.rows.rows(tokens.clone()));
        target.fill(-1);
        for (t, row) in tokens.zip(target.chunks_mut(WINDOW)) {
            if t >= self.num_tokens {
                break;
            }
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
    }
}

/// The rows that the tokens attend to.
#[derive(Clone, Debug)]
pub(crate) struct Attended {
    /// Physical rows of the window, [128, 128] i32.
    pub(crate) swa_indices: Tensor,
    /// Compressed pool, [pages, 128, 1, 512] bf16.
    pub(crate) cmp_kv: Tensor,
    /// Its pages, \[32\] i32.
    pub(crate) cmp_block_table: Tensor,
    /// Logical compressed rows, [128, 1024] i32.
    pub(crate) cmp_indices: Tensor,
}

/// The tensors that the back of a body creates.
#[derive(Debug)]
pub(crate) struct BackScratch {
    attn_out: Created,
    sparse: SparseScratch,
}

impl BackScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        Self {
            attn_out: creates.tensor("attn_out", DType::Bf16, &[TOKENS, HIDDEN]),
            sparse: SparseScratch::declare(creates),
        }
    }
}

/// Submits the sparse attention (seven launches, 304 tasks in a manual scope) and the mix back, in `if` bodies.
pub(crate) fn back(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    args: &BlockArgs,
    weights: &BlockWeights,
    front: Front,
    attended: Attended,
    s: &BackScratch,
) -> Result<(), Halted> {
    let sparse = SparseArgs {
        q: front.qkv.q,
        ori_kv: args.kv_cache.clone(),
        swa_indices: attended.swa_indices,
        cmp_kv: attended.cmp_kv,
        cmp_block_table: attended.cmp_block_table,
        cmp_indices: attended.cmp_indices,
        attn_sink: weights.attn_sink.clone(),
        rope_cos: front.qkv.rope_cos,
        rope_sin: front.qkv.rope_sin,
        attn_out: s.attn_out.tensor(),
        num_tokens: args.num_tokens,
    };
    prefill_sparse_attn(o, &sparse, &weights.out, &s.sparse)?;
    let back = HcPostArgs {
        x: s.attn_out.tensor(),
        residual: args.x_hc.clone(),
        post: front.mixed.post,
        comb: front.mixed.comb,
        y: args.x_out.clone(),
    };
    hc_post_prefill(o, bodies, &back, args.num_tokens)
}
