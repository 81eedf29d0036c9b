//! Sliding-window attention of a decode step with its output projection: one block of 128 rows a token.

mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub use case::DecodeSparseAttnSwa;

use super::decode_attend::{
    BlockStats, Cut, DecodeArgs, Dequant, HeadBatch, KEYS, MASK, ProjectionScratch, RopeLanes, TOKENS, matrix,
    merge_all, pool_rows, project, rope_cs,
};
use super::prefill_sparse_attn::OutWeights;
use crate::creates::{Created, Creates};
use crate::model::{GROUP_DIM, HEAD_DIM, HEADS, O_GROUPS};

/// Rows of a gather block.
const GATHER_ROWS: usize = 32;
/// Gather blocks of a token.
const GATHER_SPLIT: usize = KEYS / GATHER_ROWS;

/// How the projection is cut.
const CUT: Cut = Cut {
    bundle: 1,
    down_columns: 128,
    up_columns: 512,
    clear_padding: true,
    dequant: Dequant::Share,
};

/// Arguments.
#[derive(Clone, Debug)]
pub(crate) struct SwaSparseArgs {
    pub(crate) attn: DecodeArgs,
    /// Physical rows of each window, [8, 128] i32, −1 for none.
    pub(crate) swa_indices: Tensor,
    /// 0 for a column that takes part and −1e20 for others, [8, 128] f32.
    pub(crate) bias: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct SwaSparseScratch {
    kv: Created,
    packed: Created,
    stats: BlockStats,
    lanes: RopeLanes,
    projection: ProjectionScratch,
}

impl SwaSparseScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let (projection, (kv, packed, stats, lanes)) = ProjectionScratch::declare_around(creates, |creates| {
            (
                matrix(creates, "swa_kv_flat", DType::Bf16, TOKENS * KEYS, HEAD_DIM),
                matrix(creates, "o_packed_heads", DType::Bf16, TOKENS * HEADS, HEAD_DIM),
                BlockStats::declare(creates, 1),
                RopeLanes::declare(creates, Some(("rope_swap_idx", [16, 64]))),
            )
        });
        Self {
            kv,
            packed,
            stats,
            lanes,
            projection,
        }
    }
}

/// Submits the five launches and, in a manual scope, the 48 tasks of the output projection.
pub(crate) fn decode_sparse_attn_swa(
    o: &mut Orchestrator<'_>,
    args: &SwaSparseArgs,
    weights: &OutWeights,
    s: &SwaSparseScratch,
) -> Result<(), Halted> {
    let gathered = gather_kv(o, args, &s.kv)?;
    let attended = qk_pv(o, args, s, gathered)?;
    let turned = rope_cs(o, &args.attn, &s.lanes, 1)?;
    let stats = s.stats.tensors();
    let merged = merge_all(o, &args.attn, &stats, &s.lanes, &s.packed, &[attended, turned])?;
    let packed = s.packed.reshape(&[O_GROUPS * TOKENS, GROUP_DIM]);
    project(
        o,
        CUT,
        weights,
        &s.projection,
        (&packed, &[merged]),
        &args.attn.attn_out,
    )
}

/// Bias of each column of windows with these lengths, \[8\] i32.
pub(crate) fn fill_bias(lens: &[i32], bias: &mut [f32]) {
    for (row, len) in bias.chunks_mut(KEYS).zip(lens) {
        for (j, bias) in row.iter_mut().enumerate() {
            *bias = if (j as i32) < *len { 0.0 } else { MASK };
        }
    }
}

fn gather_kv(o: &mut Orchestrator<'_>, args: &SwaSparseArgs, kv: &Tensor) -> Result<TaskId, Halted> {
    let (indices, pool, target) = (args.swa_indices.clone(), pool_rows(&args.attn.ori_kv), kv.clone());
    let task = Task::new("swa_gather_kv", Unit::Vector)
        .blocks(TOKENS * GATHER_SPLIT)
        .input(&indices)
        .input(&args.attn.ori_kv)
        .write(kv)
        .run(move |block| {
            let first = block.index() * GATHER_ROWS;
            let indices = block.read::<i32>(&indices);
            let pool = block.tile::<bf16>(&pool);
            let mut rows = block.tile_mut::<bf16>(&target.rows(first..first + GATHER_ROWS));
            let mut rows = rows.tile_mut();
            for k in 0..GATHER_ROWS {
                match usize::try_from(indices[first + k]) {
                    Ok(r) => rows.row_mut(k).copy_from_slice(pool.tile().row(r)),
                    Err(_) => rows.row_mut(k).fill(bf16::ZERO),
                }
            }
        });
    Ok(o.submit(task)?.id)
}

fn qk_pv(
    o: &mut Orchestrator<'_>,
    args: &SwaSparseArgs,
    s: &SwaSparseScratch,
    gathered: TaskId,
) -> Result<TaskId, Halted> {
    let (kv, bias, stats) = (s.kv.tensor(), args.bias.clone(), s.stats.tensors());
    let q = args.attn.q.reshape(&[TOKENS * HEADS, HEAD_DIM]);
    let task = Task::new("qk_pv", Unit::Mixed)
        .blocks(TOKENS)
        .input(&args.attn.q)
        .input(&kv)
        .input(&bias);
    let task = stats.written_by(task).after(gathered).run(move |block| {
        let t = block.index();
        let q = block.tile::<bf16>(&q.rows(t * HEADS..(t + 1) * HEADS));
        let rows = block.tile::<bf16>(&kv.rows(t * KEYS..(t + 1) * KEYS));
        let bias = block.read::<f32>(&bias.rows(t..t + 1));
        HeadBatch::new().attend(block, &stats, (t, 0), (q.tile(), rows.tile(), &bias));
    });
    Ok(o.submit(task)?.id)
}
