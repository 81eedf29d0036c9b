//! The standalone kernels.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{
    PrefillCompressorArgs, Ratio4Scratch, Ratio128Scratch, prefill_compressor_ratio4, prefill_compressor_ratio128,
};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::compressor::{Form, RATIO_4, RATIO_128, empty_pool};
use crate::fixture::{CompressorWeights, Dist, Fixture, paging, prefill};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{CMP_PAGES, HEAD_DIM, HIDDEN, PREFILL_TOKENS};
use crate::ops::compressor::prefill::{TileArgs, reference};

/// The tile of the CSA layers by itself.
#[derive(Clone, Copy, Debug)]
pub struct PrefillCompressorRatio4;

/// The tile of the HCA layers by itself.
#[derive(Clone, Copy, Debug)]
pub struct PrefillCompressorRatio128;

const CMP_KV: OutputInfo = OutputInfo {
    name: "cmp_kv",
    dtype: DType::Bf16,
    shape: &[32, 128, 1, 512],
    rule: "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0)",
};

const fn state(shape: &'static [usize]) -> OutputInfo {
    OutputInfo {
        name: "compress_state",
        dtype: DType::F32,
        shape,
        rule: "ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0)",
    }
}

static INFO_4: KernelInfo = KernelInfo {
    name: "prefill_compressor_ratio4",
    summary: "Key-value compressor of ratio 4 with overlapping windows over a tile of 128 tokens",
    level: Level::L2,
    ranks: 1,
    params: &[prefill::NUM_TOKENS, prefill::START_POS],
    outputs: &[state(&[65, 4, 2048]), CMP_KV],
    gflop: Gflop {
        f32: 0.0,
        bf16: 3.758,
        int8: 0.0,
    },
    ring_bytes: Some([0, 1_181_696, 0, 0]),
};

static INFO_128: KernelInfo = KernelInfo {
    name: "prefill_compressor_ratio128",
    summary: "Key-value compressor of ratio 128 over a tile of 128 tokens",
    level: Level::L2,
    ranks: 1,
    params: &[prefill::NUM_TOKENS, prefill::START_POS],
    outputs: &[state(&[64, 8, 1024]), CMP_KV],
    gflop: Gflop {
        f32: 0.0,
        bf16: 1.879,
        int8: 0.0,
    },
    ring_bytes: Some([0, 559_104, 0, 0]),
};

impl Kernel for PrefillCompressorRatio4 {
    fn info(&self) -> &'static KernelInfo {
        &INFO_4
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        Ok(Box::new(Case::new(
            RATIO_4,
            prefill::Tile::of_params(INFO_4.name, params)?,
            seed,
        )))
    }
}

impl Kernel for PrefillCompressorRatio128 {
    fn info(&self) -> &'static KernelInfo {
        &INFO_128
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        Ok(Box::new(Case::new(
            RATIO_128,
            prefill::Tile::of_params(INFO_128.name, params)?,
            seed,
        )))
    }
}

struct Case {
    args: PrefillCompressorArgs,
    weights: CompressorWeights,
    initial_state: Tensor,
    golden: OnceLock<Reference>,
}

struct Reference {
    state: Tensor,
    cmp_kv: Tensor,
}

impl Case {
    fn new(form: Form, tile: prefill::Tile, seed: u64) -> Self {
        let fixture = Fixture::new(seed);
        let table = prefill::state_table(&form);
        let initial_state = form.prefill_state(fixture, "compress_state", &table, tile.start);
        let x = fixture.real("x", DType::Bf16, &[PREFILL_TOKENS, HIDDEN], Dist::centred(0.1));
        // The mappings cover padding tokens too: it is the number of live ones that keeps these out.
        let whole = prefill::Tile {
            num_tokens: PREFILL_TOKENS,
            ..tile
        };
        let state_slots = Tensor::from_vec(&[PREFILL_TOKENS], whole.slots(&table, form.page));
        let pages = paging::identity_table(CMP_PAGES);
        let slots = Tensor::from_vec(&[PREFILL_TOKENS], whole.compressed_slots(&pages, form.ratio));
        Self {
            args: PrefillCompressorArgs {
                tile: TileArgs::new(form, tile, x, initial_state.snapshot(), table, state_slots, slots),
                cmp_kv: empty_pool(DType::Bf16, CMP_PAGES, form.head),
            },
            weights: CompressorWeights::draw(fixture, "", &form),
            initial_state,
            golden: OnceLock::new(),
        }
    }

    fn reference(&self) -> &Reference {
        self.golden.get_or_init(|| {
            let state = self.initial_state.snapshot();
            let cmp_kv = Tensor::zeros(DType::Bf16, self.args.cmp_kv.dims());
            for (slot, row) in reference(&self.args.tile, &self.weights, &state) {
                let target = &mut cmp_kv.write::<bf16>()[slot * HEAD_DIM..][..HEAD_DIM];
                target.iter_mut().zip(row).for_each(|(t, v)| *t = bf16::from_f32(v));
            }
            Reference { state, cmp_kv }
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        // Pool rows without a completed window keep what they held.
        self.args.cmp_kv.write::<bf16>().fill(bf16::ZERO);
        self.args.tile.state.copy_from(&self.initial_state);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            if self.args.tile.form.overlap {
                let scratch = Ratio4Scratch::declare(&mut creates);
                creates.alloc(o)?;
                prefill_compressor_ratio4(o, &self.args, &self.weights, &scratch).map(|_| ())
            } else {
                let scratch = Ratio128Scratch::declare(&mut creates);
                creates.alloc(o)?;
                prefill_compressor_ratio128(o, &self.args, &self.weights, &scratch)
            }
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let (a, golden) = (&self.args, self.reference());
        vec![
            RatioAllclose::new(1e-3, 1e-3, 0.0).compare("compress_state", &a.tile.state, &golden.state),
            RatioAllclose::new(1e-4, 1.0 / 128.0, 0.0).compare("cmp_kv", &a.cmp_kv, &golden.cmp_kv),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
