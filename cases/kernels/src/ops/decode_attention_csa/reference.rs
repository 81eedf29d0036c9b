//! The reference of the block: the components' references one after the other.

use half::bf16;
use ring_runtime::{DType, Tensor};

use super::{CsaBlockArgs, CsaWeights, FORM, RequestAngles};
use crate::compare::{FiniteRule, MappedPool, TensorVerdict};
use crate::model::{HEAD_DIM, HIDDEN, INDEX_DIM, Q_LORA, REQUESTS, STEP_TOKENS};
use crate::ops::compressor::decode::reference as compressor_reference;
use crate::ops::decode_attend::TOKENS;
use crate::ops::decode_attention::reference::{self, write_completed};
use crate::ops::decode_indexer::COLUMNS;
use crate::ops::decode_indexer::case::{Reference as IndexerReference, reference as indexer_reference};
use crate::ops::decode_sparse_attn::case::columns;

/// What the block should leave behind.
pub(crate) struct CsaReference {
    x_out: Tensor,
    kv_cache: Tensor,
    cmp_kv: Tensor,
    state: Tensor,
    indexer: IndexerReference,
}

/// The reference over pools as they were before the step, in the order of [`CsaBlockArgs::pools`].
pub(crate) fn block_reference(args: &CsaBlockArgs, weights: &CsaWeights, initial: &[Tensor; 6]) -> CsaReference {
    let front = reference::front(&args.block, &weights.block, &initial[0]);
    let x = Tensor::from_vec(&[TOKENS, HIDDEN], front.normed.clone());
    let positions = args.block.position_ids.read::<i32>();
    let angles = |ratio: usize| {
        let first = positions.iter().step_by(STEP_TOKENS);
        let rows: Vec<i32> = first.map(|p| p - p % ratio as i32).collect();
        let (cos, sin) = args.block.rope.half_rows(&rows);
        RequestAngles { ratio, cos, sin }
    };
    let step = |dtype, width| Tensor::zeros(dtype, &[REQUESTS, STEP_TOKENS, width]);

    let (cmp_kv, state) = (initial[1].snapshot(), initial[2].snapshot());
    let compressor = args.compressor(&x, angles(FORM.ratio), &step(DType::F32, HEAD_DIM), &cmp_kv);
    let completed = compressor_reference(&compressor.step, &weights.compressor, &state);
    write_completed(&completed, &args.cmp_slot_mapping.read::<i64>(), &cmp_kv);

    let step_args = args.indexer(
        &weights.hadamard,
        &x,
        angles(1),
        (
            &Tensor::from_vec(&[TOKENS, Q_LORA], front.qr.codes.clone()),
            &Tensor::from_vec(&[TOKENS, 1], front.qr.scales.clone()),
        ),
        [
            &step(DType::F32, INDEX_DIM),
            &step(DType::F32, COLUMNS),
            &step(DType::I32, COLUMNS),
        ],
    );
    let indexer = indexer_reference(&step_args, &weights.indexer, (&initial[3], &initial[4], &initial[5]));
    let (_, topk) = indexer.ranked(&step_args, &indexer.inner.cache, &indexer.inner.scale);

    let seen = columns(
        &args.block.window_indices.read::<i32>(),
        &topk.read::<i32>(),
        &positions,
        &args.cmp_block_table.read::<i32>(),
    );
    let x_out = front.x_out(&args.block, &weights.block, (&seen, &cmp_kv.read::<bf16>()));
    CsaReference {
        x_out,
        kv_cache: front.kv_cache,
        cmp_kv,
        state,
        indexer,
    }
}

impl CsaReference {
    /// The streams.
    pub(crate) fn x_out(&self) -> &Tensor {
        &self.x_out
    }

    /// The pools, in the order of [`CsaBlockArgs::pools`].
    pub(crate) fn pools(&self) -> [&Tensor; 6] {
        let inner = &self.indexer.inner;
        [
            &self.kv_cache,
            &self.cmp_kv,
            &self.state,
            &inner.state,
            &inner.cache,
            &inner.scale,
        ]
    }

    /// Compares all outputs, in the order of the spec.
    pub(crate) fn compare(&self, args: &CsaBlockArgs) -> Vec<TensorVerdict> {
        let mut verdicts = reference::compare(&args.block, 4e-3, &self.x_out, &self.kv_cache).to_vec();
        // States may start with scores of −∞, which stay where nothing is stored.
        let rule = |atol, rtol, ratio| MappedPool::allclose(atol, rtol, ratio, FiniteRule::Mapped);
        let inner = &self.indexer.inner;
        for (rule, name, actual, expected, mapping) in [
            (
                rule(1e-4, 1.0 / 128.0, 0.0),
                "cmp_kv",
                &args.cmp_kv,
                &self.cmp_kv,
                &args.cmp_slot_mapping,
            ),
            (
                rule(1e-3, 1e-3, 0.0),
                "compress_state",
                &args.main.state,
                &self.state,
                &args.main.slot_mapping,
            ),
            (
                rule(1e-3, 1e-3, 0.0),
                "inner_compress_state",
                &args.inner.state,
                &inner.state,
                &args.inner.slot_mapping,
            ),
            (
                rule(1.0, 0.0, 0.01),
                "idx_kv_cache",
                &args.idx_kv_cache,
                &inner.cache,
                &args.idx_slot_mapping,
            ),
            (
                rule(1e-4, 1.0 / 128.0, 0.01),
                "idx_kv_scale",
                &args.idx_kv_scale,
                &inner.scale,
                &args.idx_slot_mapping,
            ),
        ] {
            verdicts.push(rule.compare(name, actual, expected, &[&mapping.read::<i64>()]));
        }
        verdicts
    }
}
