//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{LAYER, Rank, decode_mtp};
use crate::compare::{FiniteRule, MappedPool, PoolRule, RatioReldiff, TensorVerdict};
use crate::fixture::decode::PageTable;
use crate::fixture::{DecodeBatch, Dist, Family, Fixture, Profile, RopeTables, poison};
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{DECODE_TOKENS, HIDDEN, RANKS, STREAMS};
use crate::ops::decode_attention::{BlockArgs, BlockWeights};
use crate::ops::decode_attention_swa::{self as swa, SwaBlockArgs};
use crate::ops::decode_layer::START_POS;
use crate::ops::expert_routed::case::WEIGHT_ALIAS;
use crate::ops::gate::case::token_ids;
use crate::ops::layers::{FinalHead, rank_of, stack};
use crate::ops::moe::fixture::{RankInput, random_table, reference};
use crate::ops::moe::{MoeWeights, MoeWindows};
use crate::ops::mtp_projection::MtpWeights;

/// The block by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeMtp;

static INFO: KernelInfo = KernelInfo {
    name: "decode_mtp",
    summary: "Multi-token-prediction block of a decode step over two ranks",
    level: Level::L3,
    ranks: RANKS,
    params: &[
        START_POS,
        ParamSpec::int(
            "num_tokens",
            0,
            DECODE_TOKENS as i64,
            DECODE_TOKENS as i64,
            "Tokens that the experts are given; the others go through the shared expert only",
        ),
        WEIGHT_ALIAS,
    ],
    outputs: &[
        OutputInfo {
            name: "hidden_out",
            dtype: DType::Bf16,
            shape: &[2, 8, 7168],
            rule: "ratio_reldiff(diff_thd=0.02, pct_thd=0.1), tokens in use and others apart",
        },
        OutputInfo {
            name: "next_pre_hc_hidden",
            dtype: DType::F32,
            shape: &[2, 8, 4, 7168],
            rule: "ratio_reldiff(diff_thd=0.02, pct_thd=0.06, max_abs_diff=0.25), tokens in use and others apart",
        },
        OutputInfo {
            name: "kv_cache",
            dtype: DType::Bf16,
            shape: &[2, 128, 128, 1, 512],
            rule: "mapped_pool(ratio_reldiff(diff_thd=0.01, pct_thd=0.05)); other rows equal",
        },
    ],
    gflop: Gflop {
        f32: 0.06,
        bf16: 3.15,
        int8: 30.0,
    },
    ring_bytes: Some([0, 64_832_512, 11_124_736, 5_508_096]),
};

