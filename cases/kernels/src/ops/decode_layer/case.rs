//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::attention::{AttentionArgs, AttentionWeights, PoolRules};
use super::{Rank, decode_layer};
use crate::compare::{RatioReldiff, TensorVerdict};
use crate::fixture::rope::MAX_POSITIONS;
use crate::fixture::{DecodeBatch, Fixture, poison};
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{DECODE_TOKENS, HIDDEN, RANKS, STEP_TOKENS, STREAMS};
use crate::ops::expert_routed::case::WEIGHT_ALIAS;
use crate::ops::layers::{Layer, rank_of, stack};
use crate::ops::moe::fixture::{RankInput, consecutive_ids, cyclic_table, reference};
use crate::ops::moe::{MoeWeights, MoeWindows};

/// The layer by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLayer;

/// Where the requests of the layer, forward and multi-token-prediction programs stand.
pub(crate) const START_POS: ParamSpec = ParamSpec::int(
    "start_pos",
    -1,
    (MAX_POSITIONS - STEP_TOKENS) as i64,
    8192,
    "Position of the first new token of every request; -1 for a set of different ones",
);

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
    name: "decode_layer",
    summary: "One decode layer over two ranks: attention, then mixture of experts",
    level: Level::L3,
    ranks: RANKS,
    params: &[
        ParamSpec::int(
            "layer_id",
            0,
            60,
            10,
            "Layer: HCA below 2 and where odd, CSA elsewhere; the first three route by token id",
        ),
        START_POS,
        WEIGHT_ALIAS,
    ],
    outputs: &[
        output(
            "x_next",
            DType::F32,
            &[2, 8, 4, 7168],
            "ratio_reldiff(diff_thd=0.01, pct_thd=0.08, max_abs_diff=0.25)",
        ),
        output(
            "kv_cache",
            DType::Bf16,
            &[2, 128, 128, 1, 512],
            "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)); other rows equal",
        ),
        output(
            "cmp_kv",
            DType::Bf16,
            &[2, 32, 128, 1, 512],
            "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0)); other rows equal",
        ),
        output("csa_compress_state", DType::F32, &[2, 65, 4, 2048], STATE_RULE),
        output("csa_inner_compress_state", DType::F32, &[2, 65, 4, 512], STATE_RULE),
        output(
            "idx_kv_cache",
            DType::I8,
            &[2, 64, 128, 1, 128],
            "mapped_pool(ratio_allclose(atol=1, rtol=0, ratio<=0.01)); other rows equal",
        ),
        output(
            "idx_kv_scale",
            DType::F32,
            &[2, 64, 128, 1, 1],
            "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.01)); other rows equal",
        ),
    ],
    gflop: Gflop {
        f32: 0.06,
        bf16: 8.0,
        int8: 22.6,
    },
    ring_bytes: Some([0, 7_266_304, 11_124_736, 77_816_832]),
};

/// Tolerances of kv_cache, cmp_kv, states, idx_kv_cache and idx_kv_scale.
const POOLS: [(f64, f64, f64); 5] = [
    (1e-4, 1.0 / 128.0, 0.005),
    (1e-4, 1.0 / 128.0, 0.0),
    (1e-3, 1e-3, 0.0),
    (1.0, 0.0, 0.01),
    (1e-4, 1.0 / 128.0, 0.01),
];

impl Kernel for DecodeLayer {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let layer = Layer {
            id: params.count("layer_id"),
        };
        let fixture = Fixture::new(seed);
        let attention_weights = AttentionWeights::draw(fixture, layer.kind());
        let x_next = Tensor::zeros(DType::F32, &[RANKS, DECODE_TOKENS, STREAMS, HIDDEN]).named("x_next");
        let [first, second] = MoeWeights::draw(fixture, cyclic_table(0), params.count(WEIGHT_ALIAS.name));
        let rank = |rank, experts| {
            let batch = |family| DecodeBatch::of_params(family, params);
            Rank {
                attention: AttentionArgs::draw(fixture.of_rank(rank), layer.kind(), batch),
                attention_weights: attention_weights.clone(),
                input_ids: consecutive_ids(DECODE_TOKENS, 0),
                experts,
                x_next: rank_of(&x_next, rank),
            }
        };
        let ranks = [rank(0, first), rank(1, second)];
        Ok(Box::new(Case {
            initial: ranks
                .each_ref()
                .map(|r| r.attention.pools().into_iter().map(Tensor::snapshot).collect()),
            ranks,
            layer,
            windows: MoeWindows::new(DECODE_TOKENS),
            x_next,
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    layer: Layer,
    ranks: [Rank; RANKS],
    /// The pools of each rank as they were before the step.
    initial: [Vec<Tensor>; RANKS],
    windows: MoeWindows,
    /// Of all ranks.
    x_next: Tensor,
    golden: OnceLock<Golden>,
}

struct Golden {
    x_next: Tensor,
    pools: [Vec<Tensor>; RANKS],
}

impl Case {
    fn reference(&self) -> &Golden {
        self.golden.get_or_init(|| {
            let attended: [_; RANKS] = std::array::from_fn(|rank| {
                let r = &self.ranks[rank];
                r.attention.reference(&r.attention_weights, &self.initial[rank])
            });
            let x = attended.each_ref().map(|(x, _)| x.read::<f32>());
            let ids = self.ranks.each_ref().map(|r| r.input_ids.read::<i64>());
            let inputs = std::array::from_fn(|rank| RankInput {
                x: &x[rank],
                input_ids: &ids[rank],
                layer_id: self.layer.id as i32,
                num_tokens: DECODE_TOKENS as i32,
            });
            let x_next = reference(self.ranks.each_ref().map(|r| &r.experts), inputs);
            let x_next = Tensor::from_vec(self.x_next.dims(), x_next.concat());
            drop(x);
            Golden {
                x_next,
                pools: attended.map(|(_, pools)| pools),
            }
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
        for (rank, initial) in self.ranks.iter().zip(&self.initial) {
            for (pool, initial) in rank.attention.pools().into_iter().zip(initial) {
                pool.copy_from(initial);
            }
        }
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            decode_layer(o, rank, self.layer, &self.ranks[rank], &self.windows)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let golden = self.reference();
        let rule = RatioReldiff::new(0.01, 0.08).abs_cap(0.25);
        let mut verdicts = vec![rule.compare("x_next", &self.x_next, &golden.x_next)];
        let rules = PoolRules::new(POOLS);
        let [first, second] = self.ranks.each_ref().map(|r| r.attention.rules(&rules));
        for (i, (a, b)) in first.iter().zip(&second).enumerate() {
            let actual = stack(&[a.tensor, b.tensor]);
            let expected = stack(&[&golden.pools[0][i], &golden.pools[1][i]]);
            let mapping = [a.mapping, b.mapping].map(|m| m.read::<i64>().to_vec()).concat();
            verdicts.push(a.rule.ranks(RANKS).compare(a.name, &actual, &expected, &[&mapping]));
        }
        verdicts
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
