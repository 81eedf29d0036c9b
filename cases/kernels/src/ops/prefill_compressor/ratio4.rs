//! Ratio 4: windows overlap, so a row pools eight positions.

use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

use super::{PrefillCompressorArgs, cache_write};
use crate::creates::{Created, Creates};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::RATIO_4;
use crate::model::{MATRIX_ROWS, PREFILL_TOKENS};
use crate::ops::compressor::prefill::{NormRope, Pooling, WriteMap, pool_overlapping, store_state, write_map};
use crate::ops::compressor::{Projection, project};

/// Most windows that a tile completes.
const WRITES: usize = PREFILL_TOKENS / RATIO_4.ratio;

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct Ratio4Scratch {
    kv_proj: Created,
    score_proj: Created,
    pooled: Created,
    normed: Created,
    map: WriteMap,
}

impl Ratio4Scratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let mut create = |name, dtype, rows, cols| creates.tensor(name, dtype, &[rows, cols]);
        Self {
            kv_proj: create("cmp4_kv_proj_scratch", DType::F32, PREFILL_TOKENS, RATIO_4.out()),
            score_proj: create("cmp4_score_proj_scratch", DType::F32, PREFILL_TOKENS, RATIO_4.out()),
            pooled: create("pooled_kv", DType::F32, WRITES, RATIO_4.head),
            normed: create("normed_kv", DType::F32, WRITES, RATIO_4.head),
            map: WriteMap {
                positions: create("write_pos_map", DType::I32, 1, WRITES),
                rows: create("write_dst_map", DType::I32, 1, WRITES),
            },
        }
    }
}

/// Submits six launches and the barrier that callers wait for: pool and state are up to date after it.
pub(crate) fn prefill_compressor_ratio4(
    o: &mut Orchestrator<'_>,
    args: &PrefillCompressorArgs,
    weights: &CompressorWeights,
    s: &Ratio4Scratch,
) -> Result<TaskId, Halted> {
    let projection = Projection {
        name: "prefill_c4_kv_score_proj",
        x: &args.tile.x,
        weights,
        kv: &s.kv_proj,
        score: &s.score_proj,
        columns: 32,
    };
    project(o, &projection, None)?;
    write_map(o, "prefill_c4_write_map", &args.tile, &s.map)?;
    let pooling = Pooling {
        ape: &weights.ape,
        kv: &s.kv_proj,
        score: &s.score_proj,
        map: &s.map,
        pooled: &s.pooled,
        columns: 256,
    };
    let pooled = pool_overlapping(o, "prefill_c4_softmax_pool", &args.tile, &pooling)?;
    rmsnorm_rope(o, args, &weights.norm, s)?;
    let written = cache_write(o, ("prefill_c4_cache_write", MATRIX_ROWS), args, &s.map, &s.normed)?;
    let projected = (&*s.kv_proj, &*s.score_proj);
    let stored = store_state(
        o,
        ("prefill_c4_state_update", 1),
        &args.tile,
        &weights.ape,
        projected,
        Some(pooled),
    )?;
    let barrier = Task::new("prefill_c4_completion", Unit::Scalar)
        .after(written)
        .after(stored);
    Ok(o.submit(barrier.dependency_only())?.id)
}

fn rmsnorm_rope(
    o: &mut Orchestrator<'_>,
    args: &PrefillCompressorArgs,
    norm: &Tensor,
    s: &Ratio4Scratch,
) -> Result<(), Halted> {
    let norm_rope = NormRope::new(&args.tile, norm);
    let (source, target) = (s.pooled.tensor(), s.normed.tensor());
    let (ends, rows) = (s.map.positions.tensor(), s.map.rows.tensor());
    let task = Task::new("prefill_c4_rmsnorm_rope", Unit::Vector)
        .blocks(WRITES / MATRIX_ROWS)
        .input(&source)
        .input(&ends)
        .input(&rows)
        .write(&target);
    let task = norm_rope.declare(task).run(move |block| {
        let (ends, rows) = (block.read::<i32>(&ends), block.read::<i32>(&rows));
        for i in block.index() * MATRIX_ROWS..(block.index() + 1) * MATRIX_ROWS {
            // Rows beyond the live ones hold whatever the ring held: they are worked on, as in the original, and never stored.
            let mut row = block.write::<f32>(&target.rows(i..i + 1));
            row.copy_from_slice(&block.read::<f32>(&source.rows(i..i + 1)));
            norm_rope.apply(block, &mut row, ends[i], rows[i]);
        }
    });
    o.submit(task)?;
    Ok(())
}
