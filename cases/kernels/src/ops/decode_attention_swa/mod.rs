//! Attention block of a decode step with the sliding window only.

mod case;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

pub use case::DecodeAttentionSwa;
pub(crate) use case::{DIST, block_reference};

use super::decode_attend::{KEYS, TOKENS, matrix};
use super::decode_attention::{BlockArgs, BlockWeights, CacheRows, FrontScratch, back, front, rope_rows};
use super::decode_sparse_attn_swa::{SwaSparseArgs, SwaSparseScratch, decode_sparse_attn_swa, fill_bias};
use crate::creates::{Created, Creates};
use crate::model::HIDDEN;

/// Arguments.
#[derive(Clone, Debug)]
pub(crate) struct SwaBlockArgs {
    pub(crate) block: BlockArgs,
    /// Rows of each window, 8 i32.
    pub(crate) swa_lens: Tensor,
}

/// The tensors that the body creates, in source order.
#[derive(Debug)]
pub(crate) struct SwaBlockScratch {
    front: FrontScratch,
    bias: Created,
    attn_out: Created,
    sparse: SwaSparseScratch,
}

impl SwaBlockScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let (front, ()) = FrontScratch::declare(creates, |_| ());
        Self {
            front,
            bias: matrix(creates, "sparse_bias", DType::F32, TOKENS, KEYS),
            attn_out: matrix(creates, "attn_out", DType::Bf16, TOKENS, HIDDEN),
            sparse: SwaSparseScratch::declare(creates),
        }
    }
}

/// Submits the block: 27 launches and barriers here, and 48 tasks in a manual scope.
pub(crate) fn decode_attention_swa(
    o: &mut Orchestrator<'_>,
    args: &SwaBlockArgs,
    weights: &BlockWeights,
    s: &SwaBlockScratch,
) -> Result<(), Halted> {
    front(o, &args.block, weights, &s.front, |o| {
        let tokens = Some((&*s.front.rope_cos, &*s.front.rope_sin));
        rope_rows(o, "swa_rope_step", &args.block, tokens, None)
    })?;
    cache_insert_valid_bias(o, args, s)?;
    let sparse = SwaSparseArgs {
        attn: s.front.attention(&args.block, weights, &s.attn_out),
        swa_indices: args.block.window_indices.clone(),
        bias: s.bias.tensor(),
    };
    decode_sparse_attn_swa(o, &sparse, &weights.out, &s.sparse)?;
    back(o, &args.block, &s.front, &s.attn_out)
}

/// Writes the rows of the step, and which columns of a window count.
fn cache_insert_valid_bias(o: &mut Orchestrator<'_>, args: &SwaBlockArgs, s: &SwaBlockScratch) -> Result<(), Halted> {
    let rows = CacheRows::new(&args.block, &s.front);
    let (lens, bias) = (args.swa_lens.clone(), s.bias.tensor());
    let task = rows.task("swa_cache_insert_valid_bias").input(&lens).write(&bias);
    let task = task.run(move |block| {
        rows.write(block);
        fill_bias(&block.read::<i32>(&lens), &mut block.write::<f32>(&bias));
    });
    o.submit(task)?;
    Ok(())
}
