//! The standalone kernels.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::{DecodeCompressorArgs, DecodeCompressorScratch, decode_compressor};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::compressor::{Form, RATIO_4, RATIO_128, empty_pool};
use crate::fixture::decode::{PageTable, START_POS};
use crate::fixture::paging::PageOrder;
use crate::fixture::{CompressorWeights, DecodeBatch, Dist, Family, Fixture};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{CMP_PAGES, HEAD_DIM, HIDDEN, REQUESTS, STEP_TOKENS};
use crate::ops::compressor::decode::{StepArgs, reference};

/// The step of the CSA layers by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeCompressorRatio4;

/// The step of the HCA layers by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeCompressorRatio128;

const ROW_RULE: &str = "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0)";
const STATE_RULE: &str = "ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0)";

const fn output(name: &'static str, dtype: DType, shape: &'static [usize], rule: &'static str) -> OutputInfo {
    OutputInfo {
        name,
        dtype,
        shape,
        rule,
    }
}

static INFO_4: KernelInfo = KernelInfo {
    name: "decode_compressor_ratio4",
    summary: "Incremental key-value compressor of ratio 4 with overlapping windows",
    level: Level::L2,
    ranks: 1,
    params: &[START_POS],
    outputs: &[
        output("kv", DType::F32, &[4, 2, 512], ROW_RULE),
        output("compress_state", DType::F32, &[65, 4, 2048], STATE_RULE),
        output("cmp_kv_cache", DType::Bf16, &[32, 128, 1, 512], ROW_RULE),
    ],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.235,
        int8: 0.0,
    },
    ring_bytes: Some([0, 196_608, 0, 0]),
};

static INFO_128: KernelInfo = KernelInfo {
    name: "decode_compressor_ratio128",
    summary: "Incremental key-value compressor of ratio 128",
    level: Level::L2,
    ranks: 1,
    params: &[START_POS],
    outputs: &[
        output("kv", DType::F32, &[4, 2, 512], ROW_RULE),
        output("compress_state", DType::F32, &[64, 8, 1024], STATE_RULE),
        output("cmp_kv_cache", DType::Bf16, &[32, 128, 1, 512], ROW_RULE),
    ],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.117,
        int8: 0.0,
    },
    ring_bytes: Some([0, 131_072, 0, 0]),
};

impl Kernel for DecodeCompressorRatio4 {
    fn info(&self) -> &'static KernelInfo {
        &INFO_4
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let batch = DecodeBatch::of_params(Family::Csa, params);
        Ok(Box::new(Case::new(RATIO_4, &batch, PageOrder::Linear, seed)))
    }
}

impl Kernel for DecodeCompressorRatio128 {
    fn info(&self) -> &'static KernelInfo {
        &INFO_128
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let batch = DecodeBatch::of_params(Family::Hca, params);
        Ok(Box::new(Case::new(RATIO_128, &batch, PageOrder::Permuted, seed)))
    }
}

struct Case {
    args: DecodeCompressorArgs,
    weights: CompressorWeights,
    initial_state: Tensor,
    golden: OnceLock<Reference>,
}

struct Reference {
    kv: Tensor,
    state: Tensor,
    cmp_kv: Tensor,
}

impl Case {
    fn new(form: Form, batch: &DecodeBatch, order: PageOrder, seed: u64) -> Self {
        let fixture = Fixture::new(seed);
        let state_table = PageTable::state(&form, order);
        let initial_state = form.decode_state();
        let (cos, sin) = batch.angles(form.ratio);
        let unit = Dist::Uniform { shift: 0.0, scale: 1.0 };
        Self {
            args: DecodeCompressorArgs {
                step: StepArgs {
                    form,
                    x: fixture.real("x", DType::Bf16, &[REQUESTS, STEP_TOKENS, HIDDEN], unit),
                    state: initial_state.snapshot(),
                    state_table: state_table.tensor(),
                    state_slots: batch.slots(&state_table),
                    positions: batch.position_ids(),
                    slots: batch.compressed_slots(&PageTable::compressed(CMP_PAGES, order), form.ratio),
                    cos,
                    sin,
                },
                kv: Tensor::zeros(DType::F32, &[REQUESTS, STEP_TOKENS, form.head]),
                cmp_kv: empty_pool(DType::Bf16, CMP_PAGES, form.head),
            },
            weights: CompressorWeights::draw(fixture, "", &form),
            initial_state,
            golden: OnceLock::new(),
        }
    }

