//! The standalone kernel, with the fixture and the reference that other programs share.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{HcaArgs, HcaScratch, HcaWeights, prefill_attention_hca};
use crate::compare::TensorVerdict;
use crate::creates::Creates;
use crate::fixture::compressor::{RATIO_128, empty_pool};
use crate::fixture::prefill::{self, NUM_TOKENS, START_POS, Tile};
use crate::fixture::{CompressorWeights, Dist, Fixture, Profile};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{CMP_PAGES, HEAD_DIM, HIDDEN, ORI_PAGES, PAGE, STREAMS};
use crate::ops::compressor::prefill::reference as compressed_rows;
use crate::ops::prefill_attention::fixture::{
    self as shared, BlockReference, CompressedRows, HcSetting, Pools, StreamsRule, all_complete, draw_streams,
    draw_window_pool, of_request, pool_rule,
};
use crate::ops::prefill_attention::{BlockArgs, BlockWeights, TOKENS};
use crate::scopes::BodyScopes;

/// The block of ratio 128 by itself.
#[derive(Clone, Copy, Debug)]
pub struct PrefillAttentionHca;

static INFO: KernelInfo = KernelInfo {
    name: "prefill_attention_hca",
    summary: "Prefill attention block with the sliding window and all compressed rows of ratio 128",
    level: Level::L2,
    ranks: 1,
    params: &[NUM_TOKENS, START_POS],
    outputs: &[
        OutputInfo {
            name: "x_out",
            dtype: DType::F32,
            shape: &[128, 4, 7168],
            rule: "ratio_reldiff(diff_thd=5e-3, pct_thd=0.005, max_diff_hd=1) on live rows, zero tail",
        },
        OutputInfo {
            name: "kv_cache",
            dtype: DType::Bf16,
            shape: &[128, 128, 1, 512],
            rule: "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)); other rows equal",
        },
        OutputInfo {
            name: "cmp_kv",
            dtype: DType::Bf16,
            shape: &[32, 128, 1, 512],
            rule: "mapped_pool(ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)); other rows equal",
        },
        OutputInfo {
            name: "compress_state",
            dtype: DType::F32,
            shape: &[64, 8, 1024],
            rule: "mapped_pool(ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0.005)); other rows equal",
        },
    ],
    gflop: Gflop {
        f32: 0.235,
        bf16: 35.702,
        int8: 55.835,
    },
    ring_bytes: Some([0, 303_253_504, 0, 0]),
};

/// Hyper-connection of the HCA block.
pub(crate) const HC: HcSetting = HcSetting {
    deviation: 0.0495,
    scale: [0.079_046, 0.04213, 0.121_901],
    base: [
        -3.3004, 2.5553, -2.2787, -3.4925, -3.8197, -3.4161, -2.7144, -2.9181, 2.362, -2.4746, -2.1352, -3.2216,
        -4.474, 2.2488, -2.1053, -3.1675, -2.8362, -1.9042, 2.0432, -3.062, -2.7902, -3.0908, -3.002, 3.1161,
    ],
};

impl HcaWeights {
    /// The spec's weights.
    pub(crate) fn draw(fixture: Fixture) -> Self {
        Self::draw_with(fixture, BlockWeights::draw(fixture, HC))
    }

    /// The same beside what every kind of block has.
    pub(crate) fn draw_with(fixture: Fixture, block: BlockWeights) -> Self {
        Self {
            block,
            compressor: CompressorWeights::draw(fixture, "cmp_", &RATIO_128),
        }
    }
}

/// A compressed pool [32, 128, 1, 512] bf16 of zeros, but `(U − 0.5) · 0.1` in its first `complete` rows.
pub(crate) fn draw_compressed_pool(fixture: Fixture, complete: usize) -> Tensor {
    let pool = empty_pool(DType::Bf16, CMP_PAGES, HEAD_DIM);
    let rows = pool.reshape(&[CMP_PAGES * PAGE, HEAD_DIM]).rows(0..complete);
    fixture.refill("cmp_kv", &rows, Dist::centred(0.1));
    pool
}

impl HcaArgs {
    /// Arguments of `tile` by itself.
    pub(crate) fn draw(fixture: Fixture, tile: Tile) -> Self {
        let pools = [
            draw_window_pool(fixture, tile.start),
            draw_compressed_pool(fixture, tile.start / RATIO_128.ratio),
            RATIO_128.prefill_state(fixture, "compress_state", &prefill::state_table(&RATIO_128), tile.start),
        ];
        let streams = [
            draw_streams(fixture, tile.num_tokens),
            Tensor::zeros(DType::F32, &[TOKENS, STREAMS, HIDDEN]),
        ];
        Self::over(&pools, 0, tile, streams)
    }

