//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{COMPRESSED, HcaSparseArgs, HcaSparseScratch, decode_sparse_attn_hca};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Fixture, Rounding, poison};
use crate::golden::decode_attn::listed_columns;
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::REQUESTS;
use crate::ops::decode_attend::draw::INPUTS;
use crate::ops::decode_attend::{DecodeArgs, KEYS, TOKENS, draw};
use crate::ops::prefill_sparse_attn::OutWeights;

/// Attention of a decode step over the window and ratio-128 rows by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeSparseAttnHca;

static INFO: KernelInfo = KernelInfo {
    name: "decode_sparse_attn_hca",
    summary: "Decode attention over the window and 128 compressed rows with int8 output projection",
    level: Level::L2,
    ranks: 1,
    params: &[
        ParamSpec::choice(
            "compress_ratio",
            &["128", "4", "0"],
            "Tokens of a compressed row (0: none)",
        ),
        INPUTS,
    ],
    outputs: &[OutputInfo {
        name: "attn_out",
        dtype: DType::Bf16,
        shape: &[8, 7168],
        rule: "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 1.611,
        int8: 1.879,
    },
    ring_bytes: Some([0, 16_020_480, 0, 0]),
};

impl Kernel for DecodeSparseAttnHca {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let attn = DecodeArgs::draw(fixture, draw::small_angles());
        let inputs = params.word("inputs");
        match inputs {
            "causal" => attn.strengthen_last_row(),
            "replaced" => attn.replace_row(),
            _ => {}
        }
        let full = if params.count("compress_ratio") == 0 {
            0
        } else {
            COMPRESSED
        };
        Ok(Box::new(Case {
            args: HcaSparseArgs {
                attn,
                window_indices: draw::first_page_window(KEYS),
                cmp_kv: draw::compressed_pool(fixture),
                cmp_block_table: draw::compressed_table(),
                cmp_indices: draw::compressed_lists(fixture, inputs, COMPRESSED, full, 0),
            },
            weights: OutWeights::draw(fixture, Rounding::HalfEven),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: HcaSparseArgs,
    weights: OutWeights,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let a = &self.args;
            let columns = listed_columns(
                &a.window_indices.read::<i32>(),
                &a.cmp_indices.read::<i32>(),
                COMPRESSED,
                &[usize::MAX; TOKENS],
                (&a.cmp_block_table.read::<i32>(), REQUESTS),
            );
            let pool = a.cmp_kv.read();
            let rows = a
                .attn
                .with_reference(&self.weights, (&columns, &pool), |input| input.output());
            Tensor::from_vec(a.attn.attn_out.dims(), rows)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.args.attn.attn_out);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = HcaSparseScratch::declare(&mut creates);
            creates.alloc(o)?;
            decode_sparse_attn_hca(o, &self.args, &self.weights, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let rule = RatioAllclose::new(1e-4, 1.0 / 128.0, 0.005);
        vec![rule.compare("attn_out", &self.args.attn.attn_out, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::{AMPLE, fresh_seed, session};

    /// Whether the output still matches after `change` to the arguments, once the golden is known.
    fn matches(given: &[(&str, &str)], change: impl FnOnce(&Case)) -> bool {
        let mut session = session(INFO.name, given, fresh_seed(), AMPLE);
        session.instance().golden();
        let case = session.instance().as_any().downcast_ref::<Case>();
        change(case.expect("the kernel's own instance"));
        assert!(session.dispatch(Duration::ZERO).passed());
        session.instance().validate().iter().all(TensorVerdict::passed)
    }

    #[test]
    fn a_missing_row_and_a_wrong_page_are_seen() {
        assert!(!matches(&[], |case| case.args.cmp_indices.write::<i32>()
            [3 * COMPRESSED + 5] = -1));
        assert!(!matches(&[], |case| case.args.cmp_block_table.write::<i32>()[0] = 5));
    }
}
