//! The standalone kernel, with the reference that composed programs share.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{PrefillIndexerArgs, PrefillIndexerScratch, SCORE_CAP, prefill_indexer, topk_copy};
use crate::compare::{HardBound, ScoreRegion, TensorVerdict, TopkPairs};
use crate::creates::Creates;
use crate::fixture::compressor::{INDEX, empty_pool};
use crate::fixture::{Dist, Fixture, Profile, RopeTables, Rounding, hadamard, paging, poison, prefill};
use crate::golden::indexer::{Heads, Keys};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{INDEX_DIM, INDEX_PAGES, INDEX_TOPK, PAGE, PREFILL_TOKENS, Q_LORA};
use crate::ops::decode_indexer::{IndexerWeights, MASKED};
use crate::ops::prefill_indexer_compressor::PrefillIndexerCompressorArgs;
use crate::ops::prefill_indexer_compressor::case::{
    self as inner, CACHE_RULE, SCALE_RULE, STATE_RULE, draw_tile, draw_x,
};
use crate::scopes::BodyScopes;

/// The indexer over a tile by itself.
#[derive(Clone, Copy, Debug)]
pub struct PrefillIndexer;

/// Floor of the bound of a score's error.
const HARD_FLOOR: f64 = 7e-3;
/// Positions whose keys the scored columns cover.
const POSITIONS: usize = INDEX.ratio * SCORE_CAP + INDEX.ratio - 1;

static INFO: KernelInfo = KernelInfo {
    name: "prefill_indexer",
    summary: "Lightning indexer over a tile of 128 tokens: int8 scores of compressed keys and their order",
    level: Level::L2,
    ranks: 1,
    params: &[prefill::NUM_TOKENS, prefill::START_POS],
    outputs: &[
        OutputInfo {
            name: "score",
            dtype: DType::F32,
            shape: &[128, 256],
            rule: "score_region(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005), hard_atol=7e-3)",
        },
        OutputInfo {
            name: "topk_idxs",
            dtype: DType::I32,
            shape: &[128, 256],
            rule: "topk_pairs(k=1024, hard_atol=7e-3)",
        },
        OutputInfo {
            name: "inner_compress_state",
            dtype: DType::F32,
            shape: &[65, 4, 512],
            rule: STATE_RULE,
        },
        OutputInfo {
            name: "idx_kv_cache",
            dtype: DType::I8,
            shape: &[64, 128, 1, 128],
            rule: CACHE_RULE,
        },
        OutputInfo {
            name: "idx_kv_scale",
            dtype: DType::F32,
            shape: &[64, 128, 1, 1],
            rule: SCALE_RULE,
        },
    ],
    gflop: Gflop {
        f32: 0.0,
        bf16: 1.326,
        int8: 3.288,
    },
    ring_bytes: Some([0, 8_235_008, 0, 0]),
};

/// What a tile should leave behind. Scores follow from keys: see [`Reference::ranked`].
pub(crate) struct Reference {
    heads: Heads,
    pub(crate) inner: inner::Reference,
    /// Columns that each token sees, 0 for one that is not live.
    pub(crate) visible: Vec<usize>,
}

/// The reference, over the inner compressor's pools as they were before the tile.
///
/// Rows of tokens that are not live stay masked. The original's reference scores them, and its comparison then asks for
/// equality with rows that its program never touches: the two agree for a whole tile only.
pub(crate) fn reference(
    args: &PrefillIndexerArgs,
    weights: &IndexerWeights,
    pools: (&Tensor, &Tensor, &Tensor),
) -> Reference {
    let tile = &args.inner.tile;
    let heads = weights.with_reference(
        &tile.x,
        (&args.qr, &args.qr_scale),
        (&args.cos, &args.sin),
        1,
        &args.inner.hadamard,
        |input| input.heads(),
    );
    let positions = tile.positions.read::<i32>();
    let visible = |t: usize| {
        if t < tile.num_tokens {
            ((positions[t] as usize + 1) / INDEX.ratio).min(SCORE_CAP)
        } else {
            0
        }
    };
    Reference {
        heads,
        inner: inner::reference(&args.inner, &weights.inner, pools),
        visible: (0..PREFILL_TOKENS).map(visible).collect(),
    }
}

impl Reference {
    /// Scores and lists over these pools of keys and scales, [128, 256] each.
    pub(crate) fn ranked(&self, args: &PrefillIndexerArgs, cache: &Tensor, scale: &Tensor) -> (Tensor, Tensor) {
        let table = args.key_table.read::<i32>();
        let keys = Keys {
            codes: &cache.read(),
            scales: &scale.read(),
        };
        let row = |_, j: usize| table[j / PAGE] as usize * PAGE + j % PAGE;
        let ranked = self.heads.rank((SCORE_CAP, 0), &self.visible, keys, row);
        let dims = [PREFILL_TOKENS, SCORE_CAP];
        (
            Tensor::from_vec(&dims, ranked.scores),
            Tensor::from_vec(&dims, ranked.lists),
        )
    }
}

