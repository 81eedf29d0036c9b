//! The standalone kernel.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::attention::{AttentionArgs, AttentionWeights, PoolRules, Reference};
use super::{Rank, decode_layer};
use crate::compare::{RatioReldiff, TensorVerdict};
use crate::fixture::rope::MAX_POSITIONS;
use crate::fixture::{DecodeBatch, Fixture, poison};
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, Purpose, SetupError, entry_scope,
};
use crate::model::{DECODE_TOKENS, HIDDEN, RANKS, STEP_TOKENS, STREAMS};
use crate::ops::expert_routed::case::WEIGHT_ALIAS;
use crate::ops::forward::Attention;
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
            "ratio_reldiff(diff_thd=0.01, pct_thd=0.08, max_abs_diff=0.25); each half by the rule of its own program on the streams that it was given",
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
                x_attn: Tensor::zeros(DType::F32, &[DECODE_TOKENS, STREAMS, HIDDEN]).named("x_attn"),
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
            keep: AtomicBool::new(true),
            verdicts: Mutex::new(None),
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
    /// Whether the dispatch is to be validated.
    keep: AtomicBool,
    /// On the last one that was.
    verdicts: Mutex<Option<Vec<TensorVerdict>>>,
}

impl Case {
    /// The experts' streams on both ranks, of streams `x`.
    fn experts_of(&self, x: [&Tensor; RANKS]) -> Tensor {
        let x = x.map(Tensor::read::<f32>);
        let ids = self.ranks.each_ref().map(|r| r.input_ids.read::<i64>());
        let inputs = std::array::from_fn(|rank| RankInput {
            x: &x[rank],
            input_ids: &ids[rank],
            layer_id: self.layer.id as i32,
            num_tokens: DECODE_TOKENS as i32,
        });
        let x_next = reference(self.ranks.each_ref().map(|r| &r.experts), inputs);
        Tensor::from_vec(self.x_next.dims(), x_next.concat())
    }

    /// The layer as a whole by its own rules, then each half by the rules of its own program: the attention as it is, the
    /// experts on the streams that the program gave them. The rule of the whole has to bear what the halves' roundings
    /// make of each other; the halves' rules don't.
    fn compare(&self) -> Vec<TensorVerdict> {
        let attended = std::array::from_fn::<_, RANKS, _>(|rank| {
            let r = &self.ranks[rank];
            r.attention.reference(&r.attention_weights, &self.initial[rank])
        });
        let whole = self.experts_of(attended.each_ref().map(Reference::x_out));
        let mut verdicts = vec![
            RatioReldiff::new(0.01, 0.08)
                .abs_cap(0.25)
                .compare("x_next", &self.x_next, &whole),
        ];
        let rules = PoolRules::new(POOLS);
        let [first, second] = self.ranks.each_ref().map(|r| r.attention.rules(&rules));
        for (i, (a, b)) in first.iter().zip(&second).enumerate() {
            let actual = stack(&[a.tensor, b.tensor]);
            let expected = stack(&attended.each_ref().map(|reference| reference.pools()[i]));
            let mapping = [a.mapping, b.mapping].map(|m| m.read::<i64>().to_vec()).concat();
            verdicts.push(a.rule.ranks(RANKS).compare(a.name, &actual, &expected, &[&mapping]));
        }
        for (rank, (r, reference)) in self.ranks.iter().zip(&attended).enumerate() {
            let block = r.attention.between(&r.attention.block().x_hc, &r.x_attn);
            // The pools were compared above, by rules that are the same.
            let mut streams = block.compare(reference).swap_remove(0);
            streams.name = format!("attention, rank {rank}: {}", streams.name);
            verdicts.push(streams);
        }
        let experts = self.experts_of(self.ranks.each_ref().map(|r| &r.x_attn));
        let rule = RatioReldiff::new(5e-3, 0.05).abs_cap(0.25);
        verdicts.push(rule.compare("experts, of the program's x_attn: x_next", &self.x_next, &experts));
        verdicts
    }

    fn verdicts(&self) -> Vec<TensorVerdict> {
        let mut known = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(|| self.compare()).clone()
    }

    fn purpose(&self) -> Purpose {
        if self.keep.load(Ordering::Relaxed) {
            Purpose::Validation
        } else {
            Purpose::Measurement
        }
    }
}

impl Instance for Case {
    fn ranks(&self) -> usize {
        RANKS
    }

    fn announce(&self, purpose: Purpose) {
        self.keep.store(purpose == Purpose::Validation, Ordering::Relaxed);
    }

    /// The program is always the first call on its windows, and leaves its credits in them.
    fn reset(&self) {
        poison(&self.x_next);
        self.ranks.iter().for_each(|r| poison(&r.x_attn));
        *self.verdicts.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.windows.clear();
        for (rank, initial) in self.ranks.iter().zip(&self.initial) {
            for (pool, initial) in rank.attention.pools().into_iter().zip(initial) {
                pool.copy_from(initial);
            }
        }
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            decode_layer(o, rank, self.layer, &self.ranks[rank], &self.windows, self.purpose())
        })
    }

    fn golden(&self) {
        self.verdicts();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        self.verdicts()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
