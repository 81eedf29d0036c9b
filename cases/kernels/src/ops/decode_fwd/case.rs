//! The kernel: fixture, instance and comparison.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::golden::{self, Golden};
use super::{Rank, decode_fwd};
use crate::compare::{Allclose, RatioAllclose, SampledIds, TensorVerdict, VectorDistance};
use crate::fixture::{DecodeBatch, Fixture, poison};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError};
use crate::model::{DECODE_TOKENS, HASH_LAYERS, HIDDEN, RANKS, STREAMS, VOCAB};
use crate::ops::decode_attention::BlockWeights;
use crate::ops::decode_attention_hca as hca;
use crate::ops::decode_layer::START_POS;
use crate::ops::decode_layer::attention::{AttentionArgs, AttentionWeights, PoolRules};
use crate::ops::expert_routed::case::WEIGHT_ALIAS;
use crate::ops::layers::{FinalHead, Kind, PAIRS, Schedule, embedding, rank_of};
use crate::ops::lm_head::{self, LmHeadArgs, LmHeadWindows};
use crate::ops::moe::fixture::{consecutive_ids, cyclic_table};
use crate::ops::moe::{MoeWeights, MoeWindows};

/// A whole decode step.
#[derive(Clone, Copy, Debug)]
pub struct DecodeFwd;

const fn output(name: &'static str, dtype: DType, shape: &'static [usize], rule: &'static str) -> OutputInfo {
    OutputInfo {
        name,
        dtype,
        shape,
        rule,
    }
}

const STATE_RULE: &str =
    "per layer and rank: mapped_pool(ratio_allclose(atol=0.1, rtol=5e-2, ratio<=0.02)); other rows equal";
const ROW_RULE: &str =
    "per layer and rank: mapped_pool(ratio_allclose(atol=5e-2, rtol=5e-2, ratio<=0.02)); other rows equal";

static INFO: KernelInfo = KernelInfo {
    name: "decode_fwd",
    summary: "Decode forward pass over two ranks: embedding, layers, head and sampling",
    level: Level::L3,
    ranks: RANKS,
    params: &[PAIRS, START_POS, WEIGHT_ALIAS],
    outputs: &[
        output(
            "pre_hc_hidden_out",
            DType::F32,
            &[2, 8, 4, 7168],
            "cosine>=0.99, relative_l2<=0.1",
        ),
        output(
            "hidden_out",
            DType::Bf16,
            &[2, 8, 7168],
            "of the program's pre_hc_hidden_out: ratio_allclose(atol=1e-4, rtol=1/64, ratio<=0.005)",
        ),
        output(
            "logits",
            DType::F32,
            &[2, 8, 129_280],
            "of the program's hidden_out: allclose(rtol=1e-3, atol=1e-3)",
        ),
        output("sampled_ids", DType::I32, &[2, 8, 8], "argmax of the program's logits"),
        output("kv_cache", DType::Bf16, &[2, 640, 128, 1, 512], ROW_RULE),
        output("cmp_kv", DType::Bf16, &[2, 160, 128, 1, 512], ROW_RULE),
        output("hca_compress_state", DType::F32, &[2, 192, 8, 1024], STATE_RULE),
        output("csa_compress_state", DType::F32, &[2, 130, 4, 2048], STATE_RULE),
        output("csa_inner_compress_state", DType::F32, &[2, 130, 4, 512], STATE_RULE),
        output(
            "idx_kv_cache",
            DType::I8,
            &[2, 128, 128, 1, 128],
            "per layer and rank: mapped_pool(ratio_allclose(atol=4, rtol=0, ratio<=0.02)); other rows equal",
        ),
        output(
            "idx_kv_scale",
            DType::F32,
            &[2, 128, 128, 1, 1],
            "per layer and rank: mapped_pool(ratio_allclose(atol=1e-3, rtol=5e-2, ratio<=0.02)); other rows equal",
        ),
    ],
    gflop: Gflop {
        f32: 0.3,
        bf16: 69.7,
        int8: 110.0,
    },
    // Five layers; ring 3 is that of rank 0 in layer 0, where all routes stay on it. Ring 1 is the CSA stage from an
    // offset of 0: elsewhere its larger tensors lose space at the wrap.
    ring_bytes: Some([7_454_720, 77_816_832, 11_124_736, 52_694_016]),
};

