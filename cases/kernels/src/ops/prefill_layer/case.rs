//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::attention::{AttentionArgs, AttentionWeights, LayerPools, PoolRules, TILE};
use super::chunks::Chunks;
use super::{Rank, prefill_layer};
use crate::compare::{Allclose, RatioReldiff, TensorVerdict};
use crate::fixture::{Dist, Fixture, poison};
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{HC_DIM, HIDDEN, RANKS, STREAMS, VOCAB};
use crate::ops::expert_routed::case::WEIGHT_ALIAS;
use crate::ops::forward::Attention;
use crate::ops::layers::{Layer, rank_of, stack};
use crate::ops::moe::fixture::{RankInput, cyclic_table, reference};
use crate::ops::moe::{MoeWeights, MoeWindows};

/// The layer by itself.
#[derive(Clone, Copy, Debug)]
pub struct PrefillLayer;

const fn output(name: &'static str, dtype: DType, shape: &'static [usize], rule: &'static str) -> OutputInfo {
    OutputInfo {
        name,
        dtype,
        shape,
        rule,
    }
}

/// Longest chunk: its compressed rows fit under the cap of the indexer's scores.
const LONGEST: i64 = crate::ops::prefill_attention_csa::case::POSITIONS as i64;

const fn chunk(name: &'static str, default: i64, help: &'static str) -> ParamSpec {
    ParamSpec::int(name, 1, LONGEST, default, help)
}

const ROW_RULE: &str = "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)); other rows equal";
const STATE_RULE: &str = "mapped_pool(ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0.005)); other rows equal";

static INFO: KernelInfo = KernelInfo {
    name: "prefill_layer",
    summary: "One prefill layer over two ranks: chunks of two requests in tiles of 128 tokens, attention and mixture of experts",
    level: Level::L3,
    ranks: RANKS,
    params: &[
        ParamSpec::int(
            "layer_id",
            0,
            60,
            2,
            "Layer: HCA below 2 and where odd, CSA elsewhere; the first three route by token id",
        ),
        chunk("chunk0", 128, "New tokens of the first request"),
        chunk("chunk1", 192, "New tokens of the second request"),
        WEIGHT_ALIAS,
    ],
    outputs: &[
        output(
            "x_next",
            DType::F32,
            &[2, 384, 4, 7168],
            "ratio_reldiff(diff_thd=0.01, pct_thd=0.06, max_abs_diff=0.25) on live rows, the others equal",
        ),
        output("kv_cache", DType::Bf16, &[2, 256, 128, 1, 512], ROW_RULE),
        output("cmp_kv", DType::Bf16, &[2, 64, 128, 1, 512], ROW_RULE),
        output("csa_compress_state", DType::F32, &[2, 130, 4, 2048], STATE_RULE),
        output("csa_inner_compress_state", DType::F32, &[2, 130, 4, 512], STATE_RULE),
        output(
            "idx_kv_cache",
            DType::I8,
            &[2, 128, 128, 1, 128],
            "mapped_pool(ratio_allclose(atol=1, rtol=0, ratio<=0.01)); other rows equal",
        ),
        output(
            "idx_kv_scale",
            DType::F32,
            &[2, 128, 128, 1, 1],
            "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.01)); other rows equal",
        ),
    ],
    gflop: Gflop {
        f32: 4.0,
        bf16: 210.0,
        int8: 970.0,
    },
    ring_bytes: Some([0, 0, 0, 698_996_736]),
};

const POOLS: PoolRules = PoolRules {
    rows: (1e-4, 1.0 / 128.0, 0.005),
    state: (1e-3, 1e-3, 0.005),
    idx_kv_cache: (1.0, 0.0, 0.01),
    idx_kv_scale: (1e-4, 1.0 / 128.0, 0.01),
};

/// Streams of all rows, uniform in [−1, 1) where there is a token, and token ids in turn from the first row of the request and `rank` on; padding is zero in both.
fn draw_rows(fixture: Fixture, rank: usize, chunks: &Chunks) -> (Tensor, Tensor) {
    let x = fixture.real(
        "x_hc",
        DType::F32,
        &[chunks.rows(), STREAMS, HIDDEN],
        Dist::uniform(-1.0, 1.0),
    );
    let ids = Tensor::zeros(DType::I64, &[chunks.rows()]);
    for tile in chunks.tiles() {
        let live = tile.base + tile.live..tile.base + TILE;
        x.write::<f32>()[live.start * HC_DIM..live.end * HC_DIM].fill(0.0);
        for row in tile.base..tile.base + tile.live {
            ids.write::<i64>()[row] = ((row + rank) % VOCAB) as i64;
        }
    }
    (x, ids)
}

