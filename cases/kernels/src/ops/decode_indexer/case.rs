//! The standalone kernel, with the reference that composed programs share.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::score::MASKED;
use super::{COLUMNS, DecodeIndexerArgs, DecodeIndexerScratch, IndexerWeights, decode_indexer};
use crate::compare::{HardBound, ScoreRegion, TensorVerdict, TopkPairs};
use crate::creates::Creates;
use crate::fixture::compressor::{INDEX, uniform_rotation};
use crate::fixture::decode::{PageTable, START_POS};
use crate::fixture::paging::PageOrder;
use crate::fixture::{DecodeBatch, Dist, Family, Fixture, Rounding, poison};
use crate::golden::indexer::{Heads, Keys};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{DECODE_TOKENS, INDEX_DIM, INDEX_PAGES, INDEX_TOPK, PAGE, Q_LORA, REQUESTS, STEP_TOKENS};
use crate::ops::decode_indexer_compressor::DecodeIndexerCompressorArgs;
use crate::ops::decode_indexer_compressor::case::{self as inner, draw_step, draw_x};
use crate::ops::prefill_indexer_compressor::case::{CACHE_RULE, SCALE_RULE, STATE_RULE};

/// The indexer's step by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeIndexer;

/// Added to columns by the standalone program: the width of the sliding window.
const OFFSET: i32 = 128;
/// Floor of the bound of a score's error.
const HARD_FLOOR: f64 = 5e-3;

static INFO: KernelInfo = KernelInfo {
    name: "decode_indexer",
    summary: "Lightning indexer: int8 heads score every compressed position and list the best 1024",
    level: Level::L2,
    ranks: 1,
    params: &[START_POS],
    outputs: &[
        OutputInfo {
            name: "score",
            dtype: DType::F32,
            shape: &[4, 2, 4096],
            rule: "score_region(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005), hard_atol=5e-3)",
        },
        OutputInfo {
            name: "topk_idxs",
            dtype: DType::I32,
            shape: &[4, 2, 4096],
            rule: "topk_pairs(k=1024, hard_atol=5e-3)",
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
        bf16: 0.083,
        int8: 0.277,
    },
    ring_bytes: Some([0, 9_744_384, 0, 0]),
};

/// What a step should leave behind. Scores follow from keys: see [`Reference::ranked`].
pub(crate) struct Reference {
    heads: Heads,
    pub(crate) inner: inner::Reference,
    /// Columns that each token sees.
    pub(crate) visible: Vec<usize>,
}

/// The reference, over the inner compressor's pools as they were before the step.
pub(crate) fn reference(
    args: &DecodeIndexerArgs,
    weights: &IndexerWeights,
    pools: (&Tensor, &Tensor, &Tensor),
) -> Reference {
    let step = &args.inner.step;
    let heads = weights.with_reference(
        &step.x,
        (&args.qr, &args.qr_scale),
        (&step.cos, &step.sin),
        STEP_TOKENS,
        &args.inner.hadamard,
        |input| input.heads(),
    );
    let (positions, lens) = (step.positions.read::<i32>(), args.kv_seq_lens.read::<i32>());
    Reference {
        heads,
        inner: inner::reference(&args.inner, &weights.inner, pools),
        visible: (0..DECODE_TOKENS)
            .map(|t| (positions[t] + 1).min(lens[t / STEP_TOKENS]) as usize / INDEX.ratio)
            .collect(),
    }
}

impl Reference {
    /// Scores and lists over these pools of keys and scales, in the shapes of the arguments.
    pub(crate) fn ranked(&self, args: &DecodeIndexerArgs, cache: &Tensor, scale: &Tensor) -> (Tensor, Tensor) {
        let table = args.key_table.read::<i32>();
        let row = |t: usize, j: usize| table[t / STEP_TOKENS * INDEX_PAGES + j / PAGE] as usize * PAGE + j % PAGE;
        let keys = Keys {
            codes: &cache.read(),
            scales: &scale.read(),
        };
        let ranked = self.heads.rank((COLUMNS, args.offset), &self.visible, keys, row);
        (
            Tensor::from_vec(args.score.dims(), ranked.scores),
            Tensor::from_vec(args.topk.dims(), ranked.lists),
        )
    }
}

impl Kernel for DecodeIndexer {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let batch = DecodeBatch::of_params(Family::Csa, params);
        let unit = Dist::Uniform { shift: 0.0, scale: 1.0 };
        let qr = fixture.quantised_activations("qr", DECODE_TOKENS, Q_LORA, unit);
        let keys = fixture.quantised_rows("idx_kv_cache", INDEX_PAGES * PAGE, INDEX_DIM, unit, Rounding::HalfEven);
        let initial = Pools {
            state: INDEX.decode_state(),
            cache: keys.codes.reshape(&[INDEX_PAGES, PAGE, 1, INDEX_DIM]),
            scale: keys.scales.reshape(&[INDEX_PAGES, PAGE, 1, 1]),
        };
        let outputs = [REQUESTS, STEP_TOKENS, COLUMNS];
        Ok(Box::new(Case {
            args: DecodeIndexerArgs {
                inner: DecodeIndexerCompressorArgs {
                    step: draw_step(&batch, draw_x(fixture), initial.state.snapshot(), 1),
                    hadamard: uniform_rotation(fixture),
                    kv: Tensor::zeros(DType::F32, &[REQUESTS, STEP_TOKENS, INDEX_DIM]),
                    cache: initial.cache.snapshot(),
                    scale: initial.scale.snapshot(),
                },
                qr: qr.codes,
                qr_scale: qr.scales,
                key_table: PageTable::compressed(INDEX_PAGES, PageOrder::Linear).tensor(),
                kv_seq_lens: batch.kv_seq_lens(),
                score: Tensor::zeros(DType::F32, &outputs),
                topk: Tensor::zeros(DType::I32, &outputs),
                offset: OFFSET,
            },
            weights: IndexerWeights::draw(fixture, ""),
            initial,
            golden: OnceLock::new(),
        }))
    }
}

