//! A whole prefill pass of the main model over one tile, on two ranks: embedding, every layer, head and norm, and the
//! language-model head with its sampling.

use ring_runtime::{DType, Tensor};

use super::expert_routed::case::WEIGHT_ALIAS;
use super::forward::{Case, Initial, Setup, TOKEN_RULES, Tail, output};
use super::layers::{Kind, PAIRS, Schedule};
use super::prefill_attention::{BlockWeights, TOKENS};
use super::prefill_attention_hca::case as hca;
use super::prefill_layer::attention::{AttentionArgs, AttentionWeights, LayerPools};
use crate::fixture::Fixture;
use crate::fixture::prefill::Tile;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, ParamSpec, Params, SetupError};
use crate::model::RANKS;

/// A whole prefill pass.
#[derive(Clone, Copy, Debug)]
pub struct PrefillFwd;

const ROW_RULE: &str = "per layer and rank, of the program's own streams: as in prefill_attention_hca and prefill_attention_csa; other rows equal";

static INFO: KernelInfo = KernelInfo {
    name: "prefill_fwd",
    summary: "Prefill forward pass over two ranks: embedding, layers, head and sampling",
    level: Level::L3,
    ranks: RANKS,
    params: &[
        PAIRS,
        ParamSpec::int(
            "num_tokens",
            1,
            TOKENS as i64 - 1,
            64,
            "Live tokens of the tile; not all: the state tables of this fixture can't hold a window of 128",
        ),
        WEIGHT_ALIAS,
    ],
    outputs: &[
        output("pre_hc_hidden_out", DType::F32, &[2, 128, 4, 7168], TOKEN_RULES[0]),
        output("hidden_out", DType::Bf16, &[2, 128, 7168], TOKEN_RULES[1]),
        output("logits", DType::F32, &[2, 8, 129_280], TOKEN_RULES[2]),
        output("sampled_ids", DType::I32, &[2, 8, 8], TOKEN_RULES[3]),
        output("kv_cache", DType::Bf16, &[2, 640, 128, 1, 512], ROW_RULE),
        output("cmp_kv", DType::Bf16, &[2, 160, 128, 1, 512], ROW_RULE),
        output("hca_compress_state", DType::F32, &[2, 192, 8, 1024], ROW_RULE),
        output("csa_compress_state", DType::F32, &[2, 130, 4, 2048], ROW_RULE),
        output("csa_inner_compress_state", DType::F32, &[2, 130, 4, 512], ROW_RULE),
        output("idx_kv_cache", DType::I8, &[2, 128, 128, 1, 128], ROW_RULE),
        output("idx_kv_scale", DType::F32, &[2, 128, 128, 1, 1], ROW_RULE),
    ],
    gflop: Gflop {
        f32: 7.0,
        bf16: 370.0,
        int8: 1_250.0,
    },
    // Five layers.
    ring_bytes: Some([119_275_520, 312_274_944, 177_995_776, 88_129_536]),
};

/// Arguments of a layer over pools of its own, for `num_tokens` live tokens.
///
/// The metadata is that of a whole tile, whatever is live. State rows go by position, while every page of the state
/// tables is page 0: nothing is read from there, since the request is at its start and no window is as long as the tile.
fn layer_args(kind: Kind, num_tokens: usize) -> AttentionArgs {
    let whole = Tile {
        start: 0,
        num_tokens: TOKENS,
    };
    // The streams come in between: of the program's own buffers.
    let none = || Tensor::zeros(DType::F32, &[0]);
    let mut args = AttentionArgs::over(&LayerPools::empty(kind, 1), 0, whole, [none(), none()]);
    let flat = |table: &mut Tensor, slots: &mut Tensor| {
        *table = Tensor::zeros(DType::I32, table.dims());
        *slots = Tensor::from_vec(&[TOKENS], (0..TOKENS as i64).collect());
    };
    match &mut args {
        AttentionArgs::Hca(args) => flat(&mut args.state_table, &mut args.state_slots),
        AttentionArgs::Csa(args) => {
            flat(&mut args.main.table, &mut args.main.slots);
            flat(&mut args.inner.table, &mut args.inner.slots);
        }
    }
    args.block_mut().num_tokens = num_tokens;
    args
}

/// The pass with its arguments, for a fixture and parameters.
pub(super) fn case(params: &Params, seed: u64) -> Case<AttentionArgs> {
    let (schedule, num_tokens) = (Schedule::of_params(params), params.count("num_tokens"));
    let fixture = Fixture::new(seed);
    // All layers draw from the fixture of layer 0, an HCA layer.
    let block = BlockWeights::draw(fixture, hca::HC);
    let [hca, csa] = [Kind::Hca, Kind::Csa].map(|kind| AttentionWeights::draw_with(fixture, kind, &block));
    let attention = std::array::from_fn(|_| schedule.layers().map(|l| layer_args(l.kind(), num_tokens)).collect());
    let empty = |kind| {
        let pools = LayerPools::empty(kind, 1).all().to_vec();
        [pools.clone(), pools]
    };
    let setup = Setup {
        schedule,
        tokens: TOKENS,
        num_tokens,
        stored_experts: params.count(WEIGHT_ALIAS.name),
        attention,
        hca,
        csa,
        initial: Initial {
            hca: empty(Kind::Hca),
            csa: empty(Kind::Csa),
        },
        logit_rows: std::array::from_fn(|row| if row == 0 { num_tokens as i32 - 1 } else { -1 }),
        tail: Tail::Apart,
    };
    Case::new(fixture, setup)
}

impl Kernel for PrefillFwd {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        Ok(Box::new(case(params, seed)))
    }
}
