//! Ratio 128: windows don't overlap, and a tile completes one at most.

use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::{PrefillCompressorArgs, cache_write};
use crate::creates::{Created, Creates};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::RATIO_128;
use crate::model::PREFILL_TOKENS;
use crate::ops::compressor::prefill::{NormRope, WriteMap, pool_whole, store_state, write_map};
use crate::ops::compressor::{Projection, project};

/// Rows of the padded buffers, of which the first is used.
const PAD: usize = 8;

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct Ratio128Scratch {
    kv_proj: Created,
    score_proj: Created,
    pooled: Created,
    normed: Created,
    map: WriteMap,
}

impl Ratio128Scratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let mut create = |name, dtype, rows, cols| creates.tensor(name, dtype, &[rows, cols]);
        Self {
            kv_proj: create("kv_proj_scratch", DType::F32, PREFILL_TOKENS, RATIO_128.out()),
            score_proj: create("score_proj_scratch", DType::F32, PREFILL_TOKENS, RATIO_128.out()),
            pooled: create("pooled_kv_pad", DType::F32, PAD, RATIO_128.head),
            normed: create("normed_kv_pad", DType::F32, PAD, RATIO_128.head),
            map: WriteMap {
                positions: create("write_pos_map", DType::I32, 1, PAD),
                rows: create("write_dst_map", DType::I32, 1, PAD),
            },
        }
    }
}

/// Submits the seven launches.
pub(crate) fn prefill_compressor_ratio128(
    o: &mut Orchestrator<'_>,
    args: &PrefillCompressorArgs,
    weights: &CompressorWeights,
    s: &Ratio128Scratch,
) -> Result<(), Halted> {
    norm_pad_init(o, s)?;
    let projection = Projection {
        name: "prefill_hca_c128_kv_score_proj",
        x: &args.tile.x,
        weights,
        kv: &s.kv_proj,
        score: &s.score_proj,
        columns: 32,
    };
    project(o, &projection, None)?;
    write_map(o, "prefill_hca_c128_write_map", &args.tile, &s.map)?;
    let projected = (&*s.kv_proj, &*s.score_proj);
    store_state(
        o,
        ("prefill_hca_c128_state_scatter_pre", 1),
        &args.tile,
        &weights.ape,
        projected,
        None,
    )?;
    pool_whole(o, "prefill_hca_c128_softmax_pool", &args.tile, &s.map, &s.pooled, 64)?;
    rmsnorm_rope(o, args, &weights.norm, s)?;
    cache_write(o, ("prefill_hca_c128_kv_finalize", PAD), args, &s.map, &s.normed)?;
    Ok(())
}

fn norm_pad_init(o: &mut Orchestrator<'_>, s: &Ratio128Scratch) -> Result<(), Halted> {
    let targets = [s.pooled.tensor(), s.normed.tensor()];
    let task = Task::new("prefill_hca_c128_norm_pad_init", Unit::Vector)
        .write(&targets[0])
        .write(&targets[1])
        .run(move |block| targets.iter().for_each(|t| block.write::<f32>(t).fill(0.0)));
    o.submit(task)?;
    Ok(())
}

fn rmsnorm_rope(
    o: &mut Orchestrator<'_>,
    args: &PrefillCompressorArgs,
    norm: &Tensor,
    s: &Ratio128Scratch,
) -> Result<(), Halted> {
    let norm_rope = NormRope::new(&args.tile, norm);
    let (source, target) = (s.pooled.tensor(), s.normed.tensor());
    let (ends, rows) = (s.map.positions.tensor(), s.map.rows.tensor());
    let task = Task::new("prefill_hca_c128_rmsnorm_rope", Unit::Vector)
        .input(&source)
        .input(&ends)
        .input(&rows)
        .inout(&target);
    let task = norm_rope.declare(task).run(move |block| {
        let (ends, rows) = (block.read::<i32>(&ends), block.read::<i32>(&rows));
        for i in 0..PAD {
            let mut row = block.write::<f32>(&target.rows(i..i + 1));
            row.copy_from_slice(&block.read::<f32>(&source.rows(i..i + 1)));
            // Entries of the map beyond the first are not consumed.
            let slot = if i == 0 { rows[0] } else { -1 };
            norm_rope.apply(block, &mut row, ends[i], slot);
        }
    });
    o.submit(task)?;
    Ok(())
}
