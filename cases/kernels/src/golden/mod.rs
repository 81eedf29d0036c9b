//! Building blocks of the references.
//!
//! Independent of what they check: nothing here uses the tile operations or the programs. Products
//! are exact or in f64, reductions follow the model that the specs give for the reference, and each
//! rounding point is a plain cast. Only fixtures, constants and comparison rules are shared.

#![cfg_attr(test, expect(clippy::float_cmp, reason = "the tests know exact values"))]

pub mod compressor;
pub mod decode_attn;
pub mod expert;
pub mod gate;
pub mod hc_head;
pub mod hc_post;
pub mod hc_pre;
pub mod indexer;
pub mod input_pack;
pub mod lm_head;
pub mod moe;
pub mod mtp_projection;
mod product;
pub mod qkv;
mod quant;
mod reduce;
pub mod rmsnorm;
mod rope;
pub mod sparse_attn;

pub use product::{Matrix, Wide, product, product_codes, product_on};
pub use quant::{CodedRows, code_rows, round_code};
pub use reduce::{argmax_rows, inv_rms, mean_square_inverse, row_sum, softmax_rows};
pub use rope::{Direction, rotate};

use half::bf16;

/// Rounds to bf16, ties to even, and back.
pub fn through_bf16(value: f32) -> f32 {
    bf16::from_f32(value).to_f32()
}

/// Values of a bf16 slice.
pub fn widen(values: &[bf16]) -> Vec<f32> {
    values.iter().map(|v| v.to_f32()).collect()
}

/// Values rounded to bf16, ties to even.
pub fn narrow(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|v| bf16::from_f32(*v)).collect()
}

/// 1 / (1 + e⁻ᶻ).
pub fn sigmoid(z: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(z)).exp())) as f32
}
