//! The kernel: fixture, instance and comparison.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::golden::{Golden, golden};
use super::{Rank, prefill_fwd};
use crate::compare::{Allclose, SampledIds, TensorVerdict, VectorDistance};
use crate::fixture::prefill::Tile;
use crate::fixture::{Fixture, poison};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError};
use crate::model::{HASH_LAYERS, HIDDEN, RANKS, STREAMS, VOCAB};
use crate::ops::expert_routed::case::WEIGHT_ALIAS;
use crate::ops::layers::{FinalHead, Kind, PAIRS, Schedule, embedding, rank_of, stack};
use crate::ops::lm_head::{self, LmHeadArgs, LmHeadWindows};
use crate::ops::moe::fixture::{consecutive_ids, cyclic_table};
use crate::ops::moe::{MoeWeights, MoeWindows};
use crate::ops::prefill_attention::{BlockWeights, TOKENS};
use crate::ops::prefill_attention_hca::case as hca;
use crate::ops::prefill_layer::attention::{AttentionArgs, AttentionWeights, LayerPools, PoolRules};

/// A whole prefill pass.
#[derive(Clone, Copy, Debug)]
pub struct PrefillFwd;

const fn output(name: &'static str, dtype: DType, shape: &'static [usize], rule: &'static str) -> OutputInfo {
    OutputInfo {
        name,
        dtype,
        shape,
        rule,
    }
}

const TOKEN_RULE: &str = "cosine>=0.99, relative_l2<=0.1 on live rows, equal tail";
const ROW_RULE: &str = "per layer and rank: mapped_pool(ratio_allclose(atol=1e-3, rtol=3e-2, ratio<=0.01)) in layer 0, cosine>=0.99, relative_l2<=0.1 of mapped rows in the others; other rows equal";
const STATE_RULE: &str = "per layer and rank: mapped_pool(ratio_allclose(atol=5e-3, rtol=2e-2, ratio<=0.01)) in layer 0, cosine>=0.99, relative_l2<=0.1 of mapped rows in the others; other rows equal";
const INDEX_RULE: &str = "per layer and rank: cosine>=0.99, relative_l2<=0.1 of mapped rows; other rows equal";

static INFO: KernelInfo = KernelInfo {
    name: "prefill_fwd",
    summary: "Prefill forward pass over two ranks: embedding, layers, head and sampling",
    level: Level::L3,
    ranks: RANKS,
    params: &[
        PAIRS,
        ParamSpec::int(
            "num_tokens",
            1,
            TOKENS as i64 - 1,
            64,
            "Live tokens of the tile; not all: the state tables of this fixture can't hold a window of 128",
        ),
        WEIGHT_ALIAS,
    ],
    outputs: &[
        output("pre_hc_hidden_out", DType::F32, &[2, 128, 4, 7168], TOKEN_RULE),
        output("hidden_out", DType::Bf16, &[2, 128, 7168], TOKEN_RULE),
        output(
            "logits",
            DType::F32,
            &[2, 8, 129_280],
            "selected rows: cosine>=0.99, relative_l2<=0.1",
        ),
        output("sampled_ids", DType::I32, &[2, 8, 8], "argmax of the program's logits"),
        output("kv_cache", DType::Bf16, &[2, 640, 128, 1, 512], ROW_RULE),
        output("cmp_kv", DType::Bf16, &[2, 160, 128, 1, 512], ROW_RULE),
        output("hca_compress_state", DType::F32, &[2, 192, 8, 1024], STATE_RULE),
        output("csa_compress_state", DType::F32, &[2, 130, 4, 2048], STATE_RULE),
        output("csa_inner_compress_state", DType::F32, &[2, 130, 4, 512], STATE_RULE),
        output("idx_kv_cache", DType::I8, &[2, 128, 128, 1, 128], INDEX_RULE),
        output("idx_kv_scale", DType::F32, &[2, 128, 128, 1, 1], INDEX_RULE),
    ],
    gflop: Gflop {
        f32: 7.0,
        bf16: 370.0,
        int8: 1_250.0,
    },
    // Five layers.
    ring_bytes: Some([119_275_520, 312_274_944, 177_995_776, 88_129_536]),
};

const POOLS: PoolRules = PoolRules {
    rows: (1e-3, 3e-2, 0.01),
    state: (5e-3, 2e-2, 0.01),
    idx_kv_cache: (1.0, 0.0, 0.02),
    idx_kv_scale: (1e-3, 1e-2, 0.01),
};

/// How far the program may be from the reference behind the first layer, as a whole: the rule that the original has for its logits.
///
/// The original's element-wise rules (at most 2 % of the streams beyond 1e-2 + 5 %, of the rows of pools 1 % beyond 3 %) can't be
/// held by a reference that sums in another order. A sum that differs in its last bit flips a few codes of the next
/// quantisation by a whole step, those flip more of the one after, and within a layer or two the two chains differ by the noise
/// of the quantisation itself. Each component and each kind of layer holds its element-wise rules by itself; over five
/// layers 6 to 8 % of the streams are beyond theirs.
const DRIFT: VectorDistance = VectorDistance {
    cosine: 0.99,
    relative_l2: 0.10,
};

