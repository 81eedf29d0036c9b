//! A whole decode step of the main model, on two ranks: embedding, every layer, head and norm, and the language-model
//! head with its sampling.

use ring_runtime::DType;

use super::decode_attention::BlockWeights;
use super::decode_attention_hca as hca;
use super::decode_layer::START_POS;
use super::decode_layer::attention::{AttentionArgs, AttentionWeights};
use super::expert_routed::case::WEIGHT_ALIAS;
use super::forward::{Attention, Case, Initial, Setup, TOKEN_RULES, Tail, output};
use super::layers::{Kind, PAIRS, Schedule};
use crate::fixture::{DecodeBatch, Fixture};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, Params, SetupError};
use crate::model::{DECODE_TOKENS, RANKS};

/// A whole decode step.
#[derive(Clone, Copy, Debug)]
pub struct DecodeFwd;

const ROW_RULE: &str = "per layer and rank, of the program's own streams: as in decode_attention_hca and decode_attention_csa; other rows equal";

static INFO: KernelInfo = KernelInfo {
    name: "decode_fwd",
    summary: "Decode forward pass over two ranks: embedding, layers, head and sampling",
    level: Level::L3,
    ranks: RANKS,
    params: &[PAIRS, START_POS, WEIGHT_ALIAS],
    outputs: &[
        output("pre_hc_hidden_out", DType::F32, &[2, 8, 4, 7168], TOKEN_RULES[0]),
        output("hidden_out", DType::Bf16, &[2, 8, 7168], TOKEN_RULES[1]),
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
        f32: 0.3,
        bf16: 69.7,
        int8: 110.0,
    },
    // Five layers; ring 3 is that of rank 0 in layer 0, where all routes stay on it. Ring 1 is the CSA stage from an
    // offset of 0: elsewhere its larger tensors lose space at the wrap.
    ring_bytes: Some([7_454_720, 77_816_832, 11_124_736, 52_694_016]),
};

/// The pass with its arguments, for a fixture and parameters.
pub(super) fn case(params: &Params, seed: u64) -> Case<AttentionArgs> {
    let (schedule, fixture) = (Schedule::of_params(params), Fixture::new(seed));
    // All layers draw from the fixture of layer 0, an HCA layer.
    let block = BlockWeights::draw(fixture, hca::DIST);
    let [hca, csa] = [Kind::Hca, Kind::Csa].map(|kind| AttentionWeights::draw_with(fixture, kind, &block));
    let [hca_args, csa_args] = [Kind::Hca, Kind::Csa].map(|kind| {
        let draw = |rank| AttentionArgs::draw(fixture.of_rank(rank), kind, |f| DecodeBatch::of_params(f, params));
        std::array::from_fn::<_, RANKS, _>(draw)
    });
    let attention = std::array::from_fn(|rank| {
        let of = |kind| match kind {
            Kind::Hca => hca_args[rank].with_own_pools(),
            Kind::Csa => csa_args[rank].with_own_pools(),
        };
        schedule.layers().map(|layer| of(layer.kind())).collect()
    });
    let pools = |args: &AttentionArgs| args.pools().into_iter().cloned().collect();
    let setup = Setup {
        schedule,
        tokens: DECODE_TOKENS,
        num_tokens: DECODE_TOKENS,
        stored_experts: params.count(WEIGHT_ALIAS.name),
        attention,
        hca,
        csa,
        initial: Initial {
            hca: hca_args.each_ref().map(pools),
            csa: csa_args.each_ref().map(pools),
        },
        logit_rows: std::array::from_fn(|row| row as i32),
        tail: Tail::Together,
    };
    Case::new(fixture, setup)
}

impl Kernel for DecodeFwd {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        Ok(Box::new(case(params, seed)))
    }
}
