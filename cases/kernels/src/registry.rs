//! All kernels. Adding one means one module in `ops` and one line here.

use crate::kernel::{Kernel, SetupError};
use crate::ops;

/// Every kernel, in the order of `kernel list`.
#[rustfmt::skip] // one line each
pub fn all() -> &'static [&'static dyn Kernel] {
    &[
        &ops::decode_attention_csa::DecodeAttentionCsa,
        &ops::decode_attention_hca::DecodeAttentionHca,
        &ops::decode_attention_swa::DecodeAttentionSwa,
        &ops::decode_compressor::DecodeCompressorRatio128,
        &ops::decode_compressor::DecodeCompressorRatio4,
        &ops::decode_fwd::DecodeFwd,
        &ops::decode_indexer::DecodeIndexer,
        &ops::decode_indexer_compressor::DecodeIndexerCompressor,
        &ops::decode_layer::DecodeLayer,
        &ops::decode_mtp::DecodeMtp,
        &ops::decode_sparse_attn::DecodeSparseAttn,
        &ops::decode_sparse_attn_hca::DecodeSparseAttnHca,
        &ops::decode_sparse_attn_swa::DecodeSparseAttnSwa,
        &ops::expert_routed::ExpertRouted,
        &ops::expert_shared::ExpertShared,
        &ops::gate::Gate,
        &ops::fault::Fault,
        &ops::hc_head::HcHead,
        &ops::hc_post::HcPost,
        &ops::hc_pre::HcPre,
        &ops::input_pack::InputPack,
        &ops::lm_head::LmHead,
        &ops::moe::Moe,
        &ops::mtp_projection::MtpProjection,
        &ops::prefill_attention_csa::PrefillAttentionCsa,
        &ops::prefill_attention_hca::PrefillAttentionHca,
        &ops::prefill_attention_swa::PrefillAttentionSwa,
        &ops::prefill_compressor::PrefillCompressorRatio4,
        &ops::prefill_compressor::PrefillCompressorRatio128,
        &ops::prefill_fwd::PrefillFwd,
        &ops::prefill_indexer::PrefillIndexer,
        &ops::prefill_indexer_compressor::PrefillIndexerCompressor,
        &ops::prefill_layer::PrefillLayer,
        &ops::prefill_mtp::PrefillMtp,
        &ops::prefill_sparse_attn::PrefillSparseAttn,
        &ops::qkv_proj_rope::QkvProjRope,
        &ops::rmsnorm::RmsNorm,
    ]
}

/// The kernel of this name.
pub fn find(name: &str) -> Result<&'static dyn Kernel, SetupError> {
    all()
        .iter()
        .copied()
        .find(|k| k.info().name == name)
        .ok_or_else(|| SetupError::UnknownKernel {
            name: name.to_owned(),
            valid: all()
                .iter()
                .map(|k| format!("`{}`", k.info().name))
                .collect::<Vec<_>>()
                .join(", "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{ParamKind, Params};

    #[test]
    fn declarations_are_sound() {
        let mut names = Vec::new();
        for kernel in all() {
            let info = kernel.info();
            assert!(!names.contains(&info.name), "`{}` is registered twice", info.name);
            names.push(info.name);
            assert!(info.ranks >= 1 && !info.summary.is_empty(), "{}", info.name);
            for (i, spec) in info.params.iter().enumerate() {
                assert!(
                    info.params[..i].iter().all(|s| s.name != spec.name),
                    "{}: `{}` twice",
                    info.name,
                    spec.name
                );
                if let ParamKind::Int { min, max, default } = spec.kind {
                    assert!(min <= default && default <= max, "{}: `{}`", info.name, spec.name);
                }
                // The printed default is accepted.
                let given = [(spec.name, spec.default_text())];
                Params::resolve(info.name, info.params, &given).unwrap();
            }
        }
    }

    #[test]
    fn an_unknown_kernel_is_answered_with_the_names() {
        let text = find("hc_per").err().unwrap().to_string();
        assert!(text.contains("`hc_pre`"), "{text}");
    }
}
