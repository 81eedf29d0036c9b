//! Attention of a decode step over the sliding window and up to 1024 compressed rows that an index chose, with its output projection.

pub(crate) mod case;
mod plan;

use half::bf16;
use ring_runtime::{Block, DType, Halted, Orchestrator, Task, TaskId, Tensor, Tile, Unit};

pub use case::DecodeSparseAttn;

use super::decode_attend::{
    BlockStats, Cut, DecodeArgs, Dequant, HEAD_TILES, HeadBatch, KEYS, ProjectionScratch, RopeLanes, TOKENS,
    compressed_row, matrix, merge_tile, pool_rows, project, rope_cs,
};
use super::prefill_sparse_attn::OutWeights;
use crate::creates::{Created, Creates};
use crate::model::{GROUP_DIM, HEAD_DIM, HEADS, INDEX_TOPK, O_GROUPS, STEP_TOKENS};
use crate::scopes::BodyScopes;

/// Blocks of a token: the window, and eight of the compressed rows.
const BLOCKS: usize = 1 + INDEX_TOPK / KEYS;
/// Columns of a token.
const COLUMNS: usize = BLOCKS * KEYS;
/// Blocks of all tokens.
const ITEMS: usize = TOKENS * BLOCKS;
/// Blocks of the attention launch, each of which takes every 24th item of the plan.
const LANES: usize = 24;
/// Tokens of a compressed row.
const RATIO: usize = 4;

/// How the projection is cut.
const CUT: Cut = Cut {
    bundle: 2,
    down_columns: 256,
    up_columns: 1792,
    clear_padding: false,
    dequant: Dequant::Reciprocal,
};

/// Arguments.
#[derive(Clone, Debug)]
pub(crate) struct CsaSparseArgs {
    pub(crate) attn: DecodeArgs,
    /// Physical rows of each window, [8, 128] i32, −1 for none.
    pub(crate) window_indices: Tensor,
    /// Compressed pool, [32, 128, 1, 512] bf16.
    pub(crate) cmp_kv: Tensor,
    /// Pages of each request, [4, 32] i32.
    pub(crate) cmp_block_table: Tensor,
    /// Logical compressed rows, [8, 4096] i32, −1 for none; the first 1024 columns count.
    pub(crate) idx_topk: Tensor,
    /// Positions, 8 i32: only rows that are complete at a token's position count.
    pub(crate) position_ids: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct CsaSparseScratch {
    bias: Created,
    packed: Created,
    stats: BlockStats,
    plan: plan::PlanScratch,
    lanes: RopeLanes,
    projection: ProjectionScratch,
}

impl CsaSparseScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        Self {
            bias: matrix(creates, "sparse_bias", DType::F32, TOKENS, COLUMNS),
            packed: matrix(creates, "o_packed", DType::Bf16, O_GROUPS * TOKENS, GROUP_DIM),
            stats: BlockStats::declare(creates, BLOCKS),
            plan: plan::PlanScratch::declare(creates),
            lanes: RopeLanes::declare(creates, Some(("rope_swap_idx_m", [1, 1024]))),
            projection: ProjectionScratch::declare(creates),
        }
    }
}

/// Submits the five launches here, eight merging ones in the bodies of a loop and, in a manual scope, the 24 tasks of the output projection.
pub(crate) fn decode_sparse_attn(
    o: &mut Orchestrator<'_>,
    args: &CsaSparseArgs,
    weights: &OutWeights,
    s: &CsaSparseScratch,
    bodies: BodyScopes,
) -> Result<(), Halted> {
    kv_touch(o, &args.attn.ori_kv)?;
    let planned = plan::submit(o, args, &s.bias, &s.plan)?;
    qk_pv(o, args, s, planned)?;
    rope_cs(o, &args.attn, &s.lanes, 1)?;
    let stats = s.stats.tensors();
    let merge = |tile| bodies.body(o, |o| merge_tile(o, &args.attn, &stats, &s.lanes, &s.packed, tile));
    let merged = (0..HEAD_TILES).map(merge).collect::<Result<Vec<_>, _>>()?;
    project(
        o,
        CUT,
        weights,
        &s.projection,
        (&s.packed, &merged),
        &args.attn.attn_out,
    )
}