/// Pairs up to which the reference is computed: it costs as much as the pass.
const GOLDEN_PAIRS: usize = 1;

/// Arguments of a layer over its pools, for `num_tokens` live tokens.
///
/// The metadata is that of a whole tile, whatever is live. State rows go by position, while every page of the state
/// tables is page 0: nothing is read from there, since the request is at its start and no window is as long as the tile.
fn layer_args(pools: &LayerPools, num_tokens: usize) -> AttentionArgs {
    let whole = Tile {
        start: 0,
        num_tokens: TOKENS,
    };
    // The streams come in between: of the program's own buffers.
    let none = || Tensor::zeros(DType::F32, &[0]);
    let mut args = AttentionArgs::over(pools, 0, whole, [none(), none()]);
    let flat = |table: &mut Tensor, slots: &mut Tensor| {
        *table = Tensor::zeros(DType::I32, table.dims());
        *slots = Tensor::from_vec(&[TOKENS], (0..TOKENS as i64).collect());
    };
    match &mut args {
        AttentionArgs::Hca(args) => flat(&mut args.state_table, &mut args.state_slots),
        AttentionArgs::Csa(args) => {
            flat(&mut args.main.table, &mut args.main.slots);
            flat(&mut args.inner.table, &mut args.inner.slots);
        }
    }
    args.block_mut().num_tokens = num_tokens;
    args
}

