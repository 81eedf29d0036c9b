//! Attention of a decode step over the sliding window and up to 128 compressed rows, with its output projection.

mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub use case::DecodeSparseAttnHca;

use super::decode_attend::{
    BlockStats, Cut, DecodeArgs, Dequant, HeadBatch, KEYS, MASK, ProjectionScratch, RopeLanes, TOKENS, compressed_row,
    matrix, merge_all, pool_rows, project, rope_cs,
};
use super::prefill_sparse_attn::OutWeights;
use crate::creates::{Created, Creates};
use crate::model::{GROUP_DIM, HEAD_DIM, HEADS, O_GROUPS, STEP_TOKENS};

/// Blocks of a token: the window, and the compressed rows.
const BLOCKS: usize = 2;
/// Columns of a token.
const COLUMNS: usize = BLOCKS * KEYS;
/// Columns of a compressed list.
pub(crate) const COMPRESSED: usize = KEYS;
/// Rows of each kind in a gather block.
const GATHER_ROWS: usize = 32;
/// Gather blocks of a token.
const GATHER_SPLIT: usize = KEYS / GATHER_ROWS;

/// How the projection is cut.
const CUT: Cut = Cut {
    bundle: 1,
    down_columns: 128,
    up_columns: 512,
    clear_padding: true,
    dequant: Dequant::Reciprocal,
};

/// Arguments.
#[derive(Clone, Debug)]
pub(crate) struct HcaSparseArgs {
    pub(crate) attn: DecodeArgs,
    /// Physical rows of each window, [8, 128] i32, −1 for none.
    pub(crate) window_indices: Tensor,
    /// Compressed pool, [32, 128, 1, 512] bf16.
    pub(crate) cmp_kv: Tensor,
    /// Pages of each request, [4, 32] i32.
    pub(crate) cmp_block_table: Tensor,
    /// Logical compressed rows, [8, 128] i32, −1 for none.
    pub(crate) cmp_indices: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct HcaSparseScratch {
    bias: Created,
    kv: Created,
    packed: Created,
    stats: BlockStats,
    lanes: RopeLanes,
    projection: ProjectionScratch,
}

impl HcaSparseScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        Self {
            bias: matrix(creates, "sparse_bias", DType::F32, TOKENS, COLUMNS),
            kv: matrix(creates, "hca_kv_flat", DType::Bf16, TOKENS * COLUMNS, HEAD_DIM),
            packed: matrix(creates, "o_packed", DType::Bf16, O_GROUPS * TOKENS, GROUP_DIM),
            stats: BlockStats::declare(creates, BLOCKS),
            lanes: RopeLanes::declare(creates, None),
            projection: ProjectionScratch::declare(creates),
        }
    }
}

/// Submits the six launches and, in a manual scope, the 48 tasks of the output projection.
pub(crate) fn decode_sparse_attn_hca(
    o: &mut Orchestrator<'_>,
    args: &HcaSparseArgs,
    weights: &OutWeights,
    s: &HcaSparseScratch,
) -> Result<(), Halted> {
    build_valid(o, args, &s.bias)?;
    let gathered = gather_kv(o, args, &s.kv)?;
    qk_pv(o, args, s, gathered)?;
    rope_cs(o, &args.attn, &s.lanes, 2)?;
    let merged = merge_all(o, &args.attn, &s.stats.tensors(), &s.lanes, &s.packed, &[])?;
    project(
        o,
        CUT,
        weights,
        &s.projection,
        (&s.packed, &[merged]),
        &args.attn.attn_out,
    )
}

fn build_valid(o: &mut Orchestrator<'_>, args: &HcaSparseArgs, bias: &Tensor) -> Result<(), Halted> {
    let (window, compressed, target) = (args.window_indices.clone(), args.cmp_indices.clone(), bias.clone());
    let task = Task::new("build_valid", Unit::Vector)
        .input(&window)
        .input(&compressed)
        .write(bias)
        .run(move |block| {
            let lists = [block.read::<i32>(&window), block.read::<i32>(&compressed)];
            let mut bias = block.write::<f32>(&target);
            for (i, bias) in bias.iter_mut().enumerate() {
                let (t, j) = (i / COLUMNS, i % COLUMNS);
                let row = lists[j / KEYS][t * KEYS + j % KEYS];
                *bias = if row >= 0 { 0.0 } else { MASK };
            }
        });
    o.submit(task)?;
    Ok(())
}

fn gather_kv(o: &mut Orchestrator<'_>, args: &HcaSparseArgs, kv: &Tensor) -> Result<TaskId, Halted> {
    let a = args.clone();
    let (ori, cmp, target) = (pool_rows(&a.attn.ori_kv), pool_rows(&a.cmp_kv), kv.clone());
    let task = Task::new("hca_gather_kv", Unit::Vector)
        .blocks(TOKENS * GATHER_SPLIT)
        .input(&a.window_indices)
        .input(&a.cmp_indices)
        .input(&a.cmp_block_table)
        .input(&a.attn.ori_kv)
        .input(&a.cmp_kv)
        .write(kv)
        .run(move |block| {
            let (t, first) = (block.index() / GATHER_SPLIT, block.index() % GATHER_SPLIT * GATHER_ROWS);
            let lists = [block.read::<i32>(&a.window_indices), block.read::<i32>(&a.cmp_indices)];
            let table = t / STEP_TOKENS;
            let table = block.read::<i32>(&a.cmp_block_table.rows(table..table + 1));
            let pools = [block.tile::<bf16>(&ori), block.tile::<bf16>(&cmp)];
            for (b, (list, pool)) in lists.iter().zip(&pools).enumerate() {
                let target0 = t * COLUMNS + b * KEYS + first;
                let mut rows = block.tile_mut::<bf16>(&target.rows(target0..target0 + GATHER_ROWS));
                let mut rows = rows.tile_mut();
                for k in 0..GATHER_ROWS {
                    let row = rows.row_mut(k);
                    match usize::try_from(list[t * KEYS + first + k]) {
                        Err(_) => row.fill(bf16::ZERO),
                        Ok(r) if b == 0 => row.copy_from_slice(pool.tile().row(r)),
                        Ok(c) => row.copy_from_slice(pool.tile().row(compressed_row(&table, c))),
                    }
                }
            }
        });
    Ok(o.submit(task)?.id)
}

/// Both blocks of a token are computed, whether a row of it takes part or not: the merge weighs an empty one with zero.
fn qk_pv(o: &mut Orchestrator<'_>, args: &HcaSparseArgs, s: &HcaSparseScratch, gathered: TaskId) -> Result<(), Halted> {
    let (kv, bias, stats) = (s.kv.tensor(), s.bias.tensor(), s.stats.tensors());
    let q = args.attn.q.reshape(&[TOKENS * HEADS, HEAD_DIM]);
    let task = Task::new("qk_pv", Unit::Mixed)
        .blocks(TOKENS * BLOCKS)
        .input(&args.attn.q)
        .input(&kv)
        .input(&bias);
    let task = stats.written_by(task).after(gathered).run(move |block| {
        let (t, b) = (block.index() / BLOCKS, block.index() % BLOCKS);
        let first = t * COLUMNS + b * KEYS;
        let q = block.tile::<bf16>(&q.rows(t * HEADS..(t + 1) * HEADS));
        let rows = block.tile::<bf16>(&kv.rows(first..first + KEYS));
        let bias = block.read::<f32>(&bias.view(&[t, b * KEYS], &[1, KEYS]));
        HeadBatch::new().attend(block, &stats, (t, b), (q.tile(), rows.tile(), &bias));
    });
    o.submit(task)?;
    Ok(())
}
