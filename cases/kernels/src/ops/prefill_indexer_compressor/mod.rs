//! Inner compressor of the indexer in prefill: the windows that a tile completes become int8 keys with a scale each.

pub(crate) mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub use case::PrefillIndexerCompressor;

use super::compressor::prefill::{NormRope, Pooling, TileArgs, WriteMap, pool_overlapping, store_state, write_map};
use super::compressor::{Projection, key_rows, project, quantise_key};
use crate::creates::{Created, Creates};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::INDEX;
use crate::model::{INDEX_DIM, MATRIX_ROWS, PREFILL_TOKENS};
use crate::tile::cast;
use crate::tile::gemm::{Rhs, Store, gemm};

/// Most windows that a tile completes.
pub(crate) const WRITES: usize = PREFILL_TOKENS / INDEX.ratio;
/// Columns of a half of the Hadamard product.
const HALF: usize = 64;

/// Arguments of a tile.
#[derive(Clone, Debug)]
pub(crate) struct PrefillIndexerCompressorArgs {
    pub(crate) tile: TileArgs,
    /// Rotation of keys, [128, 128] bf16.
    pub(crate) hadamard: Tensor,
    /// Keys, [pages, 128, 1, 128] i8, the mapped rows are written.
    pub(crate) cache: Tensor,
    /// Scales of the keys, [pages, 128, 1, 1] f32.
    pub(crate) scale: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct PrefillIndexerCompressorScratch {
    kv_proj: Created,
    score_proj: Created,
    pooled: Created,
    normed: Created,
    final_kv: Created,
    map: WriteMap,
}

impl PrefillIndexerCompressorScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let mut create = |name, dtype, rows, cols| creates.tensor(name, dtype, &[rows, cols]);
        Self {
            kv_proj: create("kv_proj_scratch", DType::F32, PREFILL_TOKENS, INDEX.out()),
            score_proj: create("score_proj_scratch", DType::F32, PREFILL_TOKENS, INDEX.out()),
            pooled: create("pooled_kv", DType::F32, WRITES, INDEX_DIM),
            normed: create("normed_kv", DType::Bf16, WRITES, INDEX_DIM),
            final_kv: create("final_kv", DType::F32, WRITES, INDEX_DIM),
            map: WriteMap {
                positions: create("write_pos_map", DType::I32, 1, WRITES),
                rows: create("write_dst_map", DType::I32, 1, WRITES),
            },
        }
    }
}

/// Submits seven launches and the barrier that callers wait for: keys and state are up to date after it.
pub(crate) fn prefill_indexer_compressor(
    o: &mut Orchestrator<'_>,
    args: &PrefillIndexerCompressorArgs,
    weights: &CompressorWeights,
    s: &PrefillIndexerCompressorScratch,
) -> Result<TaskId, Halted> {
    let projection = Projection {
        name: "prefill_idx_c4_kv_score_proj",
        x: &args.tile.x,
        weights,
        kv: &s.kv_proj,
        score: &s.score_proj,
        columns: 64,
    };
    project(o, &projection, None)?;
    write_map(o, "prefill_idx_c4_write_map", &args.tile, &s.map)?;
    let pooling = Pooling {
        ape: &weights.ape,
        kv: &s.kv_proj,
        score: &s.score_proj,
        map: &s.map,
        pooled: &s.pooled,
        columns: 32,
    };
    let pooled = pool_overlapping(o, "prefill_idx_c4_softmax_pool", &args.tile, &pooling)?;
    rmsnorm_rope(o, args, &weights.norm, s)?;
    hadamard(o, &args.hadamard, s)?;
    let written = cache_write(o, args, s)?;
    let stored = store_state(
        o,
        ("prefill_idx_c4_state_update", INDEX.out() / 64),
        &args.tile,
        &weights.ape,
        (&s.kv_proj, &s.score_proj),
        Some(pooled),
    )?;
    let barrier = Task::new("prefill_idx_c4_completion", Unit::Scalar)
        .after(written)
        .after(stored);
    Ok(o.submit(barrier.dependency_only())?.id)
}

/// Rows of a block.
fn rows_of(block: usize) -> std::ops::Range<usize> {
    block * MATRIX_ROWS..(block + 1) * MATRIX_ROWS
}

