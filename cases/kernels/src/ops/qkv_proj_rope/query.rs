//! The query half: down projection, RMSNorm and int8 quantisation, up projection, per-head RMSNorm, rotary lanes.

use half::bf16;
use ring_runtime::{Halted, Orchestrator, Task, Unit};

use super::{Q_SPLIT, QkvArgs, QkvScratch, QkvWeights, TOKENS, UP, add_parts, split_product};
use crate::creates::Created;
use crate::model::{HEAD_DIM, HEADS, NOPE_DIM, Q_LORA, RMS_EPS, ROPE_DIM};
use crate::tile::cast::RowScale;
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math, reduce};

/// Columns of a tile of the up projection.
const UP_TILE: usize = 1024;
/// Tiles of a block.
const UP_TILES: usize = 4;
/// Heads of a dequantising block.
const BLOCK_HEADS: usize = 4;

pub(super) fn submit(
    o: &mut Orchestrator<'_>,
    args: &QkvArgs,
    weights: &QkvWeights,
    scratch: &QkvScratch,
) -> Result<(), Halted> {
    let tokens = args.x.dims()[0];
    rope_prepare(o, args, scratch)?;
    split_product(
        o,
        "qr_proj_matmul",
        (&args.x, &weights.wq_a, &scratch.qr_partials),
        Q_SPLIT,
        None,
    )?;
    add_parts(
        o,
        "qr_proj_reduce",
        (&scratch.qr_partials, &scratch.qr_fp32),
        tokens,
        Q_SPLIT,
    )?;
    rms_norm_quant(o, args, weights, scratch)?;
    up_projection(o, tokens, weights, scratch)?;
    dequant_rms_nope_rope(o, args, weights, scratch)
}

/// Spreads the 32 cosines and sines of a token over its 64 lanes, with the sign of each lane's partner term.
fn rope_prepare(o: &mut Orchestrator<'_>, args: &QkvArgs, scratch: &QkvScratch) -> Result<(), Halted> {
    let (cos, sin) = (args.rope_cos.clone(), args.rope_sin.clone());
    let [cos_il, sin_signed, swap_idx] = [&scratch.cos_il, &scratch.sin_signed, &scratch.swap_idx].map(Created::tensor);
    let task = Task::new("q_rope_prepare", Unit::Vector)
        .blocks(args.x.dims()[0] / TOKENS)
        .input(&cos)
        .input(&sin)
        .write(&cos_il)
        .write(&sin_signed)
        .write(&swap_idx)
        .run(move |block| {
            let rows = block.index() * TOKENS..(block.index() + 1) * TOKENS;
            let (cos, sin) = (
                block.read::<bf16>(&cos.rows(rows.clone())),
                block.read::<bf16>(&sin.rows(rows.clone())),
            );
            let mut cos_il = block.write::<f32>(&cos_il.rows(rows.clone()));
            let mut sin_signed = block.write::<f32>(&sin_signed.rows(rows.clone()));
            let mut swap_idx = block.write::<i32>(&swap_idx.rows(rows));
            for i in 0..TOKENS * ROPE_DIM {
                let (t, j) = (i / ROPE_DIM, i % ROPE_DIM);
                let pair = t * ROPE_DIM + j / 2;
                cos_il[i] = cos[pair].to_f32();
                sin_signed[i] = if j % 2 == 0 {
                    -sin[pair].to_f32()
                } else {
                    sin[pair].to_f32()
                };
                swap_idx[i] = (j ^ 1) as i32;
            }
        });
    o.submit(task)?;
    Ok(())
}

fn rms_norm_quant(
    o: &mut Orchestrator<'_>,
    args: &QkvArgs,
    weights: &QkvWeights,
    scratch: &QkvScratch,
) -> Result<(), Halted> {
    let (source, gamma) = (scratch.qr_fp32.tensor(), weights.gamma_cq.clone());
    let (qr, qr_scale, copy) = (args.qr.clone(), args.qr_scale.clone(), scratch.qr_i8.tensor());
    let task = Task::new("qr_rms_norm_quant", Unit::Vector)
        .blocks(args.x.dims()[0] / TOKENS)
        .input(&source)
        .input(&gamma)
        .write(&qr)
        .write(&qr_scale)
        .write(&copy)
        .run(move |block| {
            let rows = block.index() * TOKENS..(block.index() + 1) * TOKENS;
            let source = block.tile::<f32>(&source.rows(rows.clone()));
            let mut gain = vec![0f32; Q_LORA];
            cast::widen(&block.read::<bf16>(&gamma), &mut gain);
            let mut qr = block.tile_mut::<i8>(&qr.rows(rows.clone()));
            let mut copy = block.tile_mut::<i8>(&copy.rows(rows.clone()));
            let mut scales = block.write::<f32>(&qr_scale.rows(rows));
            let mut row = vec![0f32; Q_LORA];
            for t in 0..TOKENS {
                row.copy_from_slice(source.tile().row(t));
                let inv = math::inv_sqrt(reduce::sum_of_squares_chunked(&row, 256) / Q_LORA as f32 + RMS_EPS);
                let scale = RowScale::of_amax(inv * reduce::amax_of_products(&row, &gain));
                math::scale_mul(&mut row, inv, &gain);
                cast::quantise_row(&row, scale.quant, qr.tile_mut().row_mut(t));
                copy.tile_mut().row_mut(t).copy_from_slice(qr.tile().row(t));
                scales[t] = scale.dequant;
            }
        });
    o.submit(task)?;
    Ok(())
}

