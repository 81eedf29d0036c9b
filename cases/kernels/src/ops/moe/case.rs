//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::fixture::{RankInput, consecutive_ids, cyclic_table, random_table, reference, streams};
use super::{MoeCall, MoeScratch, MoeWeights, MoeWindows, moe};
use crate::compare::{RatioReldiff, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Fixture, poison};
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{HASH_LAYERS, HIDDEN, RANKS, STREAMS};
use crate::ops::expert_routed::case::WEIGHT_ALIAS;
use crate::ops::gate::case::token_ids;
use crate::ops::mode_tokens;
use crate::scopes::BodyScopes;

/// The block by itself.
#[derive(Clone, Copy, Debug)]
pub struct Moe;

static INFO: KernelInfo = KernelInfo {
    name: "moe",
    summary: "Mixture of experts over two ranks, with its hyper-connection mixes",
    level: Level::L3,
    ranks: RANKS,
    params: &[
        ParamSpec::choice(
            "mode",
            &["decode", "prefill"],
            "Run at 8 tokens (decode) or at 128 (prefill) per rank",
        ),
        ParamSpec::int(
            "layer_id",
            0,
            60,
            0,
            "Layer: the first three route by token id, the others all to the same six experts",
        ),
        ParamSpec::int(
            "num_tokens",
            -1,
            128,
            128,
            "Tokens in use; cut to the tokens that there are",
        ),
        ParamSpec::choice(
            "table",
            &["random", "balanced"],
            "Draw the experts of a token id, or take them in turn so that all get as many",
        ),
        WEIGHT_ALIAS,
        ParamSpec::tolerance(
            "diff_thd",
            0.0,
            5e-2,
            5e-3,
            "Relative difference from which a value is bad",
        ),
        ParamSpec::tolerance("pct_thd", 0.0, 0.2, 0.05, "Share of values that may be bad"),
    ],
    outputs: &[OutputInfo {
        name: "x_next",
        dtype: DType::F32,
        shape: &[2, 8, 4, 7168],
        rule: "ratio_reldiff(diff_thd=5e-3, pct_thd=0.05, max_abs_diff=0.25), tokens in use and others apart",
    }],
    gflop: Gflop {
        f32: 0.058,
        bf16: 0.0,
        int8: 14.8,
    },
    // The third ring as with rows for every local expert; the random table needs less, by 1 MiB for each that gets none.
    ring_bytes: Some([0, 6_348_800, 11_124_736, 52_694_016]),
};

impl Kernel for Moe {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let (layer_id, num_tokens) = (params.int("layer_id") as i32, params.int("num_tokens") as i32);
        let balanced = params.word("table") == "balanced";
        if balanced && layer_id >= HASH_LAYERS {
            return Err(SetupError::Contradiction {
                kernel: INFO.name,
                reason: format!("layer {layer_id} routes by score, not by a balanced table"),
            });
        }
        let fixture = Fixture::new(seed);
        let active = usize::try_from(num_tokens).unwrap_or(0).min(tokens);
        let input_ids = std::array::from_fn(|rank| {
            if balanced {
                consecutive_ids(tokens, rank * active)
            } else {
                token_ids(fixture, &format!("input_ids.{rank}"), tokens)
            }
        });
        let table = if balanced {
            cyclic_table(0)
        } else {
            random_table(fixture, "tid2eid")
        };
        let x_next = Tensor::zeros(DType::F32, &[RANKS, tokens, STREAMS, HIDDEN]).named("x_next");
        Ok(Box::new(Case {
            x: std::array::from_fn(|rank| streams(fixture, &format!("x_hc.{rank}"), tokens)),
            input_ids,
            weights: MoeWeights::draw(fixture, table, params.count("weight_alias")),
            windows: MoeWindows::new(tokens),
            x_next,
            layer_id,
            num_tokens,
            active,
            rule: RatioReldiff::new(params.tolerance("diff_thd"), params.tolerance("pct_thd")).abs_cap(0.25),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    x: [Tensor; RANKS],
    input_ids: [Tensor; RANKS],
    weights: [MoeWeights; RANKS],
    windows: MoeWindows,
    /// Of all ranks.
    x_next: Tensor,
    layer_id: i32,
    num_tokens: i32,
    active: usize,
    rule: RatioReldiff,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let x = self.x.each_ref().map(Tensor::read::<f32>);
            let ids = self.input_ids.each_ref().map(Tensor::read::<i64>);
            let inputs = std::array::from_fn(|rank| RankInput {
                x: &x[rank],
                input_ids: &ids[rank],
                layer_id: self.layer_id,
                num_tokens: self.num_tokens,
            });
            let x_next = reference(self.weights.each_ref(), inputs);
            Tensor::from_vec(self.x_next.dims(), x_next.concat())
        })
    }
}

impl Instance for Case {
    fn ranks(&self) -> usize {
        RANKS
    }

    /// The program is always the first call on its windows, and leaves its credits in them.
    fn reset(&self) {
        poison(&self.x_next);
        self.windows.clear();
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        let x = &self.x[rank];
        let call = MoeCall {
            rank,
            epoch: 1,
            layer_id: self.layer_id,
            num_tokens: self.num_tokens,
        };
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = MoeScratch::declare(&mut creates, x.dims()[0]);
            creates.alloc(o)?;
            moe(
                o,
                BodyScopes::Automatic,
                call,
                x,
                &self.input_ids[rank],
                &self.weights[rank],
                &self.x_next.rows(rank..rank + 1).reshape(x.dims()),
                &self.windows,
                &scratch,
            )
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        vec![
            self.rule
                .compare_partition("x_next", &self.x_next, self.reference(), self.active, 1),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
