//! Prefill attention block with the sliding window only: hyper-connection mix, projections, cache write, sparse attention, mix back.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::hc_post::{HcPostArgs, hc_post_prefill};
use super::hc_pre::{HcPreOut, HcPreScratch, HcWeights, hc_pre};
use super::prefill_sparse_attn::{OutWeights, SparseArgs, SparseScratch, prefill_sparse_attn};
use super::qkv_proj_rope::{QkvArgs, QkvDist, QkvScratch, QkvWeights, materialize_rope_rows, qkv_proj_rope};
use super::rmsnorm::rms_norm;
use crate::compare::{FiniteRule, MappedPool, RatioReldiff, Tail, TensorVerdict};
use crate::creates::{Created, Creates};
use crate::fixture::{Dist, Fixture, Profile, RopeTables, Rounding, constant, paging, poison};
use crate::golden;
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{
    CMP_PAGES, HC_DIM, HC_MIX, HEAD_DIM, HEADS, HIDDEN, INDEX_TOPK, ORI_PAGES, PAGE, PREFILL_TOKENS, Q_LORA, ROPE_DIM,
    STREAMS, WINDOW,
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

/// The standalone kernel.
#[derive(Clone, Copy, Debug)]
pub struct PrefillAttentionSwa;

static INFO: KernelInfo = KernelInfo {
    name: "prefill_attention_swa",
    summary: "Prefill attention block with the sliding window only",
    level: Level::L2,
    ranks: 1,
    params: &[
        ParamSpec::int("num_tokens", 1, 128, 128, "New tokens of the tile"),
        ParamSpec::int("start_pos", 0, 16_383, 0, "Position of the first new token"),
    ],
    outputs: &[
        OutputInfo {
            name: "x_out",
            dtype: DType::F32,
            shape: &[128, 4, 7168],
            rule: "ratio_reldiff(diff_thd=3e-3, pct_thd=0.005, max_diff_hd=1) on live rows, zero tail",
        },
        OutputInfo {
            name: "kv_cache",
            dtype: DType::Bf16,
            shape: &[128, 128, 1, 512],
            rule: "mapped_pool(ratio_allclose(atol=1e-4, rtol=1e-2, ratio<=0.005)); other rows equal",
        },
    ],
    gflop: Gflop {
        f32: 0.235,
        bf16: 33.823,
        int8: 55.835,
    },
    ring_bytes: Some([0, 306_889_728, 0, 0]),
};

const SCALE: [f32; 3] = [2.076_026, 0.018_729, 0.245_936];
const BASE: [f32; HC_MIX] = [
    3.9083, -2.0399, -2.2033, -2.017, -2.4443, -10.3158, -8.9943, -6.3581, 9.8577, -9.5177, -24.8724, -22.8929,
    -21.545, 0.7791, -3.386, 1.1948, -20.9605, -0.7702, 1.4218, -4.8994, 1.5177, -29.7663, -30.1413, -1.2413,
];

impl SwaWeights {
    /// The spec's weights.
    pub(crate) fn draw(fixture: Fixture) -> Self {
        Self {
            hc: HcWeights::draw(fixture, "hc_attn_fn", 0.039, SCALE, BASE),
            norm: constant(DType::Bf16, &[HIDDEN], 1.0),
            qkv: QkvWeights::draw(fixture, QkvDist::attention(Rounding::HalfEven)),
            attn_sink: constant(DType::F32, &[HEADS], 0.0),
            out: OutWeights::draw(fixture, Rounding::HalfEven),
        }
    }
}

/// Streams of a tile, [128, 4, 7168] f32: uniform in [−1, 1), zero from `num_tokens` on.
pub(crate) fn draw_streams(fixture: Fixture, num_tokens: usize) -> Tensor {
    let x = fixture.real("x_hc", DType::F32, &[TOKENS, STREAMS, HIDDEN], Dist::uniform(-1.0, 1.0));
    x.write::<f32>()[num_tokens * HC_DIM..].fill(0.0);
    x
}

/// A pool [128, 128, 1, 512] bf16 of zeros, but `(U − 0.5) · 0.1` at the up to 128 positions before `start` (pages in order).
pub(crate) fn draw_window_pool(fixture: Fixture, start: usize) -> Tensor {
    let pool = Tensor::zeros(DType::Bf16, &[ORI_PAGES, PAGE, 1, HEAD_DIM]);
    let rows = pool
        .reshape(&[ORI_PAGES * PAGE, HEAD_DIM])
        .rows(start.saturating_sub(WINDOW)..start);
    fixture.refill("kv_cache", &rows, Dist::centred(0.1));
    pool
}

impl Kernel for PrefillAttentionSwa {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let (num_tokens, start) = (params.count("num_tokens"), params.count("start_pos"));
        if start + num_tokens > ORI_PAGES * PAGE {
            let reason = format!(
                "start_pos + num_tokens is {}, beyond 16384 positions",
                start + num_tokens
            );
            return Err(SetupError::Contradiction {
                kernel: INFO.name,
                reason,
            });
        }
        let fixture = Fixture::new(seed);
        let table = paging::identity_table(ORI_PAGES);
        let live = |t: usize| t < num_tokens;
        let slots: Vec<i64> = (0..TOKENS)
            .map(|t| {
                if live(t) {
                    paging::slot(&table, PAGE, start + t)
                } else {
                    paging::NO_SLOT
                }
            })
            .collect();
        let positions: Vec<i32> = (0..TOKENS)
            .map(|t| if live(t) { start + t } else { t } as i32)
            .collect();
        let initial_cache = draw_window_pool(fixture, start);
        Ok(Box::new(Case {
            args: SwaArgs {
                x_hc: draw_streams(fixture, num_tokens),
                rope: RopeTables::of(Profile::Plain),
                kv_cache: initial_cache.snapshot(),
                block_table: Tensor::from_vec(&[ORI_PAGES], table),
                ori_slot_mapping: Tensor::from_vec(&[TOKENS], slots),
                position_ids: Tensor::from_vec(&[TOKENS], positions),
                x_out: Tensor::zeros(DType::F32, &[TOKENS, STREAMS, HIDDEN]),
                num_tokens,
            },
            weights: SwaWeights::draw(fixture),
            initial_cache,
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: SwaArgs,
    weights: SwaWeights,
    initial_cache: Tensor,
    golden: OnceLock<SwaReference>,
}

/// What the block should leave behind.
pub(crate) struct SwaReference {
    pub(crate) x_out: Tensor,
    pub(crate) kv_cache: Tensor,
}

/// The reference: the components' references one after the other, over a pool as it was before the block.
pub(crate) fn reference(args: &SwaArgs, weights: &SwaWeights, initial_cache: &Tensor) -> SwaReference {
    let w = &weights.hc;
    let x_hc = args.x_hc.read::<f32>();
    let mixed = golden::hc_pre::hc_pre(
        &x_hc,
        &w.weight.read::<f32>(),
        &w.scale.read::<f32>(),
        &w.base.read::<f32>(),
    );
    let normed = golden::rmsnorm::rms_norm(&mixed.x_mixed, &weights.norm.read::<bf16>());
    let positions = args.position_ids.read::<i32>();
    let (rope_cos, rope_sin) = args.rope.rows(&positions);
    let angles = (&*rope_cos.read::<bf16>(), &*rope_sin.read::<bf16>());
    let (q, kv) = weights
        .qkv
        .with_reference(&normed, angles, |input| (input.q(&input.qr()), input.kv()));

    let kv_cache = initial_cache.snapshot();
    let mapping = args.ori_slot_mapping.read::<i64>();
    for (t, slot) in mapping
        .iter()
        .enumerate()
        .take(args.num_tokens)
        .filter(|(_, slot)| **slot >= 0)
    {
        kv_cache.write::<bf16>()[*slot as usize * HEAD_DIM..][..HEAD_DIM]
            .copy_from_slice(&kv[t * HEAD_DIM..][..HEAD_DIM]);
    }
    let table = args.block_table.read::<i32>();
    let windows: Vec<i32> = (0..TOKENS)
        .flat_map(|t| {
            if t < args.num_tokens {
                paging::window_rows(&table, PAGE, WINDOW, positions[t] as usize)
            } else {
                vec![-1; WINDOW]
            }
        })
        .collect();
    let attended = golden::sparse_attn::SparseIn {
        q: &q,
        ori_kv: &kv_cache.read::<bf16>(),
        swa_indices: &windows,
        cmp_kv: &[],
        cmp_block_table: &[0; CMP_PAGES],
        cmp_indices: &vec![-1; TOKENS * INDEX_TOPK],
        attn_sink: &weights.attn_sink.read::<f32>(),
        rope_cos: angles.0,
        rope_sin: angles.1,
        wo_a: &weights.out.wo_a.read::<bf16>(),
        wo_b: &weights.out.wo_b.codes.read::<i8>(),
        wo_b_scale: &weights.out.wo_b.scales.read::<f32>(),
        num_tokens: args.num_tokens,
    }
    .output();
    let x_out = golden::hc_post::hc_post(&attended, &x_hc, &mixed.post, &mixed.comb, args.num_tokens);
    SwaReference {
        x_out: Tensor::from_vec(args.x_out.dims(), x_out),
        kv_cache,
    }
}

impl Case {
    fn reference(&self) -> &SwaReference {
        self.golden
            .get_or_init(|| reference(&self.args, &self.weights, &self.initial_cache))
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.args.x_out);
        self.args.kv_cache.copy_from(&self.initial_cache);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = SwaScratch::declare(&mut creates);
            creates.alloc(o)?;
            prefill_attention_swa(o, &self.args, &self.weights, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let (a, golden) = (&self.args, self.reference());
        let streams = RatioReldiff::new(3e-3, 0.005)
            .hard_limit(1.0)
            .valid_rows(a.num_tokens, 0, Tail::Zero);
        let pool = MappedPool::allclose(1e-4, 1e-2, 0.005, FiniteRule::Everywhere).active(a.num_tokens);
        vec![
            streams.compare("x_out", &a.x_out, &golden.x_out),
            pool.compare(
                "kv_cache",
                &a.kv_cache,
                &golden.kv_cache,
                &[&a.ori_slot_mapping.read::<i64>()],
            ),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
