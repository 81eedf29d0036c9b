//! The standalone kernel, with the fixture and the reference that other programs share.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{SwaScratch, prefill_attention_swa};
use crate::compare::TensorVerdict;
use crate::creates::Creates;
use crate::fixture::prefill::{NUM_TOKENS, START_POS, Tile};
use crate::fixture::{Fixture, Profile};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{CMP_PAGES, INDEX_TOPK};
use crate::ops::prefill_attention::fixture::{
    self as shared, BlockReference, CompressedRows, HcSetting, Pools, StreamsRule,
};
use crate::ops::prefill_attention::{BlockArgs, BlockWeights, TOKENS};
use crate::scopes::BodyScopes;

/// The sliding-window block by itself.
#[derive(Clone, Copy, Debug)]
pub struct PrefillAttentionSwa;

static INFO: KernelInfo = KernelInfo {
    name: "prefill_attention_swa",
    summary: "Prefill attention block with the sliding window only",
    level: Level::L2,
    ranks: 1,
    params: &[NUM_TOKENS, START_POS],
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

/// Hyper-connection of the SWA block.
pub(crate) const HC: HcSetting = HcSetting {
    deviation: 0.039,
    scale: [2.076_026, 0.018_729, 0.245_936],
    base: [
        3.9083, -2.0399, -2.2033, -2.017, -2.4443, -10.3158, -8.9943, -6.3581, 9.8577, -9.5177, -24.8724, -22.8929,
        -21.545, 0.7791, -3.386, 1.1948, -20.9605, -0.7702, 1.4218, -4.8994, 1.5177, -29.7663, -30.1413, -1.2413,
    ],
};

/// The reference, over the window pool as it was before the block.
pub(crate) fn reference(args: &BlockArgs, weights: &BlockWeights, initial_cache: &Tensor) -> BlockReference {
    shared::reference(args, weights, initial_cache, |_, _| CompressedRows {
        pool: Tensor::zeros(DType::Bf16, &[0]),
        table: vec![0; CMP_PAGES],
        indices: vec![-1; TOKENS * INDEX_TOPK],
    })
}

impl Kernel for PrefillAttentionSwa {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tile = Tile::of_params(INFO.name, params)?;
        let fixture = Fixture::new(seed);
        let args = BlockArgs::draw(fixture, tile, Profile::Plain);
        Ok(Box::new(Case {
            pools: Pools::keep([&args.kv_cache]),
            args,
            weights: BlockWeights::draw(fixture, HC),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: BlockArgs,
    weights: BlockWeights,
    pools: Pools<1>,
    golden: OnceLock<BlockReference>,
}

impl Case {
    fn reference(&self) -> &BlockReference {
        self.golden.get_or_init(|| {
            let [cache] = self.pools.kept();
            reference(&self.args, &self.weights, cache)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        self.pools.reset(&self.args.x_out);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = SwaScratch::declare(&mut creates);
            creates.alloc(o)?;
            prefill_attention_swa(o, BodyScopes::Automatic, &self.args, &self.weights, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let streams = StreamsRule {
            diff_thd: 3e-3,
            hard: 1.0,
        };
        self.reference().compare(&self.args, streams, 1e-2)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