impl Kernel for PrefillLayer {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let layer = Layer {
            id: params.count("layer_id"),
        };
        let chunks = Chunks::new(&["chunk0", "chunk1"].map(|name| params.count(name)));
        let fixture = Fixture::new(seed);
        let x_next = Tensor::zeros(DType::F32, &[RANKS, chunks.rows(), STREAMS, HIDDEN]).named("x_next");
        let [first, second] = MoeWeights::draw(fixture, cyclic_table(0), params.count(WEIGHT_ALIAS.name));
        let pools: [LayerPools; RANKS] = std::array::from_fn(|_| LayerPools::empty(layer.kind(), chunks.len()));
        let rank = |rank: usize, experts| {
            let own = fixture.of_rank(rank);
            let (x_hc, input_ids) = draw_rows(own, rank, &chunks);
            // The streams are set for each dispatch: those after the attention are in the ring.
            let none = || Tensor::zeros(DType::F32, &[0]);
            Rank {
                x_hc,
                input_ids,
                tiles: chunks
                    .tiles()
                    .map(|t| AttentionArgs::over(&pools[rank], t.request, t.place(), [none(), none()]))
                    .collect(),
                attention: AttentionWeights::draw(own, layer.kind()),
                experts,
                x_next: rank_of(&x_next, rank),
            }
        };
        Ok(Box::new(Case {
            ranks: [rank(0, first), rank(1, second)],
            initial: LayerPools::empty(layer.kind(), chunks.len()),
            pools,
            layer,
            chunks,
            windows: MoeWindows::new(TILE),
            x_next,
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    layer: Layer,
    chunks: Chunks,
    ranks: [Rank; RANKS],
    pools: [LayerPools; RANKS],
    /// What the pools of either rank hold before the layer: every request is at its start.
    initial: LayerPools,
    windows: MoeWindows,
    /// Of all ranks.
    x_next: Tensor,
    golden: OnceLock<Golden>,
}

struct Golden {
    x_next: Tensor,
    pools: [LayerPools; RANKS],
}

impl Case {
    fn reference(&self) -> &Golden {
        self.golden.get_or_init(|| {
            let mut pools = [self.initial.clone(), self.initial.clone()];
            let x_next = Tensor::zeros(DType::F32, self.x_next.dims());
            for tile in self.chunks.tiles() {
                let rows = tile.base..tile.base + TILE;
                let attended: [Tensor; RANKS] = std::array::from_fn(|rank| {
                    let r = &self.ranks[rank];
                    let x = r.x_hc.rows(rows.clone());
                    let args = r.tiles[tile.index].between(&x, &x);
                    let (x_out, after) = args.reference(&r.attention, pools[rank].all()).into_parts();
                    pools[rank] = after;
                    x_out
                });
                let x = attended.each_ref().map(Tensor::read::<f32>);
                let ids = self
                    .ranks
                    .each_ref()
                    .map(|r| r.input_ids.rows(rows.clone()).read::<i64>().to_vec());
                let inputs = std::array::from_fn(|rank| RankInput {
                    x: &x[rank],
                    input_ids: &ids[rank],
                    layer_id: self.layer.id as i32,
                    num_tokens: tile.live as i32,
                });
                let next = reference(self.ranks.each_ref().map(|r| &r.experts), inputs);
                for (rank, next) in next.iter().enumerate() {
                    let live = tile.live * HC_DIM;
                    // Padding stays as it is: zero.
                    rank_of(&x_next, rank).rows(rows.clone()).write::<f32>()[..live].copy_from_slice(&next[..live]);
                }
            }
            Golden { x_next, pools }
        })
    }

    /// The rows of `streams` [2, rows, 4, 7168] with a token (or those without), [n, 28672].
    fn picked(&self, streams: &Tensor, live: bool) -> Tensor {
        let mut rows = Vec::new();
        for rank in 0..RANKS {
            let streams = rank_of(streams, rank);
            for tile in self.chunks.tiles() {
                let end = tile.base + tile.live;
                let range = if live { tile.base..end } else { end..tile.base + TILE };
                rows.extend_from_slice(&streams.rows(range).read::<f32>());
            }
        }
        Tensor::from_vec(&[rows.len() / HC_DIM, HC_DIM], rows)
    }
}

impl Instance for Case {
    fn ranks(&self) -> usize {
        RANKS
    }

    fn reset(&self) {
        poison(&self.x_next);
        assert!(self.windows.at_rest(), "a dispatch retires its credits");
        self.pools.iter().for_each(|pools| pools.copy_from(&self.initial));
    }

    fn recover(&self) {
        self.windows.clear();
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            prefill_layer(o, rank, self.layer, &self.chunks, &self.ranks[rank], &self.windows)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let golden = self.reference();
        let [live, padding] =
            [true, false].map(|live| (self.picked(&self.x_next, live), self.picked(&golden.x_next, live)));
        let mut verdicts = vec![
            RatioReldiff::new(0.01, 0.06)
                .abs_cap(0.25)
                .compare("x_next", &live.0, &live.1),
        ];
        if !padding.0.is_empty() {
            verdicts.push(Allclose::new(0.0, 0.0).compare("x_next, padding", &padding.0, &padding.1));
        }
        // The tables are the same on both ranks; tiles map rows of their own.
        let tiles = &self.ranks[0].tiles;
        let mappings: Vec<Vec<Vec<i64>>> = tiles
            .iter()
            .map(|t| t.mappings().iter().map(|m| m.read::<i64>().repeat(RANKS)).collect())
            .collect();
        let rules = self.initial.rules(&POOLS, TILE);
        for (i, (name, rule)) in rules.into_iter().enumerate() {
            let [actual, expected] =
                [&self.pools, &golden.pools].map(|pools| stack(&pools.each_ref().map(|p| &p.all()[i])));
            let mappings: Vec<&[i64]> = mappings.iter().map(|tile| &tile[i][..]).collect();
            verdicts.push(rule.ranks(RANKS).compare(name, &actual, &expected, &mappings));
        }
        verdicts
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
