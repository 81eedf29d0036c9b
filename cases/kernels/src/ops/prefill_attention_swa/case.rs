//! The standalone kernel, with the fixture and the reference that other programs share.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{SwaArgs, SwaScratch, SwaWeights, TOKENS, prefill_attention_swa};
use crate::compare::{FiniteRule, MappedPool, RatioReldiff, Tail, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Dist, Fixture, Profile, RopeTables, Rounding, constant, paging, poison};
use crate::golden;
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{CMP_PAGES, HC_DIM, HC_MIX, HEAD_DIM, HEADS, HIDDEN, INDEX_TOPK, ORI_PAGES, PAGE, STREAMS, WINDOW};
use crate::ops::hc_pre::HcWeights;
use crate::ops::prefill_sparse_attn::OutWeights;
use crate::ops::qkv_proj_rope::{QkvDist, QkvWeights};

/// The sliding-window block by itself.
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
    let x_hc = args.x_hc.read::<f32>();
    let mixed = weights.hc.reference(&x_hc);
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
