//! Prefill attention block with the sliding window only: hyper-connection mix, projections, cache write, sparse attention, mix back.

pub(crate) mod case;

use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

pub use case::PrefillAttentionSwa;

use super::prefill_attention::{
    Attended, BackScratch, BlockArgs, BlockWeights, FrontScratch, TOKENS, WindowList, back, front,
};
use crate::creates::{Created, Creates};
use crate::model::{CMP_PAGES, HEAD_DIM, INDEX_TOPK, PAGE, WINDOW};
use crate::scopes::BodyScopes;

/// The tensors that the body creates, in source order.
#[derive(Debug)]
pub(crate) struct SwaScratch {
    front: FrontScratch,
    swa_indices: Created,
    cmp_block_table: Created,
    cmp_kv: Created,
    cmp_indices: Created,
    back: BackScratch,
}

impl SwaScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        // Fields are evaluated as they are written: that is the order of the allocation batches.
        Self {
            front: FrontScratch::declare(creates),
            swa_indices: creates.tensor("swa_indices", DType::I32, &[TOKENS, WINDOW]),
            cmp_block_table: creates.tensor("cmp_block_table_dummy", DType::I32, &[CMP_PAGES]),
            cmp_kv: creates.tensor("cmp_kv_dummy", DType::Bf16, &[CMP_PAGES, PAGE, 1, HEAD_DIM]),
            cmp_indices: creates.tensor("cmp_indices_dummy", DType::I32, &[TOKENS, INDEX_TOPK]),
            back: BackScratch::declare(creates),
        }
    }
}

/// Submits the block: 31 launches and barriers here, 304 tasks in a manual scope, and the mix back in an `if` body.
pub(crate) fn prefill_attention_swa(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    args: &BlockArgs,
    weights: &BlockWeights,
    s: &SwaScratch,
) -> Result<(), Halted> {
    let done = front(o, "prefill_swa_cache_write", args, weights, &s.front)?;
    window_indices(o, args, &s.swa_indices)?;
    fill(o, "prefill_swa_dummy_cmp_table", Unit::Scalar, &s.cmp_block_table, 0)?;
    fill(o, "prefill_swa_empty_cmp_meta", Unit::Vector, &s.cmp_indices, -1)?;
    let attended = Attended {
        swa_indices: s.swa_indices.tensor(),
        cmp_kv: s.cmp_kv.tensor(),
        cmp_block_table: s.cmp_block_table.tensor(),
        cmp_indices: s.cmp_indices.tensor(),
    };
    back(o, bodies, args, weights, done, attended, &s.back)
}

fn window_indices(o: &mut Orchestrator<'_>, args: &BlockArgs, indices: &Tensor) -> Result<(), Halted> {
    let list = WindowList::of(args, indices);
    let task = Task::new("prefill_swa_window_indices", Unit::Scalar)
        .input(&list.positions)
        .input(&list.table)
        .write(indices)
        .run(move |block| list.fill(block, 0..TOKENS));
    o.submit(task)?;
    Ok(())
}

/// Fills a placeholder.
fn fill(o: &mut Orchestrator<'_>, name: &'static str, unit: Unit, tensor: &Tensor, value: i32) -> Result<(), Halted> {
    let target = tensor.clone();
    let task = Task::new(name, unit)
        .write(tensor)
        .run(move |block| block.write::<i32>(&target).fill(value));
    o.submit(task)?;
    Ok(())
}
