//! Which compressed rows take part, and which blocks of rows hence need computing.

use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

use super::{BLOCKS, COLUMNS, CsaSparseArgs, ITEMS, RATIO};
use crate::creates::{Created, Creates};
use crate::model::INDEX_TOPK;
use crate::ops::decode_attend::{KEYS, MASK, TOKENS, matrix};

/// The tensors of the plan.
#[derive(Debug)]
pub(super) struct PlanScratch {
    /// Logical compressed rows that take part, [8, 1024] i32, −1 for none.
    pub(super) slots: Created,
    /// 1 for a block with a row, [8, 9] i32.
    pub(super) live: Created,
    /// Blocks `9 t + b` in the order of their work, \[72\] i32: live ones first.
    pub(super) order: Created,
}

impl PlanScratch {
    pub(super) fn declare(creates: &mut Creates) -> Self {
        let scratch = Self {
            slots: matrix(creates, "cmp_sparse_indices", DType::I32, TOKENS, INDEX_TOPK),
            live: matrix(creates, "valid_block_mask", DType::I32, TOKENS, BLOCKS),
            order: creates.tensor("qk_order", DType::I32, &[ITEMS]),
        };
        // A cursor through the plan that only a device's task needs; it takes its place in the ring.
        creates.tensor("qk_wcur", DType::I32, &[1]);
        scratch
    }
}

pub(super) fn submit(
    o: &mut Orchestrator<'_>,
    args: &CsaSparseArgs,
    bias: &Tensor,
    s: &PlanScratch,
) -> Result<TaskId, Halted> {
    let (topk, positions, window) = (
        args.idx_topk.clone(),
        args.position_ids.clone(),
        args.window_indices.clone(),
    );
    let (bias, [slots, live, order]) = (bias.clone(), [&s.slots, &s.live, &s.order].map(Created::tensor));
    let task = Task::new("csa_slots_build_valid_qk_plan", Unit::Vector)
        .input(&topk)
        .input(&positions)
        .input(&window)
        .write(&slots)
        .write(&live)
        .write(&bias)
        .write(&order)
        .run(move |block| {
            let (topk, window) = (block.tile::<i32>(&topk), block.tile::<i32>(&window));
            let positions = block.read::<i32>(&positions);
            let mut slots = block.write::<i32>(&slots);
            for (t, slots) in slots.chunks_mut(INDEX_TOPK).enumerate() {
                complete_rows(&topk.tile().row(t)[..INDEX_TOPK], positions[t], slots);
            }
            let (mut live, mut bias) = (block.write::<i32>(&live), block.write::<f32>(&bias));
            for t in 0..TOKENS {
                let bias = &mut bias[t * COLUMNS..][..COLUMNS];
                let rows = window
                    .tile()
                    .row(t)
                    .iter()
                    .chain(&slots[t * INDEX_TOPK..][..INDEX_TOPK]);
                for (bias, row) in bias.iter_mut().zip(rows) {
                    *bias = if *row >= 0 { 0.0 } else { MASK };
                }
                let live = &mut live[t * BLOCKS..][..BLOCKS];
                for (live, slots) in live[1..].iter_mut().zip(slots[t * INDEX_TOPK..].chunks(KEYS)) {
                    *live = i32::from(slots.iter().any(|c| *c >= 0));
                }
                live[0] = 1;
            }
            block.write::<i32>(&order).copy_from_slice(&live_first(&live));
        });
    Ok(o.submit(task)?.id)
}

/// Entries of `chosen` whose row is complete at `position`; the others become −1.
fn complete_rows(chosen: &[i32], position: i32, rows: &mut [i32]) {
    let bound = (position + 1) / RATIO as i32;
    for (row, chosen) in rows.iter_mut().zip(chosen) {
        *row = if (0..bound).contains(chosen) { *chosen } else { -1 };
    }
}

/// Indices of the live blocks, then those of the others, each ascending.
fn live_first(live: &[i32]) -> Vec<i32> {
    let of = |wanted: bool| {
        (0..live.len())
            .filter(move |i| (live[*i] != 0) == wanted)
            .map(|i| i as i32)
    };
    of(true).chain(of(false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_count_once_they_are_complete() {
        let mut rows = [0; 4];
        complete_rows(&[0, 2, 1, -1], 10, &mut rows);
        assert_eq!(rows, [0, -1, 1, -1]);
        complete_rows(&[0, 2, 1, -1], 2, &mut rows);
        assert_eq!(rows, [-1; 4]);
    }

    #[test]
    fn live_blocks_come_first() {
        assert_eq!(live_first(&[1, 0, 0, 1, 1, 0]), [0, 3, 4, 1, 2, 5]);
    }
}
