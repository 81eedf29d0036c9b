//! Prefill attention block of the HCA layers: the sliding window, and every completed row of 128 positions.

pub(crate) mod case;

use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

pub use case::PrefillAttentionHca;

use super::compressor::prefill::TileArgs;
use super::prefill_attention::{
    Attended, BackScratch, BlockArgs, BlockWeights, FrontScratch, TOKENS, WindowList, back, front,
};
use super::prefill_compressor::{PrefillCompressorArgs, Ratio128Scratch, prefill_compressor_ratio128};
use crate::creates::{Created, Creates};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::RATIO_128;
use crate::model::{INDEX_TOPK, WINDOW};
use crate::scopes::BodyScopes;

/// Compressed rows that a request may have, at most.
const COLUMNS: usize = 4096;

/// Weights of the block.
#[derive(Clone, Debug)]
pub(crate) struct HcaWeights {
    pub(crate) block: BlockWeights,
    pub(crate) compressor: CompressorWeights,
}

/// Activations, pools and tables of one tile.
#[derive(Clone, Debug)]
pub(crate) struct HcaArgs {
    pub(crate) block: BlockArgs,
    /// State of the compressor, [pages, 8, 1024] f32, updated.
    pub(crate) state: Tensor,
    /// Its pages, \[2048\] i32.
    pub(crate) state_table: Tensor,
    /// State row of each token, \[128\] i64, −1 for none.
    pub(crate) state_slots: Tensor,
    /// Compressed pool, [pages, 128, 1, 512] bf16, updated.
    pub(crate) cmp_kv: Tensor,
    /// Its pages, \[32\] i32.
    pub(crate) cmp_table: Tensor,
    /// Compressed row that each token completes, \[128\] i64, −1 for none.
    pub(crate) cmp_slots: Tensor,
}

impl HcaArgs {
    /// Arguments of the compressor over the activations `x`.
    fn compressor(&self, x: &Tensor) -> TileArgs {
        TileArgs {
            form: RATIO_128,
            x: x.clone(),
            state: self.state.clone(),
            state_table: self.state_table.clone(),
            state_slots: self.state_slots.clone(),
            positions: self.block.position_ids.clone(),
            slots: self.cmp_slots.clone(),
            freqs_cos: self.block.rope.cos.clone(),
            freqs_sin: self.block.rope.sin.clone(),
            num_tokens: self.block.num_tokens,
        }
    }
}

/// The tensors that the body creates, in source order.
#[derive(Debug)]
pub(crate) struct HcaScratch {
    front: FrontScratch,
    compressor: Ratio128Scratch,
    swa_indices: Created,
    cmp_indices: Created,
    back: BackScratch,
}

impl HcaScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        // Fields are evaluated as they are written: that is the order of the allocation batches.
        Self {
            front: FrontScratch::declare(creates),
            compressor: Ratio128Scratch::declare(creates),
            swa_indices: creates.tensor("swa_indices", DType::I32, &[TOKENS, WINDOW]),
            cmp_indices: creates.tensor("cmp_indices", DType::I32, &[TOKENS, INDEX_TOPK]),
            back: BackScratch::declare(creates),
        }
    }
}

/// Submits the block: 36 launches and barriers here, 304 tasks in a manual scope, and the mix back in an `if` body.
pub(crate) fn prefill_attention_hca(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    args: &HcaArgs,
    weights: &HcaWeights,
    s: &HcaScratch,
) -> Result<(), Halted> {
    let done = front(o, "prefill_hca_cache_write", &args.block, &weights.block, &s.front)?;
    let compressor = PrefillCompressorArgs {
        tile: args.compressor(&done.qkv.x),
        cmp_kv: args.cmp_kv.clone(),
    };
    prefill_compressor_ratio128(o, &compressor, &weights.compressor, &s.compressor)?;
    sparse_indices(o, &args.block, &s.swa_indices, &s.cmp_indices)?;
    let attended = Attended {
        swa_indices: s.swa_indices.tensor(),
        cmp_kv: args.cmp_kv.clone(),
        cmp_block_table: args.cmp_table.clone(),
        cmp_indices: s.cmp_indices.tensor(),
    };
    back(o, bodies, &args.block, &weights.block, done, attended, &s.back)
}

/// Lists window rows, and the compressed rows that are complete at each token.
fn sparse_indices(o: &mut Orchestrator<'_>, args: &BlockArgs, swa: &Tensor, cmp: &Tensor) -> Result<(), Halted> {
    let (list, target, num_tokens) = (WindowList::of(args, swa), cmp.clone(), args.num_tokens);
    let task = Task::new("prefill_hca_sparse_indices", Unit::Scalar)
        .input(&list.positions)
        .input(&list.table)
        .write(swa)
        .write(cmp)
        .run(move |block| {
            list.fill(block, 0..TOKENS);
            let positions = block.read::<i32>(&list.positions);
            let mut target = block.write::<i32>(&target);
            target.fill(-1);
            for (t, row) in target.chunks_mut(INDEX_TOPK).enumerate().take(num_tokens) {
                let complete = ((positions[t] as usize + 1) / RATIO_128.ratio).min(COLUMNS);
                (0..).zip(row.iter_mut().take(complete)).for_each(|(c, row)| *row = c);
            }
        });
    o.submit(task)?;
    Ok(())
}
