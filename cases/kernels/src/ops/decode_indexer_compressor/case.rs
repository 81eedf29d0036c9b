//! The standalone kernel, with the reference that the indexer shares.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::{DecodeIndexerCompressorArgs, DecodeIndexerCompressorScratch, decode_indexer_compressor};
use crate::compare::{FiniteRule, MappedPool, RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::compressor::{INDEX, empty_pool, uniform_rotation};
use crate::fixture::decode::{PageTable, START_POS};
use crate::fixture::paging::PageOrder;
use crate::fixture::{CompressorWeights, DecodeBatch, Dist, Family, Fixture};
use crate::golden::compressor::index_key;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{HIDDEN, INDEX_DIM, INDEX_PAGES, REQUESTS, STEP_TOKENS};
use crate::ops::compressor::decode::{StepArgs, reference as step_reference};

/// The step of the indexer's compressor by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeIndexerCompressor;

static INFO: KernelInfo = KernelInfo {
    name: "decode_indexer_compressor",
    summary: "Inner compressor of the indexer: overlapping windows of 4 to rotated int8 keys",
    level: Level::L2,
    ranks: 1,
    params: &[START_POS],
    outputs: &[
        OutputInfo {
            name: "kv",
            dtype: DType::F32,
            shape: &[4, 2, 128],
            rule: "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0)",
        },
        OutputInfo {
            name: "compress_state",
            dtype: DType::F32,
            shape: &[65, 4, 512],
            rule: "mapped_pool(ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0)); other rows equal",
        },
        OutputInfo {
            name: "idx_kv_cache",
            dtype: DType::I8,
            shape: &[64, 128, 1, 128],
            rule: "mapped_pool(ratio_allclose(atol=1, rtol=0, ratio<=0.01)); other rows equal",
        },
        OutputInfo {
            name: "idx_kv_scale",
            dtype: DType::F32,
            shape: &[64, 128, 1, 1],
            rule: "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.01)); other rows equal",
        },
    ],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.059,
        int8: 0.0,
    },
    ring_bytes: Some([0, 65_536, 0, 0]),
};

/// The metadata and activations of the standalone step; the angles are those of positions rounded down to `window` (1 for none).
pub(crate) fn draw_step(batch: &DecodeBatch, x: Tensor, state: Tensor, window: usize) -> StepArgs {
    let state_table = PageTable::state(&INDEX, PageOrder::Linear);
    let keys = PageTable::compressed(INDEX_PAGES, PageOrder::Linear);
    let (cos, sin) = batch.angles(window);
    StepArgs {
        form: INDEX,
        x,
        state,
        state_table: state_table.tensor(),
        state_slots: batch.slots(&state_table),
        positions: batch.position_ids(),
        slots: batch.compressed_slots(&keys, INDEX.ratio),
        cos,
        sin,
    }
}

/// Activations of the standalone decode programs, uniform in [0, 1): [4, 2, 7168] bf16.
pub(crate) fn draw_x(fixture: Fixture) -> Tensor {
    let unit = Dist::Uniform { shift: 0.0, scale: 1.0 };
    fixture.real("x", DType::Bf16, &[REQUESTS, STEP_TOKENS, HIDDEN], unit)
}

/// The reference: updates copies of the pools as they were before the step; `kv` starts as zeros.
pub(crate) fn reference(
    args: &DecodeIndexerCompressorArgs,
    weights: &CompressorWeights,
    (state, cache, scale): (&Tensor, &Tensor, &Tensor),
) -> Reference {
    let [state, cache, scale] = [state, cache, scale].map(Tensor::snapshot);
    let kv = Tensor::zeros(DType::F32, args.kv.dims());
    let slots = args.step.slots.read::<i64>();
    let matrix = args.hadamard.read::<bf16>();
    for (b, row) in step_reference(&args.step, weights, &state).iter().enumerate() {
        let Some((token, row)) = row else { continue };
        let Ok(slot) = usize::try_from(slots[*token]) else {
            continue;
        };
        let key = index_key(row, &matrix);
        kv.write::<f32>()[b * STEP_TOKENS * INDEX_DIM..][..INDEX_DIM].copy_from_slice(&key.rotated);
        cache.write::<i8>()[slot * INDEX_DIM..][..INDEX_DIM].copy_from_slice(&key.coded.codes);
        scale.write::<f32>()[slot] = key.coded.scales[0];
    }
    Reference {
        kv,
        state,
        cache,
        scale,
    }
}

/// What a step should leave behind.
pub(crate) struct Reference {
    pub(crate) kv: Tensor,
    pub(crate) state: Tensor,
    pub(crate) cache: Tensor,
    pub(crate) scale: Tensor,
}

impl Reference {
    /// Compares the pools; the prefix goes before the state's name.
    pub(crate) fn compare_pools(&self, args: &DecodeIndexerCompressorArgs, state_name: &str) -> [TensorVerdict; 3] {
        let rule = |atol, rtol, ratio| MappedPool::allclose(atol, rtol, ratio, FiniteRule::Mapped);
        let slots = args.step.slots.read::<i64>();
        [
            rule(1e-3, 1e-3, 0.0).compare(
                state_name,
                &args.step.state,
                &self.state,
                &[&args.step.state_slots.read::<i64>()],
            ),
            rule(1.0, 0.0, 0.01).compare("idx_kv_cache", &args.cache, &self.cache, &[&slots]),
            rule(1e-4, 1.0 / 128.0, 0.01).compare("idx_kv_scale", &args.scale, &self.scale, &[&slots]),
        ]
    }
}

impl Kernel for DecodeIndexerCompressor {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let batch = DecodeBatch::of_params(Family::Csa, params);
        let initial_state = INDEX.decode_state();
        Ok(Box::new(Case {
            args: DecodeIndexerCompressorArgs {
                step: draw_step(&batch, draw_x(fixture), initial_state.snapshot(), INDEX.ratio),
                hadamard: uniform_rotation(fixture),
                kv: Tensor::zeros(DType::F32, &[REQUESTS, STEP_TOKENS, INDEX_DIM]),
                cache: empty_pool(DType::I8, INDEX_PAGES, INDEX_DIM),
                scale: empty_pool(DType::F32, INDEX_PAGES, 1),
            },
            weights: CompressorWeights::draw(fixture, "", &INDEX),
            initial_state,
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: DecodeIndexerCompressorArgs,
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
        let a = &self.args;
        // Rows without a completed window keep what they held.
        a.kv.write::<f32>().fill(0.0);
        a.cache.write::<i8>().fill(0);
        a.scale.write::<f32>().fill(0.0);
        a.step.state.copy_from(&self.initial_state);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = DecodeIndexerCompressorScratch::declare(&mut creates);
            creates.alloc(o)?;
            let late = o.submit(Task::new("late_dep", Unit::Scalar).dependency_only())?.id;
            decode_indexer_compressor(o, &self.args, &self.weights, late, &scratch).map(|_| ())
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let (a, golden) = (&self.args, self.reference());
        let kv = RatioAllclose::new(1e-4, 1.0 / 128.0, 0.0).compare("kv", &a.kv, &golden.kv);
        std::iter::once(kv)
            .chain(golden.compare_pools(a, "compress_state"))
            .collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
