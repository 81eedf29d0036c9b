//! Weights, streams and pools of the attention blocks, as the specs draw them.

use ring_runtime::{DType, Tensor};

use super::{BlockArgs, BlockWeights};
use crate::fixture::decode::{DecodeBatch, PageTable};
use crate::fixture::{Dist, Fixture, RopeTables, Rounding, constant, normalised_rows};
use crate::model::{HC_MIX, HEAD_DIM, HEADS, HIDDEN, ORI_PAGES, PAGE, Q_LORA, STREAMS};
use crate::ops::decode_attend::TOKENS;
use crate::ops::hc_pre::HcWeights;
use crate::ops::prefill_sparse_attn::OutWeights;
use crate::ops::qkv_proj_rope::{QkvDist, QkvWeights};

/// What tells the weights of the three kinds of block apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockDist {
    /// Standard deviation of the hyper-connection projection.
    pub(crate) hc_deviation: f32,
    pub(crate) hc_scale: [f32; 3],
    pub(crate) hc_base: [f32; HC_MIX],
    /// Sink of every head.
    pub(crate) sink: f32,
    /// Of the int8 weights.
    pub(crate) rounding: Rounding,
}

impl BlockWeights {
    /// Normal weights with a deviation of one over the root of the inputs, gains of one.
    pub(crate) fn draw(fixture: Fixture, dist: BlockDist) -> Self {
        let normal = |inputs: usize| Dist::normal((inputs as f32).sqrt().recip(), 0.0);
        let qkv = QkvDist {
            wq_a: normal(HIDDEN),
            wq_b: normal(Q_LORA),
            wkv: normal(HIDDEN),
            gamma: Dist::Constant(1.0),
            rounding: dist.rounding,
        };
        Self {
            hc: HcWeights::draw(fixture, "hc_attn_fn", dist.hc_deviation, dist.hc_scale, dist.hc_base),
            norm: constant(DType::Bf16, &[HIDDEN], 1.0),
            qkv: QkvWeights::draw(fixture, qkv),
            attn_sink: constant(DType::F32, &[HEADS], dist.sink),
            out: OutWeights::draw_as(fixture, |deviation| Dist::normal(deviation, 0.0), dist.rounding),
        }
    }
}

impl BlockArgs {
    /// Streams uniform in [−1, 1), a normalised pool, and the metadata of `batch`.
    pub(crate) fn draw(fixture: Fixture, batch: &DecodeBatch, rope: RopeTables) -> Self {
        let table = PageTable::window();
        let (window_indices, _) = batch.windows(&table);
        Self {
            x_hc: fixture.real("x_hc", DType::F32, &[TOKENS, STREAMS, HIDDEN], Dist::uniform(-1.0, 1.0)),
            rope,
            kv_cache: normalised_rows(fixture, "kv_cache", &[ORI_PAGES, PAGE, 1, HEAD_DIM]),
            slot_mapping: batch.slots(&table).reshape(&[TOKENS]),
            window_indices,
            position_ids: batch.position_ids().reshape(&[TOKENS]),
            x_out: (&Tensor::zeros(DType::F32, &[TOKENS, STREAMS, HIDDEN])).into(),
        }
    }
}