/// The rows of a pool that `mapping` names, in f32: [n, width].
fn mapped_rows(pool: &Tensor, mapping: &[i64]) -> Tensor {
    let width = pool.dims()[pool.rank() - 1];
    let all = pool.reshape(&[pool.len() / width, width]);
    let mut values = Vec::new();
    for slot in mapping.iter().filter_map(|slot| usize::try_from(*slot).ok()) {
        let row = all.rows(slot..slot + 1);
        match pool.dtype() {
            DType::I8 => values.extend(row.read::<i8>().iter().map(|v| f32::from(*v))),
            DType::Bf16 => values.extend(row.read::<bf16>().iter().map(|v| v.to_f32())),
            _ => values.extend_from_slice(&row.read::<f32>()),
        }
    }
    Tensor::from_vec(&[values.len() / width, width], values)
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

impl Kernel for PrefillFwd {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let (schedule, num_tokens) = (Schedule::of_params(params), params.count("num_tokens"));
        let fixture = Fixture::new(seed);
        let ids = consecutive_ids(TOKENS, 0);
        let embed = embedding(fixture, "embed_weight", &ids.read::<i64>());
        // One slice of each kind serves all layers. All layers draw from the fixture of layer 0, an HCA layer.
        let block = BlockWeights::draw(fixture, hca::HC);
        let [hca, csa] = [Kind::Hca, Kind::Csa].map(|kind| AttentionWeights::draw_with(fixture, kind, &block));
        let tables: Vec<Tensor> = (0..HASH_LAYERS as usize).map(|layer| cyclic_table(6 * layer)).collect();
        let experts = MoeWeights::draw(fixture, tables[0].clone(), params.count(WEIGHT_ALIAS.name));
        let head = FinalHead::draw(fixture, "");
        let zeros = |name, dtype, dims: &[usize]| Tensor::zeros(dtype, &[&[RANKS], dims].concat()).named(name);
        let outputs = Outputs {
            pre_hc: zeros("pre_hc_hidden_out", DType::F32, &[TOKENS, STREAMS, HIDDEN]),
            hidden: zeros("hidden_out", DType::Bf16, &[TOKENS, HIDDEN]),
            logits: zeros("logits", DType::F32, &[lm_head::ROWS, VOCAB]),
            sampled: zeros("sampled_ids", DType::I32, &[lm_head::ROWS, lm_head::SAMPLE_PAD]),
        };
        let pools: [Vec<LayerPools>; RANKS] = std::array::from_fn(|_| {
            schedule
                .layers()
                .map(|layer| LayerPools::empty(layer.kind(), 1))
                .collect()
        });
        let rank = |rank: usize| Rank {
            input_ids: ids.clone(),
            embed: embed.clone(),
            attention: pools[rank].iter().map(|p| layer_args(p, num_tokens)).collect(),
            hca: hca.clone(),
            csa: csa.clone(),
            experts: experts_of_layers(&experts[rank], &tables, schedule),
            num_tokens,
            head: head.clone(),
            lm_head: LmHeadArgs {
                hidden: rank_of(&outputs.hidden, rank),
                rows: Tensor::from_vec(
                    &[lm_head::ROWS],
                    (0..lm_head::ROWS)
                        .map(|i| if i == 0 { num_tokens as i32 - 1 } else { -1 })
                        .collect(),
                ),
                weight: lm_head::draw_shard(fixture, rank),
                logits: rank_of(&outputs.logits, rank),
                sampled: rank_of(&outputs.sampled, rank),
            },
            pre_hc: rank_of(&outputs.pre_hc, rank),
        };
        Ok(Box::new(Case {
            ranks: [rank(0), rank(1)],
            pools,
            initial: [Kind::Hca, Kind::Csa].map(|kind| LayerPools::empty(kind, 1)),
            schedule,
            num_tokens,
            golden_exists: params.count(PAIRS.name) <= GOLDEN_PAIRS,
            windows: MoeWindows::new(TOKENS),
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
    num_tokens: usize,
    ranks: [Rank; RANKS],
    /// Of each layer.
    pools: [Vec<LayerPools>; RANKS],
    /// What the pools of each kind hold before the pass.
    initial: [LayerPools; 2],
    golden_exists: bool,
    windows: MoeWindows,
    lm_windows: LmHeadWindows,
    outputs: Outputs,
    golden: OnceLock<Golden>,
}

impl Case {
    fn initial(&self, kind: Kind) -> LayerPools {
        let [hca, csa] = &self.initial;
        match kind {
            Kind::Hca => hca.clone(),
            Kind::Csa => csa.clone(),
        }
    }

    fn reference(&self) -> &Golden {
        self.golden
            .get_or_init(|| golden(self.schedule, &self.ranks, |kind| self.initial(kind)))
    }

    /// Verdicts on the pools of a layer of a rank.
    fn compare_pools(&self, rank: usize, layer: usize) -> Vec<TensorVerdict> {
        let pools = &self.pools[rank][layer];
        let expected = self.reference().pools[layer][rank].all();
        let mappings = self.ranks[rank].attention[layer].mappings();
        let rules = if layer == 0 { POOLS } else { PoolRules::OTHERS_ONLY };
        let rules = pools.rules(&rules, self.num_tokens).into_iter().zip(mappings);
        let mut verdicts = Vec::new();
        for ((actual, expected), ((name, rule), mapping)) in pools.all().iter().zip(expected).zip(rules) {
            let name = format!("{name}, layer {layer}, rank {rank}");
            // Rows of tokens that are not live are named as well, but not written.
            let mapping = &mapping.read::<i64>()[..self.num_tokens];
            verdicts.push(rule.compare(&name, actual, expected, &[mapping]));
            if layer > 0 && mapping.iter().any(|slot| *slot >= 0) {
                let [actual, expected] = [actual, expected].map(|pool| mapped_rows(pool, mapping));
                verdicts.push(DRIFT.compare(&format!("{name}, mapped rows"), &actual, &expected));
            }
        }
        verdicts
    }

    /// Verdicts on rows of tokens, [2, 128, …]: the live ones as a whole, the others one by one.
    fn compare_tokens(&self, name: &str, actual: &Tensor, expected: &Tensor) -> [TensorVerdict; 2] {
        let rows = |tensor: &Tensor, live: bool| {
            let range = if live {
                0..self.num_tokens
            } else {
                self.num_tokens..TOKENS
            };
            let ranks: [Tensor; RANKS] =
                std::array::from_fn(|rank| rank_of(tensor, rank).rows(range.clone()).snapshot());
            stack(&ranks.each_ref())
        };
        [
            DRIFT.compare(name, &rows(actual, true), &rows(expected, true)),
            Allclose::new(0.0, 0.0).compare(
                &format!("{name}, inactive rows"),
                &rows(actual, false),
                &rows(expected, false),
            ),
        ]
    }

    /// The first row of each rank's logits: the only one that is selected.
    fn selected(logits: &Tensor) -> Tensor {
        let rows: Vec<f32> = (0..RANKS)
            .flat_map(|rank| rank_of(logits, rank).rows(0..1).read::<f32>().to_vec())
            .collect();
        Tensor::from_vec(&[RANKS, VOCAB], rows)
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
        for pools in &self.pools {
            for (layer, pools) in self.schedule.layers().zip(pools) {
                pools.copy_from(&self.initial(layer.kind()));
            }
        }
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        prefill_fwd(
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

    /// Sampled ids are judged by the program's own logits: two of the reference's may be closer to each other than the rule of the logits is.
    fn validate(&self) -> Vec<TensorVerdict> {
        if !self.golden_exists {
            return Vec::new();
        }
        let (o, golden) = (&self.outputs, self.reference());
        let pre_hc = Tensor::from_vec(o.pre_hc.dims(), golden.pre_hc.clone());
        let hidden = Tensor::from_vec(o.hidden.dims(), golden.hidden.clone());
        let logits = Tensor::from_vec(o.logits.dims(), golden.logits.clone());
        let mut verdicts = Vec::from(self.compare_tokens("pre_hc_hidden_out", &o.pre_hc, &pre_hc));
        verdicts.extend(self.compare_tokens("hidden_out", &o.hidden, &hidden));
        verdicts.push(DRIFT.compare("logits", &Self::selected(&o.logits), &Self::selected(&logits)));
        verdicts.push(SampledIds.compare("sampled_ids", &o.sampled, &o.logits));
        for rank in 0..RANKS {
            for layer in 0..self.schedule.len() {
                verdicts.extend(self.compare_pools(rank, layer));
            }
        }
        verdicts
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
