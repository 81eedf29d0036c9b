//! The key-value half: projection, RMSNorm with gain, rotary lanes.

use half::bf16;
use ring_runtime::{Halted, Orchestrator, Task, TaskId, Unit};

use super::{KV_SPLIT, QkvArgs, QkvScratch, QkvWeights, TOKENS, add_parts, split_product};
use crate::model::{HEAD_DIM, NOPE_DIM, RMS_EPS, ROPE_DIM};
use crate::tile::rotary::{Turn, rotate};
use crate::tile::{cast, math, reduce};

pub(super) fn submit(
    o: &mut Orchestrator<'_>,
    args: &QkvArgs,
    weights: &QkvWeights,
    late: TaskId,
    scratch: &QkvScratch,
) -> Result<(), Halted> {
    let tokens = args.x.dims()[0];
    split_product(
        o,
        "kv_proj_matmul",
        (&args.x, &weights.wkv, &scratch.kv_partials),
        KV_SPLIT,
        Some(late),
    )?;
    add_parts(
        o,
        "kv_proj_reduce",
        (&scratch.kv_partials, &scratch.kv_fp32),
        tokens,
        KV_SPLIT,
    )?;
    rms_norm_rope(o, args, weights, scratch)
}

fn rms_norm_rope(
    o: &mut Orchestrator<'_>,
    args: &QkvArgs,
    weights: &QkvWeights,
    scratch: &QkvScratch,
) -> Result<(), Halted> {
    let (source, gamma, target) = (scratch.kv_fp32.tensor(), weights.gamma_ckv.clone(), args.kv.clone());
    let tables = [args.rope_cos.clone(), args.rope_sin.clone()];
    let task = Task::new("kv_rms_norm_rope", Unit::Vector)
        .blocks(args.x.dims()[0] / TOKENS)
        .input(&source)
        .input(&gamma)
        .input(&args.rope_cos)
        .input(&args.rope_sin)
        .write(&target)
        .run(move |block| {
            let rows = block.index() * TOKENS..(block.index() + 1) * TOKENS;
            let source = block.tile::<f32>(&source.rows(rows.clone()));
            let tables = [0, 1].map(|i| block.tile::<bf16>(&tables[i].rows(rows.clone())));
            let mut target = block.tile_mut::<bf16>(&target.rows(rows));
            let (mut gain, mut row) = (vec![0f32; HEAD_DIM], vec![0f32; HEAD_DIM]);
            cast::widen(&block.read::<bf16>(&gamma), &mut gain);
            let mut angles = [[0f32; ROPE_DIM / 2]; 2];
            for t in 0..TOKENS {
                row.copy_from_slice(source.tile().row(t));
                let mean = reduce::sum_of_squares_chunked(&row, 64) / HEAD_DIM as f32;
                math::scale_mul(&mut row, math::inv_sqrt(mean + RMS_EPS), &gain);
                for (angle, table) in angles.iter_mut().zip(&tables) {
                    cast::widen(&table.tile().row(t)[..ROPE_DIM / 2], angle);
                }
                rotate(&mut row[NOPE_DIM..], &angles[0], &angles[1], Turn::Forward);
                cast::narrow(&row, target.tile_mut().row_mut(t));
            }
        });
    o.submit(task)?;
    Ok(())
}
