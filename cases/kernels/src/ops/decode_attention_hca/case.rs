//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{FORM, HcaBlockArgs, HcaBlockScratch, HcaWeights, decode_attention_hca};
use crate::compare::{FiniteRule, MappedPool, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::decode::{DecodeBatch, Family, PageTable, START_POS};
use crate::fixture::paging::PageOrder;
use crate::fixture::{CompressorWeights, Fixture, Profile, RopeTables, Rounding, normalised_rows, poison};
use crate::golden::decode_attn::listed_columns;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{CMP_PAGES, HEAD_DIM, PAGE, REQUESTS, STEP_TOKENS};
use crate::ops::compressor::decode::{StepArgs, reference as compressor_reference};
use crate::ops::decode_attend::TOKENS;
use crate::ops::decode_attention::draw::BlockDist;
use crate::ops::decode_attention::reference::{self, write_completed};
use crate::ops::decode_attention::{BlockArgs, BlockWeights};
use crate::ops::decode_sparse_attn_hca::COMPRESSED;

/// The ratio-128 block of a decode step by itself.
#[derive(Clone, Copy, Debug)]
pub struct DecodeAttentionHca;

const fn output(name: &'static str, dtype: DType, shape: &'static [usize], rule: &'static str) -> OutputInfo {
    OutputInfo {
        name,
        dtype,
        shape,
        rule,
    }
}

static INFO: KernelInfo = KernelInfo {
    name: "decode_attention_hca",
    summary: "Decode attention block with the sliding window and all rows of compress ratio 128",
    level: Level::L2,
    ranks: 1,
    params: &[START_POS],
    outputs: &[
        output(
            "x_out",
            DType::F32,
            &[8, 4, 7168],
            "ratio_reldiff(diff_thd=3e-3, pct_thd=0.008, max_diff_hd=1)",
        ),
        output(
            "kv_cache",
            DType::Bf16,
            &[128, 128, 1, 512],
            "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)); other rows equal",
        ),
        output(
            "cmp_kv",
            DType::Bf16,
            &[32, 128, 1, 512],
            "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0)); other rows equal",
        ),
        output(
            "compress_state",
            DType::F32,
            &[64, 8, 1024],
            "mapped_pool(ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0)); other rows equal",
        ),
    ],
    gflop: Gflop {
        f32: 0.011,
        bf16: 1.963,
        int8: 3.490,
    },
    ring_bytes: Some([0, 55_033_856, 0, 0]),
};

/// How the spec draws the weights.
pub(crate) const DIST: BlockDist = BlockDist {
    hc_deviation: 0.0495,
    hc_scale: [0.079_046, 0.042_13, 0.121_901],
    hc_base: [
        -3.3004, 2.5553, -2.2787, -3.4925, -3.8197, -3.4161, -2.7144, -2.9181, 2.362, -2.4746, -2.1352, -3.2216,
        -4.474, 2.2488, -2.1053, -3.1675, -2.8362, -1.9042, 2.0432, -3.062, -2.7902, -3.0908, -3.002, 3.1161,
    ],
    sink: 0.0,
    rounding: Rounding::HalfEven,
};

impl HcaWeights {
    pub(crate) fn draw(fixture: Fixture) -> Self {
        Self::draw_with(fixture, BlockWeights::draw(fixture, DIST))
    }

    /// The same around weights drawn elsewhere.
    pub(crate) fn draw_with(fixture: Fixture, block: BlockWeights) -> Self {
        Self {
            block,
            compressor: CompressorWeights::draw(fixture, "cmp_", &FORM),
        }
    }
}

impl HcaBlockArgs {
    pub(crate) fn draw(fixture: Fixture, batch: &DecodeBatch) -> Self {
        let state_table = PageTable::state(&FORM, PageOrder::Linear);
        let cmp_table = PageTable::compressed(CMP_PAGES, PageOrder::Linear);
        Self {
            block: BlockArgs::draw(fixture, batch, RopeTables::of(Profile::Compressed)),
            compress_state: FORM.decode_state(),
            state_block_table: state_table.tensor(),
            state_slot_mapping: batch.slots(&state_table).reshape(&[TOKENS]),
            cmp_kv: normalised_rows(fixture, "cmp_kv", &[CMP_PAGES, PAGE, 1, HEAD_DIM]),
            cmp_block_table: cmp_table.tensor(),
            cmp_slot_mapping: batch.compressed_slots(&cmp_table, FORM.ratio).reshape(&[TOKENS]),
            kv_seq_lens: batch.kv_seq_lens(),
        }
    }

    /// The pools that a step changes.
    pub(crate) fn pools(&self) -> [&Tensor; 3] {
        [&self.block.kv_cache, &self.cmp_kv, &self.compress_state]
    }
}

impl Kernel for DecodeAttentionHca {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let args = HcaBlockArgs::draw(fixture, &DecodeBatch::of_params(Family::Hca, params));
        Ok(Box::new(Case {
            initial: args.pools().map(Tensor::snapshot),
            args,
            weights: HcaWeights::draw(fixture),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: HcaBlockArgs,
    weights: HcaWeights,
    /// The pools as they were before the step.
    initial: [Tensor; 3],
    golden: OnceLock<HcaReference>,
}

/// What the block should leave behind.
pub(crate) struct HcaReference {
    pub(crate) x_out: Tensor,
    /// In the order of the pools.
    pub(crate) pools: [Tensor; 3],
}

/// The reference over pools as they were before the step.
pub(crate) fn block_reference(args: &HcaBlockArgs, weights: &HcaWeights, initial: &[Tensor; 3]) -> HcaReference {
    let front = reference::front(&args.block, &weights.block, &initial[0]);
    let (cmp_kv, state) = (initial[1].snapshot(), initial[2].snapshot());
    let positions = args.block.position_ids.read::<i32>();
    let window_starts: Vec<i32> = positions
        .iter()
        .step_by(STEP_TOKENS)
        .map(|p| p - p % FORM.ratio as i32)
        .collect();
    let (cos, sin) = args.block.rope.half_rows(&window_starts);
    let step = StepArgs {
        form: FORM,
        x: Tensor::from_vec(&[TOKENS, front.normed.len() / TOKENS], front.normed.clone()),
        state: args.compress_state.clone(),
        state_table: args.state_block_table.clone(),
        state_slots: args.state_slot_mapping.clone(),
        positions: args.block.position_ids.clone(),
        slots: args.cmp_slot_mapping.clone(),
        cos,
        sin,
    };
    let completed = compressor_reference(&step, &weights.compressor, &state);
    write_completed(&completed, &args.cmp_slot_mapping.read::<i64>(), &cmp_kv);

    let lens = args.kv_seq_lens.read::<i32>();
    let lists: Vec<i32> = (0..TOKENS * COMPRESSED)
        .map(|i| {
            let (t, k) = (i / COMPRESSED, (i % COMPRESSED) as i32);
            let ratio = FORM.ratio as i32;
            let complete = ((positions[t] + 1) / ratio).min(lens[t / STEP_TOKENS] / ratio);
            if k < complete { k } else { -1 }
        })
        .collect();
    let columns = listed_columns(
        &args.block.window_indices.read::<i32>(),
        &lists,
        COMPRESSED,
        &[usize::MAX; TOKENS],
        (&args.cmp_block_table.read::<i32>(), REQUESTS),
    );
    let x_out = front.x_out(&args.block, &weights.block, (&columns, &cmp_kv.read::<bf16>()));
    HcaReference {
        x_out,
        pools: [front.kv_cache, cmp_kv, state],
    }
}

impl HcaReference {
    /// Compares all outputs, in the order of the spec.
    pub(crate) fn compare(&self, a: &HcaBlockArgs) -> Vec<TensorVerdict> {
        let mut verdicts = reference::compare(&a.block, 3e-3, &self.x_out, &self.pools[0]).to_vec();
        let row = MappedPool::allclose(1e-4, 1.0 / 128.0, 0.0, FiniteRule::Everywhere);
        let state = MappedPool::allclose(1e-3, 1e-3, 0.0, FiniteRule::Everywhere);
        let [cmp_slots, state_slots] = [&a.cmp_slot_mapping, &a.state_slot_mapping].map(Tensor::read::<i64>);
        verdicts.push(row.compare("cmp_kv", &a.cmp_kv, &self.pools[1], &[&cmp_slots]));
        verdicts.push(state.compare("compress_state", &a.compress_state, &self.pools[2], &[&state_slots]));
        verdicts
    }
}

impl Case {
    fn reference(&self) -> &HcaReference {
        self.golden
            .get_or_init(|| block_reference(&self.args, &self.weights, &self.initial))
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.args.block.x_out);
        for (pool, initial) in self.args.pools().iter().zip(&self.initial) {
            pool.copy_from(initial);
        }
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = HcaBlockScratch::declare(&mut creates);
            creates.alloc(o)?;
            decode_attention_hca(o, &self.args, &self.weights, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        self.reference().compare(&self.args)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