/// Pools before the step.
struct Pools {
    state: Tensor,
    cache: Tensor,
    scale: Tensor,
}

struct Case {
    args: DecodeIndexerArgs,
    weights: IndexerWeights,
    initial: Pools,
    golden: OnceLock<Reference>,
}

impl Case {
    fn reference(&self) -> &Reference {
        let Pools { state, cache, scale } = &self.initial;
        self.golden
            .get_or_init(|| reference(&self.args, &self.weights, (state, cache, scale)))
    }
}

impl Instance for Case {
    fn reset(&self) {
        let a = &self.args;
        poison(&a.topk);
        // Zeros where the program leaves scores alone, which must stay finite; poison in the tiles that it writes.
        let mut score = a.score.write::<f32>();
        score.fill(0.0);
        let lens = a.kv_seq_lens.read::<i32>();
        for (t, row) in score.chunks_mut(COLUMNS).enumerate() {
            let keys = lens[t / STEP_TOKENS] as usize / INDEX.ratio;
            row[..keys.next_multiple_of(PAGE)].fill(f32::NAN);
        }
        a.inner.kv.write::<f32>().fill(0.0);
        a.inner.step.state.copy_from(&self.initial.state);
        a.inner.cache.copy_from(&self.initial.cache);
        a.inner.scale.copy_from(&self.initial.scale);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = DecodeIndexerScratch::declare(&mut creates);
            creates.alloc(o)?;
            let late = o.submit(Task::new("late_dep", Unit::Scalar).dependency_only())?.id;
            decode_indexer(o, &self.args, &self.weights, late, &scratch)
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
            offset: i64::from(a.offset),
        };
        let scores = ScoreRegion::new(HARD_FLOOR, REQUESTS).compare("score", &a.score, &score, MASKED);
        let lists = order.compare("topk_idxs", &a.topk, &topk, &a.score, &score);
        [scores, lists]
            .into_iter()
            .chain(golden.inner.compare_pools(&a.inner, "inner_compress_state"))
            .collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
