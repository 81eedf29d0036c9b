//! The parts of the reference that the attention blocks share.

use half::bf16;
use ring_runtime::Tensor;

use super::{BlockArgs, BlockWeights};
use crate::compare::{FiniteRule, MappedPool, RatioReldiff, TensorVerdict};
use crate::golden;
use crate::golden::CodedRows;
use crate::golden::decode_attn::{Column, DecodeIn};
use crate::golden::hc_pre::HcPre;
use crate::model::HEAD_DIM;
use crate::ops::decode_attend::TOKENS;

/// What stands in front of the attention.
pub(crate) struct FrontReference {
    pub(crate) mixed: HcPre,
    /// T × 7168.
    pub(crate) normed: Vec<bf16>,
    /// T × 64 each.
    angles: (Tensor, Tensor),
    q: Vec<bf16>,
    pub(crate) qr: CodedRows,
    /// The pool with the rows of the step.
    pub(crate) kv_cache: Tensor,
}

/// The components' references one after the other, over a pool as it was before the step.
pub(crate) fn front(args: &BlockArgs, weights: &BlockWeights, initial_cache: &Tensor) -> FrontReference {
    let mixed = weights.hc.reference(&args.x_hc.read::<f32>());
    let normed = golden::rmsnorm::rms_norm(&mixed.x_mixed, &weights.norm.read::<bf16>());
    let angles = args.rope.rows(&args.position_ids.read::<i32>());
    let (qr, q, kv) = {
        let rows = (&*angles.0.read::<bf16>(), &*angles.1.read::<bf16>());
        weights.qkv.with_reference(&normed, rows, |input| {
            let qr = input.qr();
            let q = input.q(&qr);
            (qr, q, input.kv())
        })
    };
    let kv_cache = initial_cache.snapshot();
    {
        let mut pool = kv_cache.write::<bf16>();
        for (slot, row) in args.slot_mapping.read::<i64>().iter().zip(kv.chunks(HEAD_DIM)) {
            if let Ok(slot) = usize::try_from(*slot) {
                pool[slot * HEAD_DIM..][..HEAD_DIM].copy_from_slice(row);
            }
        }
    }
    FrontReference {
        mixed,
        normed,
        angles,
        q,
        qr,
        kv_cache,
    }
}

impl FrontReference {
    /// Streams after the block, given what each token sees and the compressed pool.
    pub(crate) fn x_out(
        &self,
        args: &BlockArgs,
        weights: &BlockWeights,
        (columns, cmp_kv): (&[Column], &[bf16]),
    ) -> Tensor {
        let attended = DecodeIn {
            q: &self.q,
            ori_kv: &self.kv_cache.read(),
            cmp_kv,
            columns,
            attn_sink: &weights.attn_sink.read(),
            rope_cos: &self.angles.0.read(),
            rope_sin: &self.angles.1.read(),
            wo_a: &weights.out.wo_a.read(),
            wo_b: &weights.out.wo_b.codes.read(),
            wo_b_scale: &weights.out.wo_b.scales.read(),
        }
        .output();
        let x_hc = args.x_hc.read::<f32>();
        let x_out = golden::hc_post::hc_post(&attended, &x_hc, &self.mixed.post, &self.mixed.comb, TOKENS);
        Tensor::from_vec(args.x_out.dims(), x_out)
    }
}

/// Compares the streams, whose relative difference counts from `threshold` on, and the pool.
pub(crate) fn compare(args: &BlockArgs, threshold: f64, x_out: &Tensor, kv_cache: &Tensor) -> [TensorVerdict; 2] {
    let streams = RatioReldiff::new(threshold, 0.008).hard_limit(1.0);
    let pool = MappedPool::allclose(1e-4, 1.0 / 128.0, 0.005, FiniteRule::Everywhere);
    let mapping = args.slot_mapping.read::<i64>();
    [
        streams.compare("x_out", &args.x_out, x_out),
        pool.compare("kv_cache", &args.kv_cache, kv_cache, &[&mapping]),
    ]
}

/// Writes the rows that a compressor completed (per request: token, 512 lanes) to the pool, rounded to bf16.
pub(crate) fn write_completed(completed: &[Option<(usize, Vec<f32>)>], slots: &[i64], pool: &Tensor) {
    let mut pool = pool.write::<bf16>();
    for (token, row) in completed.iter().flatten() {
        if let Ok(slot) = usize::try_from(slots[*token]) {
            pool[slot * HEAD_DIM..][..HEAD_DIM].copy_from_slice(&golden::narrow(row));
        }
    }
}
