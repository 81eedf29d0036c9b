//! The programs: one module each.
//!
//! A module has the standalone kernel (declaration, fixture, instance) and, where other programs
//! inline it, two pieces: `XScratch::declare(&mut Creates, …)` for the tensors that its body creates,
//! and a function that submits its launches in the current scope. A composed program declares all
//! scratch of its body in source order, allocates once, then calls the functions.

pub(crate) mod compressor;
mod decode_attend;
mod decode_attention;
pub mod decode_attention_csa;
pub mod decode_attention_hca;
pub mod decode_attention_swa;
pub mod decode_compressor;
pub mod decode_fwd;
pub mod decode_indexer;
pub mod decode_indexer_compressor;
pub mod decode_layer;
pub mod decode_mtp;
pub mod decode_sparse_attn;
pub mod decode_sparse_attn_hca;
pub mod decode_sparse_attn_swa;
pub mod expert_routed;
pub mod expert_shared;
pub mod fault;
mod forward;
pub mod gate;
pub mod hc_head;
pub mod hc_post;
pub mod hc_pre;
pub mod input_pack;
mod layers;
pub mod lm_head;
pub mod moe;
pub mod mtp_projection;
mod peers;
mod prefill_attention;
pub mod prefill_attention_csa;
pub mod prefill_attention_hca;
pub mod prefill_attention_swa;
pub mod prefill_compressor;
pub mod prefill_fwd;
pub mod prefill_indexer;
pub mod prefill_indexer_compressor;
pub mod prefill_layer;
pub mod prefill_mtp;
pub mod prefill_sparse_attn;
pub mod qkv_proj_rope;
pub mod rmsnorm;
mod swiglu;
mod tapped;

use crate::kernel::{ParamSpec, Params};
use crate::model::{DECODE_TOKENS, PREFILL_TOKENS};

/// The shape that a program runs at, where a spec tests both.
pub const MODE: ParamSpec = ParamSpec::choice(
    "mode",
    &["prefill", "decode"],
    "Run at 128 tokens (prefill) or at 8 (decode)",
);

/// The same for programs that run at 8 tokens when nothing is said.
pub const DECODE_MODE: ParamSpec = ParamSpec::choice(
    "mode",
    &["decode", "prefill"],
    "Run at 8 tokens (decode) or at 128 (prefill)",
);

/// Tokens of the chosen [`MODE`].
pub fn mode_tokens(params: &Params) -> usize {
    match params.word("mode") {
        "decode" => DECODE_TOKENS,
        _ => PREFILL_TOKENS,
    }
}
