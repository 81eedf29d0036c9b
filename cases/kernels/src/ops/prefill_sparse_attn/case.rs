//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{OutWeights, SparseArgs, SparseScratch, TOKENS, prefill_sparse_attn};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Dist, Fixture, Profile, RopeTables, Rounding, constant, paging, poison};
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{CMP_PAGES, HEAD_DIM, HEADS, HIDDEN, INDEX_TOPK, ORI_PAGES, PAGE, WINDOW};

/// Sparse attention with its output projection by itself.
#[derive(Clone, Copy, Debug)]
pub struct PrefillSparseAttn;

static INFO: KernelInfo = KernelInfo {
    name: "prefill_sparse_attn",
    summary: "Prefill attention over listed rows with sink, inverse rotary and int8 output projection",
    level: Level::L2,
    ranks: 1,
    params: &[ParamSpec::choice(
        "compress_ratio",
        &["4", "0", "128"],
        "Tokens of a compressed row (0: none)",
    )],
    outputs: &[OutputInfo {
        name: "attn_out",
        dtype: DType::Bf16,
        shape: &[128, 7168],
        rule: "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 30.065,
        int8: 30.065,
    },
    ring_bytes: Some([0, 241_836_032, 0, 0]),
};

/// Compressed columns of token `t`: `0..min(valid, (t + 1) / ratio)`, then −1.
fn compressed_indices(ratio: usize) -> Vec<i32> {
    let rows_of = |tokens: usize| tokens.checked_div(ratio).unwrap_or(0);
    let row = |t: usize| {
        let n = rows_of(TOKENS).min(rows_of(t + 1));
        (0..INDEX_TOPK).map(move |c| if c < n { c as i32 } else { -1 })
    };
    (0..TOKENS).flat_map(row).collect()
}

impl Kernel for PrefillSparseAttn {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let ratio = params.count("compress_ratio");
        let fixture = Fixture::new(seed);
        let small = |name, dims: &[usize]| fixture.real(name, DType::Bf16, dims, Dist::centred(0.05));
        let pages = paging::identity_table(ORI_PAGES);
        let windows = (0..TOKENS)
            .flat_map(|t| paging::window_rows(&pages, PAGE, WINDOW, t))
            .collect();
        let positions: Vec<i32> = (0..TOKENS as i32).collect();
        let (rope_cos, rope_sin) = RopeTables::of(Profile::of_ratio(ratio)).rows(&positions);
        Ok(Box::new(Case {
            args: SparseArgs {
                q: small("q", &[TOKENS, HEADS, HEAD_DIM]),
                ori_kv: small("ori_kv", &[ORI_PAGES, PAGE, 1, HEAD_DIM]),
                swa_indices: Tensor::from_vec(&[TOKENS, WINDOW], windows),
                cmp_kv: small("cmp_kv", &[CMP_PAGES, PAGE, 1, HEAD_DIM]),
                cmp_block_table: Tensor::from_vec(&[CMP_PAGES], paging::identity_table(CMP_PAGES)),
                cmp_indices: Tensor::from_vec(&[TOKENS, INDEX_TOPK], compressed_indices(ratio)),
                attn_sink: constant(DType::F32, &[HEADS], 0.0),
                rope_cos,
                rope_sin,
                attn_out: Tensor::zeros(DType::Bf16, &[TOKENS, HIDDEN]),
                num_tokens: TOKENS,
            },
            weights: OutWeights::draw(fixture, Rounding::HalfEven),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: SparseArgs,
    weights: OutWeights,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let rows = self.args.with_reference(&self.weights, |input| input.output());
            Tensor::from_vec(self.args.attn_out.dims(), rows)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.args.attn_out);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = SparseScratch::declare(&mut creates);
            creates.alloc(o)?;
            prefill_sparse_attn(o, &self.args, &self.weights, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let rule = RatioAllclose::new(1e-4, 1.0 / 128.0, 0.005);
        vec![rule.compare("attn_out", &self.args.attn_out, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_rows_become_visible_as_they_fill() {
        let row = |ratio, t: usize| {
            let indices = compressed_indices(ratio);
            indices[t * INDEX_TOPK..][..INDEX_TOPK]
                .iter()
                .filter(|c| **c >= 0)
                .count()
        };
        assert_eq!(
            [
                row(0, 127),
                row(4, 2),
                row(4, 3),
                row(4, 127),
                row(128, 126),
                row(128, 127)
            ],
            [0, 0, 1, 32, 0, 1]
        );
    }
}