/// Tolerances of kv_cache, cmp_kv, states, idx_kv_cache and idx_kv_scale.
///
/// Wider than those of the prefill pass: int8 codes in front of the experts turn on rounding differences, and each
/// layer starts from what the last one made of them. After five layers 6 to 8 % of the streams were beyond
/// `1e-2 + 5e-2 · |e|`, of which the prefill pass allows 2 %. Rows have a root mean square of 1, so that a wrong layer
/// or weight is far outside still.
const POOLS: [(f64, f64, f64); 5] = [
    (5e-2, 5e-2, 0.02),
    (5e-2, 5e-2, 0.02),
    (0.1, 5e-2, 0.02),
    (4.0, 0.0, 0.02),
    (1e-3, 5e-2, 0.02),
];

/// Pairs up to which the reference is computed: beyond, its own rounding has not been weighed against the rules.
const GOLDEN_PAIRS: usize = 1;

/// Pools before the step. Those of a kind are the same in all layers, so each rank has one copy of each kind.
pub(super) struct InitialPools {
    hca: [Vec<Tensor>; RANKS],
    csa: [Vec<Tensor>; RANKS],
}

impl InitialPools {
    /// In the order of the kind.
    pub(super) fn of(&self, rank: usize, kind: Kind) -> &[Tensor] {
        match kind {
            Kind::Hca => &self.hca[rank],
            Kind::Csa => &self.csa[rank],
        }
    }
}

/// Experts of each layer: the tables of the layers that look into one; the others have any, and read none.
fn experts_of_layers(weights: &MoeWeights, tables: &[Tensor], schedule: Schedule) -> Vec<MoeWeights> {
    schedule
        .layers()
        .map(|layer| {
            let mut weights = weights.clone();
            weights.gate.table = tables[layer.id.min(tables.len() - 1)].clone();
            weights
        })
        .collect()
}

impl Kernel for DecodeFwd {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let schedule = Schedule::of_params(params);
        let fixture = Fixture::new(seed);
        let ids = consecutive_ids(DECODE_TOKENS, 0);
        let embed = embedding(fixture, "embed_weight", &ids.read::<i64>());
        // One slice of each kind serves all layers. All layers draw from the fixture of layer 0, an HCA layer.
        let block = BlockWeights::draw(fixture, hca::DIST);
        let [hca, csa] = [Kind::Hca, Kind::Csa].map(|kind| AttentionWeights::draw_with(fixture, kind, &block));
        let tables: Vec<Tensor> = (0..HASH_LAYERS as usize).map(|layer| cyclic_table(6 * layer)).collect();
        let experts = MoeWeights::draw(fixture, tables[0].clone(), params.count(WEIGHT_ALIAS.name));
        let head = FinalHead::draw(fixture, "");
        let zeros = |name, dtype, dims: &[usize]| Tensor::zeros(dtype, &[&[RANKS], dims].concat()).named(name);
        let outputs = Outputs {
            pre_hc: zeros("pre_hc_hidden_out", DType::F32, &[DECODE_TOKENS, STREAMS, HIDDEN]),
            hidden: zeros("hidden_out", DType::Bf16, &[DECODE_TOKENS, HIDDEN]),
            logits: zeros("logits", DType::F32, &[lm_head::ROWS, VOCAB]),
            sampled: zeros("sampled_ids", DType::I32, &[lm_head::ROWS, lm_head::SAMPLE_PAD]),
        };
        let pools = [Kind::Hca, Kind::Csa].map(|kind| {
            let draw = |rank| AttentionArgs::draw(fixture.of_rank(rank), kind, |f| DecodeBatch::of_params(f, params));
            std::array::from_fn::<_, RANKS, _>(draw)
        });
        let rank = |rank: usize| Rank {
            input_ids: ids.clone(),
            embed: embed.clone(),
            attention: schedule
                .layers()
                .map(|layer| match layer.kind() {
                    Kind::Hca => pools[0][rank].with_own_pools(),
                    Kind::Csa => pools[1][rank].with_own_pools(),
                })
                .collect(),
            hca: hca.clone(),
            csa: csa.clone(),
            experts: experts_of_layers(&experts[rank], &tables, schedule),
            head: head.clone(),
            lm_head: LmHeadArgs {
                hidden: rank_of(&outputs.hidden, rank),
                rows: Tensor::from_vec(&[lm_head::ROWS], (0..lm_head::ROWS as i32).collect()),
                weight: lm_head::draw_shard(fixture, rank),
                logits: rank_of(&outputs.logits, rank),
                sampled: rank_of(&outputs.sampled, rank),
            },
            pre_hc: rank_of(&outputs.pre_hc, rank),
        };
        let initial = |args: &AttentionArgs| args.pools().into_iter().cloned().collect();
        Ok(Box::new(Case {
            ranks: [rank(0), rank(1)],
            initial: InitialPools {
                hca: pools[0].each_ref().map(initial),
                csa: pools[1].each_ref().map(initial),
            },
            schedule,
            golden_exists: params.count(PAIRS.name) <= GOLDEN_PAIRS,
            windows: MoeWindows::new(DECODE_TOKENS),
            lm_windows: LmHeadWindows::new(),
            outputs,
            golden: OnceLock::new(),
        }))
    }
}

