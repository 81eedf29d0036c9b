//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{LAYER, Rank, prefill_mtp};
use crate::compare::{RatioReldiff, Tail, TensorVerdict};
use crate::fixture::prefill::{NUM_TOKENS, START_POS, Tile};
use crate::fixture::{Dist, Fixture, Profile, poison};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{HIDDEN, RANKS, STREAMS};
use crate::ops::expert_routed::case::WEIGHT_ALIAS;
use crate::ops::layers::{FinalHead, rank_of};
use crate::ops::moe::fixture::{RankInput, cyclic_table, reference};
use crate::ops::moe::{MoeWeights, MoeWindows};
use crate::ops::mtp_projection::MtpWeights;
use crate::ops::prefill_attention::fixture::draw_window_pool;
use crate::ops::prefill_attention::{BlockArgs, BlockWeights, TOKENS};
use crate::ops::prefill_attention_swa::case as swa;

/// The block by itself.
#[derive(Clone, Copy, Debug)]
pub struct PrefillMtp;

static INFO: KernelInfo = KernelInfo {
    name: "prefill_mtp",
    summary: "Multi-token-prediction block over a prefill tile and two ranks",
    level: Level::L3,
    ranks: RANKS,
    params: &[NUM_TOKENS, START_POS, WEIGHT_ALIAS],
    outputs: &[
        OutputInfo {
            name: "hidden_out",
            dtype: DType::Bf16,
            shape: &[2, 128, 7168],
            rule: "ratio_reldiff(diff_thd=0.02, pct_thd=0.05) on live rows",
        },
        OutputInfo {
            name: "pre_hc_hidden_out",
            dtype: DType::F32,
            shape: &[2, 128, 4, 7168],
            rule: "ratio_reldiff(diff_thd=0.02, pct_thd=0.05) on live rows",
        },
    ],
    gflop: Gflop {
        f32: 2.0,
        bf16: 68.0,
        int8: 480.0,
    },
    ring_bytes: Some([0, 473_061_376, 177_995_776, 88_129_536]),
};

/// Token ids of `rank`, \[128\] i64: in turn from the rank on; −1 for rows that are not live. The block routes by score and reads none.
fn rolled_ids(rank: usize, num_tokens: usize) -> Tensor {
    let id = |t: usize| {
        if t < num_tokens {
            ((t + TOKENS - rank) % TOKENS) as i64
        } else {
            -1
        }
    };
    Tensor::from_vec(&[TOKENS], (0..TOKENS).map(id).collect())
}

impl Kernel for PrefillMtp {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tile = Tile::of_params(INFO.name, params)?;
        let fixture = Fixture::new(seed);
        let pre_hc = Tensor::zeros(DType::F32, &[RANKS, TOKENS, STREAMS, HIDDEN]).named("pre_hc_hidden_out");
        let hidden_out = Tensor::zeros(DType::Bf16, &[RANKS, TOKENS, HIDDEN]).named("hidden_out");
        let [first, second] = MoeWeights::draw(fixture, cyclic_table(0), params.count(WEIGHT_ALIAS.name));
        let rank = |rank, experts| {
            let own = fixture.of_rank(rank);
            let normal = Dist::normal(1.0, 0.0);
            let dims = [TOKENS, STREAMS, HIDDEN];
            let previous = own.real("prev_hidden_states", DType::F32, &dims, normal);
            previous
                .write::<f32>()
                .iter_mut()
                .for_each(|v| *v = bf16::from_f32(*v).to_f32());
            // The streams come in between: of the program's own buffers.
            let none = || Tensor::zeros(DType::F32, &[0]);
            Rank {
                hidden: own.real("hidden_states", DType::Bf16, &[TOKENS, HIDDEN], normal),
                previous,
                projection: Box::new(MtpWeights::draw(own, "proj_w", 1.0)),
                attention: BlockArgs::over(
                    &draw_window_pool(own, tile.start),
                    0,
                    tile,
                    Profile::Plain,
                    [none(), none()],
                ),
                attention_weights: Box::new(BlockWeights::draw(own, swa::HC)),
                input_ids: rolled_ids(rank, tile.num_tokens),
                experts,
                head: FinalHead::draw(own, "mtp_"),
                pre_hc: rank_of(&pre_hc, rank),
                hidden_out: rank_of(&hidden_out, rank),
            }
        };
        let ranks = [rank(0, first), rank(1, second)];
        Ok(Box::new(Case {
            initial: ranks.each_ref().map(|r| r.attention.kv_cache.snapshot()),
            ranks,
            num_tokens: tile.num_tokens,
            windows: MoeWindows::new(TOKENS),
            pre_hc,
            hidden_out,
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    ranks: [Rank; RANKS],
    /// The pool of each rank as it was before the tile.
    initial: [Tensor; RANKS],
    num_tokens: usize,
    windows: MoeWindows,
    /// Of all ranks.
    pre_hc: Tensor,
    hidden_out: Tensor,
    golden: OnceLock<Golden>,
}

struct Golden {
    pre_hc: Tensor,
    hidden_out: Tensor,
}

impl Case {
    fn reference(&self) -> &Golden {
        self.golden.get_or_init(|| {
            let attended: [Tensor; RANKS] = std::array::from_fn(|rank| {
                let r = &self.ranks[rank];
                let args = r.attention.between(&r.projected(), &r.pre_hc);
                swa::reference(&args, &r.attention_weights, &self.initial[rank]).x_out
            });
            let x = attended.each_ref().map(Tensor::read::<f32>);
            let ids = self.ranks.each_ref().map(|r| r.input_ids.read::<i64>());
            let inputs = std::array::from_fn(|rank| RankInput {
                x: &x[rank],
                input_ids: &ids[rank],
                layer_id: LAYER,
                num_tokens: self.num_tokens as i32,
            });
            let next = reference(self.ranks.each_ref().map(|r| &r.experts), inputs);
            let hidden: Vec<bf16> = self
                .ranks
                .iter()
                .zip(&next)
                .flat_map(|(r, next)| r.head.reference(next))
                .collect();
            Golden {
                pre_hc: Tensor::from_vec(self.pre_hc.dims(), next.concat()),
                hidden_out: Tensor::from_vec(self.hidden_out.dims(), hidden),
            }
        })
    }
}

impl Instance for Case {
    fn ranks(&self) -> usize {
        RANKS
    }

    fn reset(&self) {
        poison(&self.pre_hc);
        poison(&self.hidden_out);
        assert!(self.windows.at_rest(), "a dispatch retires its credits");
        for (rank, initial) in self.ranks.iter().zip(&self.initial) {
            rank.attention.kv_cache.copy_from(initial);
        }
    }

    fn recover(&self) {
        self.windows.clear();
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| prefill_mtp(o, rank, &self.ranks[rank], &self.windows))
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let golden = self.reference();
        let rule = RatioReldiff::new(0.02, 0.05).valid_rows(self.num_tokens, 1, Tail::Free);
        vec![
            rule.compare("hidden_out", &self.hidden_out, &golden.hidden_out),
            rule.compare("pre_hc_hidden_out", &self.pre_hc, &golden.pre_hc),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
