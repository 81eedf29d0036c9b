//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::reference::{CsaReference, block_reference};
use super::{CsaBlockArgs, CsaBlockScratch, CsaWeights, decode_attention_csa};
use crate::compare::TensorVerdict;
use crate::creates::Creates;
use crate::fixture::decode::START_POS;
use crate::fixture::{DecodeBatch, Family, Fixture, poison};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::scopes::BodyScopes;

/// The ratio-4 block of a decode step by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeAttentionCsa;

const fn output(name: &'static str, dtype: DType, shape: &'static [usize], rule: &'static str) -> OutputInfo {
    OutputInfo {
        name,
        dtype,
        shape,
        rule,
    }
}

const STATE_RULE: &str = "mapped_pool(ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0)); other rows equal";

static INFO: KernelInfo = KernelInfo {
    name: "decode_attention_csa",
    summary: "Decode attention block with the sliding window and chosen rows of compress ratio 4",
    level: Level::L2,
    ranks: 1,
    params: &[START_POS],
    outputs: &[
        output(
            "x_out",
            DType::F32,
            &[8, 4, 7168],
            "ratio_reldiff(diff_thd=4e-3, pct_thd=0.008, max_diff_hd=1)",
        ),
        output(
            "kv_cache",
            DType::Bf16,
            &[128, 128, 1, 512],
            "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)); other rows equal",
        ),
        output(
            "cmp_kv",
            DType::Bf16,
            &[32, 128, 1, 512],
            "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0)); other rows equal",
        ),
        output("compress_state", DType::F32, &[65, 4, 2048], STATE_RULE),
        output("inner_compress_state", DType::F32, &[65, 4, 512], STATE_RULE),
        output(
            "idx_kv_cache",
            DType::I8,
            &[64, 128, 1, 128],
            "mapped_pool(ratio_allclose(atol=1, rtol=0, ratio<=0.01)); other rows equal",
        ),
        output(
            "idx_kv_scale",
            DType::F32,
            &[64, 128, 1, 1],
            "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.01)); other rows equal",
        ),
    ],
    gflop: Gflop {
        f32: 0.011,
        bf16: 2.532,
        int8: 3.766,
    },
    ring_bytes: Some([0, 77_816_832, 0, 0]),
};

impl Kernel for DecodeAttentionCsa {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let args = CsaBlockArgs::draw(fixture, &DecodeBatch::of_params(Family::Csa, params));
        Ok(Box::new(Case {
            initial: args.pools().map(Tensor::snapshot),
            args,
            weights: CsaWeights::draw(fixture),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: CsaBlockArgs,
    weights: CsaWeights,
    /// The pools as they were before the step.
    initial: [Tensor; 6],
    golden: OnceLock<CsaReference>,
}

impl Case {
    fn reference(&self) -> &CsaReference {
        self.golden
            .get_or_init(|| block_reference(&self.args, &self.weights, &self.initial))
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.args.block.x_out);
        for (pool, initial) in self.args.pools().iter().zip(&self.initial) {
            pool.copy_from(initial);
        }
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = CsaBlockScratch::declare(&mut creates);
            creates.alloc(o)?;
            decode_attention_csa(o, &self.args, &self.weights, &scratch, BodyScopes::Automatic)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        self.reference().compare(&self.args)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