/// Rows beyond the live ones hold whatever the ring held: they are worked on, as in the original, and never stored.
fn rmsnorm_rope(
    o: &mut Orchestrator<'_>,
    args: &PrefillIndexerCompressorArgs,
    norm: &Tensor,
    s: &PrefillIndexerCompressorScratch,
) -> Result<(), Halted> {
    let norm_rope = NormRope::new(&args.tile, norm);
    let (source, target) = (s.pooled.tensor(), s.normed.tensor());
    let (ends, slots) = (s.map.positions.tensor(), s.map.rows.tensor());
    let task = Task::new("prefill_idx_c4_rmsnorm_rope", Unit::Vector)
        .blocks(WRITES / MATRIX_ROWS)
        .input(&source)
        .input(&ends)
        .input(&slots)
        .write(&target);
    let task = norm_rope.declare(task).run(move |block| {
        let (ends, slots) = (block.read::<i32>(&ends), block.read::<i32>(&slots));
        for i in rows_of(block.index()) {
            let mut row = block.read::<f32>(&source.rows(i..i + 1)).to_vec();
            norm_rope.apply(block, &mut row, ends[i], slots[i]);
            cast::narrow(&row, &mut block.write::<bf16>(&target.rows(i..i + 1)));
        }
    });
    o.submit(task)?;
    Ok(())
}

fn hadamard(o: &mut Orchestrator<'_>, matrix: &Tensor, s: &PrefillIndexerCompressorScratch) -> Result<(), Halted> {
    let (normed, rotation, target) = (s.normed.tensor(), matrix.clone(), s.final_kv.tensor());
    let task = Task::new("prefill_idx_c4_kv_hadamard", Unit::Matrix)
        .blocks(WRITES / MATRIX_ROWS)
        .input(&normed)
        .input(matrix)
        .write(&target)
        .run(move |block| {
            let rows = rows_of(block.index());
            let a = block.tile::<bf16>(&normed.rows(rows.clone()));
            for col0 in (0..INDEX_DIM).step_by(HALF) {
                let b = block.tile::<bf16>(&rotation.view(&[0, col0], &[INDEX_DIM, HALF]));
                let mut c = block.tile_mut::<f32>(&target.view(&[rows.start, col0], &[MATRIX_ROWS, HALF]));
                gemm(a.tile(), Rhs::Kn(b.tile()), &mut c.tile_mut(), Store::Overwrite);
            }
        });
    o.submit(task)?;
    Ok(())
}

fn cache_write(
    o: &mut Orchestrator<'_>,
    args: &PrefillIndexerCompressorArgs,
    s: &PrefillIndexerCompressorScratch,
) -> Result<TaskId, Halted> {
    let (source, slots) = (s.final_kv.tensor(), s.map.rows.tensor());
    let [cache, scale] = [&args.cache, &args.scale].map(key_rows);
    let task = Task::new("prefill_idx_c4_cache_write", Unit::Vector)
        .blocks(WRITES / MATRIX_ROWS)
        .input(&source)
        .input(&slots)
        .inout(&args.cache)
        .inout(&args.scale)
        .run(move |block| {
            let slots = block.read::<i32>(&slots);
            for i in rows_of(block.index()) {
                if let Ok(slot) = usize::try_from(slots[i]) {
                    let row = block.read::<f32>(&source.rows(i..i + 1));
                    quantise_key(block, &row, (&cache, &scale), slot);
                }
            }
        });
    Ok(o.submit(task)?.id)
}

/// Submits the copy of the written keys to `kv` [32, 128] i8 in the order of their writes, zeros for those that were not written.
pub(crate) fn test_extract(
    o: &mut Orchestrator<'_>,
    args: &PrefillIndexerCompressorArgs,
    kv: &Tensor,
    completion: TaskId,
    s: &PrefillIndexerCompressorScratch,
) -> Result<(), Halted> {
    let (target, slots) = (kv.clone(), s.map.rows.tensor());
    let cache = key_rows(&args.cache);
    let task = Task::new("prefill_idx_c4_kv_test_extract", Unit::Vector)
        .blocks(WRITES / MATRIX_ROWS)
        .input(&args.cache)
        .input(&slots)
        .write(kv)
        .after(completion)
        .run(move |block| {
            let slots = block.read::<i32>(&slots);
            for i in rows_of(block.index()) {
                let mut row = block.write::<i8>(&target.rows(i..i + 1));
                match usize::try_from(slots[i]) {
                    Ok(slot) => row.copy_from_slice(&block.read::<i8>(&cache.rows(slot..slot + 1))),
                    Err(_) => row.fill(0),
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