fn up_projection(
    o: &mut Orchestrator<'_>,
    tokens: usize,
    weights: &QkvWeights,
    scratch: &QkvScratch,
) -> Result<(), Halted> {
    let (source, w, target) = (
        scratch.qr_i8.tensor(),
        weights.wq_b.codes.clone(),
        scratch.q_proj.tensor(),
    );
    let task = Task::new("qproj_matmul", Unit::Matrix)
        .blocks(UP / (UP_TILE * UP_TILES))
        .input(&source)
        .input(&w)
        .write(&target)
        .run(move |block| {
            let a = block.tile::<i8>(&source.rows(0..tokens));
            for tile in 0..UP_TILES {
                let col0 = (block.index() * UP_TILES + tile) * UP_TILE;
                let b = block.tile::<i8>(&w.view(&[0, col0], &[Q_LORA, UP_TILE]));
                let mut c = block.tile_mut::<i32>(&target.view(&[0, col0], &[tokens, UP_TILE]));
                gemm(a.tile(), Rhs::Kn(b.tile()), &mut c.tile_mut(), Store::Overwrite);
            }
        });
    o.submit(task)?;
    Ok(())
}

fn dequant_rms_nope_rope(
    o: &mut Orchestrator<'_>,
    args: &QkvArgs,
    weights: &QkvWeights,
    scratch: &QkvScratch,
) -> Result<(), Halted> {
    let tokens = args.x.dims()[0];
    let [source, cos_il, sin_signed, swap_idx] =
        [&scratch.q_proj, &scratch.cos_il, &scratch.sin_signed, &scratch.swap_idx].map(Created::tensor);
    let (row_scale, col_scale) = (args.qr_scale.clone(), weights.wq_b.scales.clone());
    let target = args.q.reshape(&[tokens, UP]);
    let width = BLOCK_HEADS * HEAD_DIM;
    let task = Task::new("qproj_dequant_rms_nope_rope", Unit::Vector)
        .blocks(HEADS / BLOCK_HEADS)
        .input(&source)
        .input(&row_scale)
        .input(&col_scale)
        .input(&cos_il)
        .input(&sin_signed)
        .input(&swap_idx)
        .write(&args.q)
        .run(move |block| {
            let col0 = block.index() * width;
            let (row_scale, col_scale) = (block.read::<f32>(&row_scale), block.read::<f32>(&col_scale));
            let tables = [&cos_il, &sin_signed].map(|t| block.tile::<f32>(t));
            let swap = block.tile::<i32>(&swap_idx);
            let (mut head, mut turned) = (vec![0f32; HEAD_DIM], [0f32; ROPE_DIM]);
            for first in (0..tokens).step_by(TOKENS) {
                let acc = block.tile::<i32>(&source.view(&[first, col0], &[TOKENS, width]));
                let mut out = block.tile_mut::<bf16>(&target.view(&[first, col0], &[TOKENS, width]));
                for t in 0..TOKENS {
                    let [cos, sin] = [0, 1].map(|i| tables[i].tile().row(first + t));
                    let swap = swap.tile().row(first + t);
                    for h in (0..width).step_by(HEAD_DIM) {
                        let acc = &acc.tile().row(t)[h..h + HEAD_DIM];
                        let scale = &col_scale[col0 + h..col0 + h + HEAD_DIM];
                        cast::dequantise(acc, row_scale[first + t], scale, &mut head);
                        let mean = reduce::sum_of_squares(&head) / HEAD_DIM as f32;
                        math::scale(&mut head, math::inv_sqrt(mean + RMS_EPS));
                        let mut out = out.tile_mut();
                        let (nope, rope) = out.row_mut(t)[h..h + HEAD_DIM].split_at_mut(NOPE_DIM);
                        cast::narrow(&head[..NOPE_DIM], nope);
                        let lanes = &head[NOPE_DIM..];
                        for j in 0..ROPE_DIM {
                            turned[j] = lanes[j] * cos[j] + lanes[swap[j] as usize] * sin[j];
                        }
                        cast::narrow(&turned, rope);
                    }
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
