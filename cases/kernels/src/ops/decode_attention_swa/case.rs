//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{SwaBlockArgs, SwaBlockScratch, decode_attention_swa};
use crate::compare::TensorVerdict;
use crate::creates::Creates;
use crate::fixture::decode::{DecodeBatch, Family, PageTable, START_POS};
use crate::fixture::{Fixture, Profile, RopeTables, Rounding, poison};
use crate::golden::decode_attn::window_columns;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::ops::decode_attention::draw::BlockDist;
use crate::ops::decode_attention::{BlockArgs, BlockWeights, reference};

/// The sliding-window block of a decode step by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeAttentionSwa;

static INFO: KernelInfo = KernelInfo {
    name: "decode_attention_swa",
    summary: "Decode attention block with the sliding window only",
    level: Level::L2,
    ranks: 1,
    params: &[START_POS],
    outputs: &[
        OutputInfo {
            name: "x_out",
            dtype: DType::F32,
            shape: &[8, 4, 7168],
            rule: "ratio_reldiff(diff_thd=3e-3, pct_thd=0.008, max_diff_hd=1)",
        },
        OutputInfo {
            name: "kv_cache",
            dtype: DType::Bf16,
            shape: &[128, 128, 1, 512],
            rule: "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)); other rows equal",
        },
    ],
    gflop: Gflop {
        f32: 0.011,
        bf16: 1.577,
        int8: 3.490,
    },
    ring_bytes: Some([0, 51_726_336, 0, 0]),
};

/// How the spec draws the weights.
pub(crate) const DIST: BlockDist = BlockDist {
    hc_deviation: 0.039,
    hc_scale: [2.076_026, 0.018_729, 0.245_936],
    hc_base: [
        3.9083, -2.0399, -2.2033, -2.017, -2.4443, -10.3158, -8.9943, -6.3581, 9.8577, -9.5177, -24.8724, -22.8929,
        -21.545, 0.7791, -3.386, 1.1948, -20.9605, -0.7702, 1.4218, -4.8994, 1.5177, -29.7663, -30.1413, -1.2413,
    ],
    sink: 0.0,
    rounding: Rounding::HalfEven,
};

impl Kernel for DecodeAttentionSwa {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let batch = DecodeBatch::of_params(Family::Swa, params);
        let block = BlockArgs::draw(fixture, &batch, RopeTables::of(Profile::Plain));
        let (_, swa_lens) = batch.windows(&PageTable::window());
        Ok(Box::new(Case {
            initial_cache: block.kv_cache.snapshot(),
            args: SwaBlockArgs { block, swa_lens },
            weights: BlockWeights::draw(fixture, DIST),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: SwaBlockArgs,
    weights: BlockWeights,
    initial_cache: Tensor,
    golden: OnceLock<SwaReference>,
}

/// What the block should leave behind.
pub(crate) struct SwaReference {
    pub(crate) x_out: Tensor,
    pub(crate) kv_cache: Tensor,
}

/// The reference over a pool as it was before the step.
pub(crate) fn block_reference(args: &SwaBlockArgs, weights: &BlockWeights, initial_cache: &Tensor) -> SwaReference {
    let front = reference::front(&args.block, weights, initial_cache);
    let columns = window_columns(&args.block.window_indices.read::<i32>(), &args.swa_lens.read::<i32>());
    SwaReference {
        x_out: front.x_out(&args.block, weights, (&columns, &[])),
        kv_cache: front.kv_cache,
    }
}

impl Case {
    fn reference(&self) -> &SwaReference {
        self.golden
            .get_or_init(|| block_reference(&self.args, &self.weights, &self.initial_cache))
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.args.block.x_out);
        self.args.block.kv_cache.copy_from(&self.initial_cache);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = SwaBlockScratch::declare(&mut creates);
            creates.alloc(o)?;
            decode_attention_swa(o, &self.args, &self.weights, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let golden = self.reference();
        reference::compare(&self.args.block, 3e-3, &golden.x_out, &golden.kv_cache).into()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
