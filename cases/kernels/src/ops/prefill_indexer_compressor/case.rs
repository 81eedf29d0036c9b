//! The standalone kernel, with the fixture and the reference that the indexer shares.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{
    PrefillIndexerCompressorArgs, PrefillIndexerCompressorScratch, WRITES, prefill_indexer_compressor, test_extract,
};
use crate::compare::{FiniteRule, MappedPool, RatioAllclose, Tail, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::compressor::{INDEX, empty_pool};
use crate::fixture::{CompressorWeights, Dist, Fixture, hadamard, paging, poison, prefill};
use crate::golden::compressor::index_key;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{HIDDEN, INDEX_DIM, INDEX_PAGES, PREFILL_TOKENS};
use crate::ops::compressor::prefill::{TileArgs, reference as tile_reference};

/// The tile of the indexer's compressor by itself.
#[derive(Clone, Copy, Debug)]
pub struct PrefillIndexerCompressor;

pub(crate) const STATE_RULE: &str = "mapped_pool(ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0)); other rows equal";
pub(crate) const CACHE_RULE: &str = "mapped_pool(ratio_allclose(atol=1, rtol=0, ratio<=0.01)); other rows equal";
pub(crate) const SCALE_RULE: &str = "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.01)); other rows equal";

static INFO: KernelInfo = KernelInfo {
    name: "prefill_indexer_compressor",
    summary: "Inner compressor of the indexer over a tile of 128 tokens: rotated int8 keys",
    level: Level::L2,
    ranks: 1,
    params: &[prefill::NUM_TOKENS, prefill::START_POS],
    outputs: &[
        OutputInfo {
            name: "kv",
            dtype: DType::I8,
            shape: &[32, 128],
            rule: "ratio_allclose(atol=1, rtol=0, ratio<=0.01) on written rows, equal tail",
        },
        OutputInfo {
            name: "compress_state",
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
        bf16: 0.941,
        int8: 0.0,
    },
    ring_bytes: Some([0, 305_152, 0, 0]),
};

/// Activations of the standalone prefill programs, `(U − 0.5) · 0.1`: [128, 7168] bf16.
pub(crate) fn draw_x(fixture: Fixture) -> Tensor {
    fixture.real("x", DType::Bf16, &[PREFILL_TOKENS, HIDDEN], Dist::centred(0.1))
}

/// Metadata of `tile`, whose keys are paged by `pages`.
pub(crate) fn draw_tile(tile: prefill::Tile, x: Tensor, state: Tensor, pages: &[i32]) -> TileArgs {
    let table = prefill::state_table(&INDEX);
    let state_slots = Tensor::from_vec(&[PREFILL_TOKENS], tile.slots(&table, INDEX.page));
    let slots = Tensor::from_vec(&[PREFILL_TOKENS], tile.compressed_slots(pages, INDEX.ratio));
    TileArgs::new(INDEX, tile, x, state, table, state_slots, slots)
}

/// What a tile should leave behind.
pub(crate) struct Reference {
    /// Rows written, in the order of their writes.
    pub(crate) written: Vec<usize>,
    pub(crate) state: Tensor,
    pub(crate) cache: Tensor,
    pub(crate) scale: Tensor,
}

/// The reference: updates copies of the pools as they were before the tile.
pub(crate) fn reference(
    args: &PrefillIndexerCompressorArgs,
    weights: &CompressorWeights,
    (state, cache, scale): (&Tensor, &Tensor, &Tensor),
) -> Reference {
    let [state, cache, scale] = [state, cache, scale].map(Tensor::snapshot);
    let matrix = args.hadamard.read::<bf16>();
    let mut written = Vec::new();
    for (slot, row) in tile_reference(&args.tile, weights, &state) {
        let key = index_key(&row, &matrix);
        cache.write::<i8>()[slot * INDEX_DIM..][..INDEX_DIM].copy_from_slice(&key.coded.codes);
        scale.write::<f32>()[slot] = key.coded.scales[0];
        written.push(slot);
    }
    Reference {
        written,
        state,
        cache,
        scale,
    }
}

impl Reference {
    /// Compares the pools.
    pub(crate) fn compare_pools(&self, args: &PrefillIndexerCompressorArgs, state_name: &str) -> [TensorVerdict; 3] {
        let live = args.tile.num_tokens;
        let rule = |atol, rtol, ratio| MappedPool::allclose(atol, rtol, ratio, FiniteRule::Everywhere).active(live);
        let slots = args.tile.slots.read::<i64>();
        [
            rule(1e-3, 1e-3, 0.0).compare(
                state_name,
                &args.tile.state,
                &self.state,
                &[&args.tile.state_slots.read::<i64>()],
            ),
            rule(1.0, 0.0, 0.01).compare("idx_kv_cache", &args.cache, &self.cache, &[&slots]),
            rule(1e-4, 1.0 / 128.0, 0.01).compare("idx_kv_scale", &args.scale, &self.scale, &[&slots]),
        ]
    }

    /// The written keys in the order of their writes, then zeros: [32, 128] i8.
    fn extract(&self) -> Tensor {
        let kv = Tensor::zeros(DType::I8, &[WRITES, INDEX_DIM]);
        let cache = self.cache.read::<i8>();
        for (i, slot) in self.written.iter().enumerate() {
            kv.write::<i8>()[i * INDEX_DIM..][..INDEX_DIM].copy_from_slice(&cache[slot * INDEX_DIM..][..INDEX_DIM]);
        }
        kv
    }
}

impl Kernel for PrefillIndexerCompressor {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tile = prefill::Tile::of_params(INFO.name, params)?;
        let fixture = Fixture::new(seed);
        let state_table = prefill::state_table(&INDEX);
        let initial_state = INDEX.prefill_state(fixture, "compress_state", &state_table, tile.start);
        let pages = paging::affine_table(INDEX_PAGES, INDEX_PAGES, (5, 1));
        Ok(Box::new(Case {
            args: PrefillIndexerCompressorArgs {
                tile: draw_tile(tile, draw_x(fixture), initial_state.snapshot(), &pages),
                hadamard: hadamard(INDEX_DIM),
                cache: empty_pool(DType::I8, INDEX_PAGES, INDEX_DIM),
                scale: empty_pool(DType::F32, INDEX_PAGES, 1),
            },
            kv: Tensor::zeros(DType::I8, &[WRITES, INDEX_DIM]),
            weights: CompressorWeights::draw(fixture, "", &INDEX),
            initial_state,
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: PrefillIndexerCompressorArgs,
    kv: Tensor,
    weights: CompressorWeights,
    initial_state: Tensor,
    golden: OnceLock<Reference>,
}

impl Case {
    fn reference(&self) -> &Reference {
        self.golden.get_or_init(|| {
            let cache = empty_pool(DType::I8, INDEX_PAGES, INDEX_DIM);
            let scale = empty_pool(DType::F32, INDEX_PAGES, 1);
            reference(&self.args, &self.weights, (&self.initial_state, &cache, &scale))
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.kv);
        // Rows without a completed window keep what they held.
        self.args.cache.write::<i8>().fill(0);
        self.args.scale.write::<f32>().fill(0.0);
        self.args.tile.state.copy_from(&self.initial_state);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = PrefillIndexerCompressorScratch::declare(&mut creates);
            creates.alloc(o)?;
            let completion = prefill_indexer_compressor(o, &self.args, &self.weights, &scratch)?;
            test_extract(o, &self.args, &self.kv, completion, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let (a, golden) = (&self.args, self.reference());
        let keys = RatioAllclose::new(1.0, 0.0, 0.01).valid_rows(golden.written.len(), 0, Tail::Equal);
        let kv = keys.compare("kv", &self.kv, &golden.extract());
        std::iter::once(kv)
            .chain(golden.compare_pools(a, "compress_state"))
            .collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