/// Pools before the tile: keys of the windows that were complete, drawn as `(U − 0.5) · 0.05` and quantised, pages in order.
pub(crate) fn draw_keys(fixture: Fixture, start: usize) -> (Tensor, Tensor) {
    let cache = empty_pool(DType::I8, INDEX_PAGES, INDEX_DIM);
    let scale = empty_pool(DType::F32, INDEX_PAGES, 1);
    let complete = start / INDEX.ratio;
    if complete > 0 {
        let dist = Dist::centred(0.05);
        let keys = fixture.quantised_rows("idx_kv_cache", complete, INDEX_DIM, dist, Rounding::HalfEven);
        cache.write::<i8>()[..complete * INDEX_DIM].copy_from_slice(&keys.codes.read::<i8>());
        scale.write::<f32>()[..complete].copy_from_slice(&keys.scales.read::<f32>());
    }
    (cache, scale)
}

impl Kernel for PrefillIndexer {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tile = prefill::Tile::of_params(INFO.name, params)?.within(INFO.name, POSITIONS)?;
        let fixture = Fixture::new(seed);
        let state = INDEX.prefill_state(
            fixture,
            "inner_compress_state",
            &prefill::state_table(&INDEX),
            tile.start,
        );
        let (cache, scale) = draw_keys(fixture, tile.start);
        let pages = paging::identity_table(INDEX_PAGES);
        let qr = fixture.quantised_activations("qr", PREFILL_TOKENS, Q_LORA, Dist::Uniform { shift: 0.0, scale: 1.0 });
        let (cos, sin) = RopeTables::of(Profile::Compressed).half_rows(&tile.positions());
        Ok(Box::new(Case {
            args: PrefillIndexerArgs {
                inner: PrefillIndexerCompressorArgs {
                    tile: draw_tile(tile, draw_x(fixture), state.snapshot(), &pages),
                    hadamard: hadamard(INDEX_DIM),
                    cache: cache.snapshot(),
                    scale: scale.snapshot(),
                },
                qr: qr.codes,
                qr_scale: qr.scales,
                cos,
                sin,
                key_table: Tensor::from_vec(&[INDEX_PAGES], pages),
                score: Tensor::zeros(DType::F32, &[PREFILL_TOKENS, SCORE_CAP]),
                // Stands for the buffer in the ring, which each dispatch creates.
                topk: Tensor::zeros(DType::I32, &[0]),
            },
            topk: Tensor::zeros(DType::I32, &[PREFILL_TOKENS, SCORE_CAP]),
            weights: IndexerWeights::draw(fixture, ""),
            initial: [state, cache, scale],
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: PrefillIndexerArgs,
    topk: Tensor,
    weights: IndexerWeights,
    /// State, keys and scales before the tile.
    initial: [Tensor; 3],
    golden: OnceLock<Reference>,
}

impl Case {
    fn reference(&self) -> &Reference {
        let [state, cache, scale] = &self.initial;
        self.golden
            .get_or_init(|| reference(&self.args, &self.weights, (state, cache, scale)))
    }
}

impl Instance for Case {
    fn reset(&self) {
        let inner = &self.args.inner;
        poison(&self.args.score);
        poison(&self.topk);
        let pools = [&inner.tile.state, &inner.cache, &inner.scale];
        pools
            .iter()
            .zip(&self.initial)
            .for_each(|(pool, at_first)| pool.copy_from(at_first));
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let topk = creates.tensor("cmp_topk_indices", DType::I32, &[PREFILL_TOKENS, INDEX_TOPK]);
            let scratch = PrefillIndexerScratch::declare(&mut creates);
            creates.alloc(o)?;
            let args = PrefillIndexerArgs {
                topk: topk.tensor(),
                ..self.args.clone()
            };
            prefill_indexer(o, BodyScopes::Automatic, &args, &self.weights, &scratch)?;
            topk_copy(o, &topk, &self.topk)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let (a, golden) = (&self.args, self.reference());
        // A lane between two bf16 values may round to either before a key is rotated, which moves some codes of the key
        // by one: too much for a score that nearly cancels. Keys have a comparison of their own, so scores are checked
        // against those that follow from the program's keys.
        let (score, topk) = golden.ranked(a, &a.inner.cache, &a.inner.scale);
        let order = TopkPairs {
            hard: HardBound { floor: HARD_FLOOR },
            visible: &golden.visible,
            k: INDEX_TOPK,
            offset: 0,
        };
        let region = ScoreRegion::new(HARD_FLOOR, a.inner.tile.num_tokens);
        let scores = region.compare("score", &a.score, &score, MASKED);
        let lists = order.compare("topk_idxs", &self.topk, &topk, &a.score, &score);
        [scores, lists]
            .into_iter()
            .chain(golden.inner.compare_pools(&a.inner, "inner_compress_state"))
            .collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