    fn reference(&self) -> &Reference {
        self.golden.get_or_init(|| {
            let (a, step) = (&self.args, &self.args.step);
            let state = self.initial_state.snapshot();
            let slots = step.slots.read::<i64>();
            let rows = reference(step, &self.weights, &state);
            let kv = Tensor::zeros(DType::F32, a.kv.dims());
            let cmp_kv = Tensor::zeros(DType::Bf16, a.cmp_kv.dims());
            for (b, row) in rows.iter().enumerate() {
                let Some((token, row)) = row else { continue };
                if let Ok(slot) = usize::try_from(slots[*token]) {
                    kv.write::<f32>()[b * STEP_TOKENS * HEAD_DIM..][..HEAD_DIM].copy_from_slice(row);
                    let target = &mut cmp_kv.write::<bf16>()[slot * HEAD_DIM..][..HEAD_DIM];
                    target.iter_mut().zip(row).for_each(|(t, v)| *t = bf16::from_f32(*v));
                }
            }
            Reference { kv, state, cmp_kv }
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        let a = &self.args;
        // Rows without a completed window keep what they held.
        a.kv.write::<f32>().fill(0.0);
        a.cmp_kv.write::<bf16>().fill(bf16::ZERO);
        a.step.state.copy_from(&self.initial_state);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = DecodeCompressorScratch::declare(&mut creates, &self.args.step.form);
            creates.alloc(o)?;
            let late = o.submit(Task::new("late_dep", Unit::Scalar).dependency_only())?.id;
            decode_compressor(o, &self.args, &self.weights, late, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let (a, golden) = (&self.args, self.reference());
        let row = RatioAllclose::new(1e-4, 1.0 / 128.0, 0.0);
        let state = RatioAllclose::new(1e-3, 1e-3, 0.0);
        vec![
            row.compare("kv", &a.kv, &golden.kv),
            state.compare("compress_state", &a.step.state, &golden.state),
            row.compare("cmp_kv_cache", &a.cmp_kv, &golden.cmp_kv),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use ring_runtime::{RingLimits, RuntimeConfig};

    use super::*;
    use crate::dispatch::Session;

    /// Outputs that fail when `spoil` changes what the program works on after the reference was computed.
    fn failing(spoil: impl FnOnce(&Case)) -> Vec<String> {
        let case = Case::new(RATIO_4, &DecodeBatch::new(Family::Csa), PageOrder::Linear, 5);
        case.reference();
        spoil(&case);
        let config = RuntimeConfig::new([RingLimits::DEFAULT; 4], NonZeroUsize::MIN);
        let mut session = Session::new(Box::new(case), &config).unwrap();
        assert!(session.dispatch(Duration::ZERO).passed());
        let verdicts = session.instance().validate();
        verdicts.into_iter().filter(|v| !v.passed()).map(|v| v.name).collect()
    }

    #[test]
    fn a_spoiled_step_is_seen_in_what_it_spoils() {
        assert!(failing(|_| ()).is_empty());
        // The bias of one position: scores, and the rows that they weigh.
        let bias = |case: &Case| case.weights.ape.write::<f32>()[2 * 1024..3 * 1024].fill(1.0);
        assert_eq!(failing(bias), ["kv", "compress_state", "cmp_kv_cache"]);
        // One gain: rows, but not the state.
        let gain = |case: &Case| case.weights.norm.write::<bf16>()[7] = bf16::from_f32(3.0);
        assert_eq!(failing(gain), ["kv", "cmp_kv_cache"]);
        // Request 0 stores nothing: request 2 pools stale rows then, since the two share a page.
        let slots = |case: &Case| case.args.step.state_slots.write::<i64>()[..2].fill(-1);
        assert_eq!(failing(slots), ["kv", "compress_state", "cmp_kv_cache"]);
    }
}