/// Outputs of all ranks.
struct Outputs {
    pre_hc: Tensor,
    hidden: Tensor,
    logits: Tensor,
    sampled: Tensor,
}

struct Case {
    schedule: Schedule,
    ranks: [Rank; RANKS],
    initial: InitialPools,
    golden_exists: bool,
    windows: MoeWindows,
    lm_windows: LmHeadWindows,
    outputs: Outputs,
    golden: OnceLock<Golden>,
}

impl Case {
    fn reference(&self) -> &Golden {
        self.golden
            .get_or_init(|| golden::golden(self.schedule, &self.ranks, &self.initial))
    }
}

impl Instance for Case {
    fn ranks(&self) -> usize {
        RANKS
    }

    /// The signals are left as the last dispatch left them: that it retired and cleared them is part of the program.
    fn reset(&self) {
        let o = &self.outputs;
        [&o.pre_hc, &o.hidden, &o.logits, &o.sampled]
            .into_iter()
            .for_each(poison);
        assert!(
            self.windows.at_rest() && self.lm_windows.at_rest(),
            "a dispatch leaves its signals at zero"
        );
        for (rank, args) in self.ranks.iter().enumerate() {
            for (layer, attention) in self.schedule.layers().zip(&args.attention) {
                let initial = self.initial.of(rank, layer.kind());
                for (pool, initial) in attention.pools().into_iter().zip(initial) {
                    pool.copy_from(initial);
                }
            }
        }
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        decode_fwd(
            o,
            rank,
            self.schedule,
            &self.ranks[rank],
            &self.windows,
            &self.lm_windows,
        )
    }

    fn golden(&self) {
        if self.golden_exists {
            self.reference();
        }
    }

    fn has_golden(&self) -> bool {
        self.golden_exists
    }

    /// The streams and the pools against the chain, and each step of the tail against the program's own step before.
    fn validate(&self) -> Vec<TensorVerdict> {
        if !self.golden_exists {
            return Vec::new();
        }
        let (o, golden) = (&self.outputs, self.reference());
        let distance = VectorDistance {
            cosine: 0.99,
            relative_l2: 0.10,
        };
        let pre_hc = Tensor::from_vec(o.pre_hc.dims(), golden.pre_hc.clone());
        let hidden = Tensor::from_vec(o.hidden.dims(), golden::hidden(&self.ranks));
        let logits = Tensor::from_vec(o.logits.dims(), golden::logits(&self.ranks));
        let mut verdicts = vec![
            distance.compare("pre_hc_hidden_out", &o.pre_hc, &pre_hc),
            // Two bf16 roundings, of the head and of the norm.
            RatioAllclose::new(1e-4, 1.0 / 64.0, 0.005).compare("hidden_out", &o.hidden, &hidden),
            Allclose::new(1e-3, 1e-3).compare("logits", &o.logits, &logits),
            SampledIds.compare("sampled_ids", &o.sampled, &o.logits),
        ];
        let rules = PoolRules::new(POOLS);
        for (rank, args) in self.ranks.iter().enumerate() {
            for (layer, attention) in args.attention.iter().enumerate() {
                let expected = &golden.pools[layer][rank];
                for (pool, expected) in attention.rules(&rules).iter().zip(expected) {
                    let name = format!("{}, layer {layer}, rank {rank}", pool.name);
                    let mapping = pool.mapping.read::<i64>();
                    verdicts.push(pool.rule.compare(&name, pool.tensor, expected, &[&mapping]));
                }
            }
        }
        verdicts
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