impl Kernel for DecodeMtp {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let attention_weights = BlockWeights::draw(fixture, swa::DIST);
        let batch = DecodeBatch::of_params(Family::Swa, params);
        let next_pre_hc =
            Tensor::zeros(DType::F32, &[RANKS, DECODE_TOKENS, STREAMS, HIDDEN]).named("next_pre_hc_hidden");
        let hidden_out = Tensor::zeros(DType::Bf16, &[RANKS, DECODE_TOKENS, HIDDEN]).named("hidden_out");
        let table = random_table(fixture, "tid2eid");
        let [first, second] = MoeWeights::draw(fixture, table, params.count(WEIGHT_ALIAS.name));
        let rank = |rank, experts| {
            let own = fixture.of_rank(rank);
            let normal = Dist::normal(1.0, 0.0);
            let previous = own.real(
                "prev_pre_hc_hidden",
                DType::F32,
                &[DECODE_TOKENS, STREAMS, HIDDEN],
                normal,
            );
            previous
                .write::<f32>()
                .iter_mut()
                .for_each(|v| *v = bf16::from_f32(*v).to_f32());
            Rank {
                hidden: own.real("hidden_states", DType::Bf16, &[DECODE_TOKENS, HIDDEN], normal),
                previous,
                projection: MtpWeights::draw(own, "proj_w", 1.0),
                attention: Box::new(SwaBlockArgs {
                    block: BlockArgs::draw(own, &batch, RopeTables::of(Profile::Plain)),
                    swa_lens: batch.windows(&PageTable::window()).1,
                }),
                attention_weights: Box::new(attention_weights.clone()),
                input_ids: token_ids(own, "input_ids", DECODE_TOKENS),
                experts: Box::new(experts),
                head: FinalHead::draw(own, "mtp_"),
                next_pre_hc: rank_of(&next_pre_hc, rank),
                hidden_out: rank_of(&hidden_out, rank),
            }
        };
        let ranks = [rank(0, first), rank(1, second)];
        Ok(Box::new(Case {
            initial: ranks.each_ref().map(|r| r.attention.block.kv_cache.snapshot()),
            ranks,
            num_tokens: params.count("num_tokens"),
            windows: MoeWindows::new(DECODE_TOKENS),
            next_pre_hc,
            hidden_out,
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    ranks: [Rank; RANKS],
    /// The pool of each rank as it was before the step.
    initial: [Tensor; RANKS],
    num_tokens: usize,
    windows: MoeWindows,
    /// Of all ranks.
    next_pre_hc: Tensor,
    hidden_out: Tensor,
    golden: OnceLock<Golden>,
}

struct Golden {
    next_pre_hc: Tensor,
    hidden_out: Tensor,
    kv_cache: [Tensor; RANKS],
}

impl Case {
    fn reference(&self) -> &Golden {
        self.golden.get_or_init(|| {
            let attended: [_; RANKS] = std::array::from_fn(|rank| {
                let r = &self.ranks[rank];
                let args = r.attention_between(&r.projected(), &r.next_pre_hc);
                swa::block_reference(&args, &r.attention_weights, &self.initial[rank])
            });
            let x = attended.each_ref().map(|a| a.x_out.read::<f32>());
            let ids = self.ranks.each_ref().map(|r| r.input_ids.read::<i64>());
            let inputs = std::array::from_fn(|rank| RankInput {
                x: &x[rank],
                input_ids: &ids[rank],
                layer_id: LAYER,
                num_tokens: self.num_tokens as i32,
            });
            let next = reference(self.ranks.each_ref().map(|r| &*r.experts), inputs);
            let hidden: Vec<bf16> = self
                .ranks
                .iter()
                .zip(&next)
                .flat_map(|(r, next)| r.head.reference(next))
                .collect();
            drop(x);
            Golden {
                next_pre_hc: Tensor::from_vec(self.next_pre_hc.dims(), next.concat()),
                hidden_out: Tensor::from_vec(self.hidden_out.dims(), hidden),
                kv_cache: attended.map(|a| a.kv_cache),
            }
        })
    }
}

impl Instance for Case {
    fn ranks(&self) -> usize {
        RANKS
    }

    fn reset(&self) {
        poison(&self.next_pre_hc);
        poison(&self.hidden_out);
        assert!(self.windows.at_rest(), "a dispatch retires its credits");
        for (rank, initial) in self.ranks.iter().zip(&self.initial) {
            rank.attention.block.kv_cache.copy_from(initial);
        }
    }

    fn recover(&self) {
        self.windows.clear();
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            decode_mtp(o, rank, self.num_tokens as i32, &self.ranks[rank], &self.windows)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let (golden, active) = (self.reference(), self.num_tokens);
        let streams = RatioReldiff::new(0.02, 0.06).abs_cap(0.25);
        let pool = MappedPool::new(PoolRule::Reldiff(RatioReldiff::new(0.01, 0.05)), FiniteRule::Everywhere);
        let blocks = self.ranks.each_ref().map(|r| &r.attention.block);
        let mapping = blocks.map(|b| b.slot_mapping.read::<i64>().to_vec()).concat();
        vec![
            RatioReldiff::new(0.02, 0.10).compare_partition(
                "hidden_out",
                &self.hidden_out,
                &golden.hidden_out,
                active,
                1,
            ),
            streams.compare_partition("next_pre_hc_hidden", &self.next_pre_hc, &golden.next_pre_hc, active, 1),
            pool.ranks(RANKS).compare(
                "kv_cache",
                &stack(&blocks.map(|b| &b.kv_cache)),
                &stack(&golden.kv_cache.each_ref()),
                &[&mapping],
            ),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