    /// Empty pools for so many requests, in the order of [`HcaArgs::pools`].
    pub(crate) fn empty_pools(requests: usize) -> [Tensor; 3] {
        [
            empty_pool(DType::Bf16, requests * ORI_PAGES, HEAD_DIM),
            empty_pool(DType::Bf16, requests * CMP_PAGES, HEAD_DIM),
            Tensor::zeros(
                DType::F32,
                &[requests * RATIO_128.pages, RATIO_128.page, RATIO_128.state_width()],
            ),
        ]
    }

    /// Arguments of `tile` of a request in pools that hold as many rows for each, from and to these streams.
    pub(crate) fn over(
        [kv_cache, cmp_kv, state]: &[Tensor; 3],
        request: usize,
        tile: Tile,
        streams: [Tensor; 2],
    ) -> Self {
        let state_table = of_request(prefill::state_table(&RATIO_128), request, RATIO_128.pages);
        // One page holds the rows of all positions.
        let mut cmp_table = vec![-1; CMP_PAGES];
        cmp_table[0] = 0;
        let cmp_table = of_request(cmp_table, request, CMP_PAGES);
        Self {
            block: BlockArgs::over(kv_cache, request, tile, Profile::Compressed, streams),
            state: state.clone(),
            state_slots: Tensor::from_vec(&[TOKENS], tile.slots(&state_table, RATIO_128.page)),
            state_table: Tensor::from_vec(&[state_table.len()], state_table),
            cmp_kv: cmp_kv.clone(),
            cmp_slots: Tensor::from_vec(&[TOKENS], tile.compressed_slots(&cmp_table, RATIO_128.ratio)),
            cmp_table: Tensor::from_vec(&[CMP_PAGES], cmp_table),
        }
    }

    /// Everything that the block updates, beside its output.
    pub(crate) fn pools(&self) -> [&Tensor; 3] {
        [&self.block.kv_cache, &self.cmp_kv, &self.state]
    }
}

/// What the block should leave behind.
#[derive(Debug)]
pub(crate) struct HcaReference {
    pub(crate) block: BlockReference,
    pub(crate) cmp_kv: Tensor,
    pub(crate) state: Tensor,
}

/// The reference, over the pools (in the order of [`HcaArgs::pools`]) as they were before the block.
pub(crate) fn reference(args: &HcaArgs, weights: &HcaWeights, [cache, cmp, state]: &[Tensor; 3]) -> HcaReference {
    let (cmp_kv, state) = (cmp.snapshot(), state.snapshot());
    let block = shared::reference(&args.block, &weights.block, cache, |normed, _| {
        for (slot, row) in compressed_rows(&args.compressor(normed), &weights.compressor, &state) {
            let target = &mut cmp_kv.write::<bf16>()[slot * HEAD_DIM..][..HEAD_DIM];
            target.iter_mut().zip(row).for_each(|(t, v)| *t = bf16::from_f32(v));
        }
        CompressedRows {
            pool: cmp_kv.clone(),
            table: args.cmp_table.read::<i32>().to_vec(),
            indices: all_complete(&args.block, RATIO_128.ratio),
        }
    });
    HcaReference { block, cmp_kv, state }
}

impl Kernel for PrefillAttentionHca {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tile = Tile::of_params(INFO.name, params)?;
        let fixture = Fixture::new(seed);
        let args = HcaArgs::draw(fixture, tile);
        Ok(Box::new(Case {
            pools: Pools::keep(args.pools()),
            args,
            weights: HcaWeights::draw(fixture),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: HcaArgs,
    weights: HcaWeights,
    pools: Pools<3>,
    golden: OnceLock<HcaReference>,
}

impl HcaReference {
    /// Compares all outputs, in the order of the spec.
    pub(crate) fn compare(&self, a: &HcaArgs) -> Vec<TensorVerdict> {
        let live = a.block.num_tokens;
        let streams = StreamsRule {
            diff_thd: 5e-3,
            hard: 1.0,
        };
        let mut verdicts = self.block.compare(&a.block, streams, 1.0 / 128.0);
        verdicts.push(pool_rule(1e-4, 1.0 / 128.0, 0.005, live).compare(
            "cmp_kv",
            &a.cmp_kv,
            &self.cmp_kv,
            &[&a.cmp_slots.read::<i64>()],
        ));
        verdicts.push(pool_rule(1e-3, 1e-3, 0.005, live).compare(
            "compress_state",
            &a.state,
            &self.state,
            &[&a.state_slots.read::<i64>()],
        ));
        verdicts
    }
}

impl Case {
    fn reference(&self) -> &HcaReference {
        self.golden
            .get_or_init(|| reference(&self.args, &self.weights, self.pools.kept()))
    }
}

impl Instance for Case {
    fn reset(&self) {
        self.pools.reset(&self.args.block.x_out);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = HcaScratch::declare(&mut creates);
            creates.alloc(o)?;
            prefill_attention_hca(o, BodyScopes::Automatic, &self.args, &self.weights, &scratch)
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