/// Copies rows 0..8 of the pool onto themselves: a later write of the pool has to wait for its readers.
fn kv_touch(o: &mut Orchestrator<'_>, pool: &Tensor) -> Result<(), Halted> {
    let rows = pool_rows(pool).rows(0..TOKENS);
    let task = Task::new("kv_touch", Unit::Vector).inout(pool).run(move |block| {
        let copy = block.read::<bf16>(&rows).to_vec();
        block.write::<bf16>(&rows).copy_from_slice(&copy);
    });
    o.submit(task)?;
    Ok(())
}

/// What an attention lane reads.
#[derive(Clone, Debug)]
struct Pools {
    ori: Tensor,
    cmp: Tensor,
    window: Tensor,
    compressed: Tensor,
    tables: Tensor,
}

impl Pools {
    /// Copies the rows of block `b` of token `t`; a column without one gets row 0 of the original pool, which its bias removes.
    fn gather(&self, block: &Block<'_>, t: usize, b: usize, rows: &mut [bf16]) {
        let list = match b.checked_sub(1) {
            None => block.read::<i32>(&self.window.rows(t..t + 1)),
            Some(c) => block.read::<i32>(&self.compressed.view(&[t, c * KEYS], &[1, KEYS])),
        };
        let request = t / STEP_TOKENS;
        let table = block.read::<i32>(&self.tables.rows(request..request + 1));
        let (ori, cmp) = (block.tile::<bf16>(&self.ori), block.tile::<bf16>(&self.cmp));
        for (row, index) in rows.chunks_mut(HEAD_DIM).zip(&*list) {
            row.copy_from_slice(match usize::try_from(*index) {
                Err(_) => ori.tile().row(0),
                Ok(r) if b == 0 => ori.tile().row(r),
                Ok(c) => cmp.tile().row(compressed_row(&table, c)),
            });
        }
    }
}

fn qk_pv(o: &mut Orchestrator<'_>, args: &CsaSparseArgs, s: &CsaSparseScratch, planned: TaskId) -> Result<(), Halted> {
    let pools = Pools {
        ori: pool_rows(&args.attn.ori_kv),
        cmp: pool_rows(&args.cmp_kv),
        window: args.window_indices.clone(),
        compressed: s.plan.slots.tensor(),
        tables: args.cmp_block_table.clone(),
    };
    let [bias, live, order] = [&s.bias, &s.plan.live, &s.plan.order].map(Created::tensor);
    let stats = s.stats.tensors();
    let q = args.attn.q.reshape(&[TOKENS * HEADS, HEAD_DIM]);
    let task = Task::new("qk_pv", Unit::Mixed)
        .blocks(LANES)
        .input(&args.attn.q)
        .input(&args.attn.ori_kv)
        .input(&args.cmp_kv)
        .input(&args.cmp_block_table)
        .input(&args.window_indices)
        .input(&pools.compressed)
        .input(&bias)
        .input(&live)
        .input(&order);
    let task = stats.written_by(task).after(planned).run(move |block| {
        let (order, live) = (block.read::<i32>(&order), block.read::<i32>(&live));
        let (mut batch, mut rows) = (HeadBatch::new(), vec![bf16::ZERO; KEYS * HEAD_DIM]);
        for item in order.iter().skip(block.index()).step_by(LANES) {
            let (t, b) = (*item as usize / BLOCKS, *item as usize % BLOCKS);
            if live[*item as usize] == 0 {
                stats.skip(block, t, b);
                continue;
            }
            pools.gather(block, t, b, &mut rows);
            let q = block.tile::<bf16>(&q.rows(t * HEADS..(t + 1) * HEADS));
            let bias = block.read::<f32>(&bias.view(&[t, b * KEYS], &[1, KEYS]));
            let rows = Tile::new(&rows, KEYS, HEAD_DIM);
            batch.attend(block, &stats, (t, b), (q.tile(), rows, &bias));
        }
    });
    o.submit(task)?;
    Ok(())
}
