//! Queries of the indexer: projection, turn, Hadamard rotation and quantisation, and the weight of each head.

use half::bf16;
use ring_runtime::{Halted, Orchestrator, Task, TaskId, Tensor, Unit};

use super::{DecodeIndexerArgs, DecodeIndexerScratch, IndexerWeights, QUERY, ROWS, SPLIT};
use crate::creates::Created;
use crate::model::{DECODE_TOKENS, HIDDEN, INDEX_DIM, INDEX_HEADS, MATRIX_ROWS, Q_LORA, REQUESTS, ROPE_DIM};
use crate::ops::decode_indexer_compressor::rope_tables;
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math};

/// 128^−½ · 64^−½.
pub(crate) const WEIGHT_SCALE: f32 = 0.011_048_543;
/// Query rows that a block turns.
pub(super) const ROPE_ROWS: usize = 32;
/// Query rows that a block rotates or quantises.
const HADAMARD_ROWS: usize = 64;
/// Columns of a block of the projection.
const PROJ_COLUMNS: usize = 1024;
/// Columns of a tile of it.
const PROJ_TILE: usize = 512;
/// Lanes of a head that are not turned.
const NOPE: usize = INDEX_DIM - ROPE_DIM;
/// Query rows of a request.
const REQUEST_ROWS: usize = ROWS / REQUESTS;

pub(super) fn submit(
    o: &mut Orchestrator<'_>,
    args: &DecodeIndexerArgs,
    weights: &IndexerWeights,
    late: TaskId,
    s: &DecodeIndexerScratch,
) -> Result<(), Halted> {
    proj_matmul(o, args, weights, s)?;
    proj_dequant(o, args, weights, s)?;
    let step = &args.inner.step;
    rope_tables(
        o,
        "qr_rope_tables",
        (&step.cos, &step.sin),
        (&s.cos_il, &s.sin_signed, &s.swap),
    )?;
    rope(o, s)?;
    hadamard_matmul(o, &args.inner.hadamard, s)?;
    hadamard_quant(o, s)?;
    weights_proj(o, &step.x, &weights.weights_proj, late, s)?;
    weights_reduce(o, s)
}

fn proj_matmul(
    o: &mut Orchestrator<'_>,
    args: &DecodeIndexerArgs,
    weights: &IndexerWeights,
    s: &DecodeIndexerScratch,
) -> Result<(), Halted> {
    let (source, w, target) = (args.qr.clone(), weights.wq_b.codes.clone(), s.qr_acc.tensor());
    let task = Task::new("idx_qr_proj_matmul", Unit::Matrix)
        .blocks(QUERY / PROJ_COLUMNS)
        .input(&source)
        .input(&w)
        .write(&target)
        .run(move |block| {
            let a = block.tile::<i8>(&source);
            for tile in 0..PROJ_COLUMNS / PROJ_TILE {
                let col0 = block.index() * PROJ_COLUMNS + tile * PROJ_TILE;
                let b = block.tile::<i8>(&w.view(&[0, col0], &[Q_LORA, PROJ_TILE]));
                let mut c = block.tile_mut::<i32>(&target.view(&[0, col0], &[MATRIX_ROWS, PROJ_TILE]));
                let mut c = c.tile_mut();
                c.sub_mut(DECODE_TOKENS..MATRIX_ROWS, 0..PROJ_TILE).fill(0);
                gemm(
                    a.tile(),
                    Rhs::Kn(b.tile()),
                    &mut c.sub_mut(0..DECODE_TOKENS, 0..PROJ_TILE),
                    Store::Overwrite,
                );
            }
        });
    o.submit(task)?;
    Ok(())
}

fn proj_dequant(
    o: &mut Orchestrator<'_>,
    args: &DecodeIndexerArgs,
    weights: &IndexerWeights,
    s: &DecodeIndexerScratch,
) -> Result<(), Halted> {
    let [source, target] = [&s.qr_acc, &s.qr_proj].map(Created::tensor);
    let (row_scale, col_scale) = (args.qr_scale.clone(), weights.wq_b.scales.clone());
    let task = Task::new("idx_qr_proj_dequant", Unit::Vector)
        .blocks(QUERY / PROJ_COLUMNS)
        .input(&source)
        .input(&row_scale)
        .input(&col_scale)
        .write(&target)
        .run(move |block| {
            let col0 = block.index() * PROJ_COLUMNS;
            let window = [DECODE_TOKENS, PROJ_COLUMNS];
            let acc = block.tile::<i32>(&source.view(&[0, col0], &window));
            let (row_scale, col_scale) = (block.read::<f32>(&row_scale), block.read::<f32>(&col_scale));
            let mut out = block.tile_mut::<f32>(&target.view(&[0, col0], &window));
            for t in 0..DECODE_TOKENS {
                let scale = &col_scale[col0..col0 + PROJ_COLUMNS];
                cast::dequantise(acc.tile().row(t), row_scale[t], scale, out.tile_mut().row_mut(t));
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Both tokens of a request are turned by the angles of its first.
fn rope(o: &mut Orchestrator<'_>, s: &DecodeIndexerScratch) -> Result<(), Halted> {
    let [source, cos_il, sin_signed, swap, target] =
        [&s.qr_proj, &s.cos_il, &s.sin_signed, &s.swap, &s.qr_bf16].map(Created::tensor);
    let rows = source.reshape(&[ROWS, INDEX_DIM]);
    let task = Task::new("qr_rope", Unit::Vector)
        .blocks(ROWS / ROPE_ROWS)
        .input(&source)
        .input(&cos_il)
        .input(&sin_signed)
        .input(&swap)
        .write(&target)
        .run(move |block| {
            let row0 = block.index() * ROPE_ROWS;
            let source = block.tile::<f32>(&rows.rows(row0..row0 + ROPE_ROWS));
            let tables = [&cos_il, &sin_signed].map(|t| block.tile::<f32>(t));
            let [cos, sin] = [0, 1].map(|i| tables[i].tile().row(row0 / REQUEST_ROWS));
            let swap = block.read::<i32>(&swap);
            let mut target = block.tile_mut::<bf16>(&target.rows(row0..row0 + ROPE_ROWS));
            let mut turned = [0f32; ROPE_DIM];
            for r in 0..ROPE_ROWS {
                let (nope, lanes) = source.tile().row(r).split_at(NOPE);
                for (j, turned) in turned.iter_mut().enumerate() {
                    *turned = lanes[j] * cos[j] + lanes[swap[j] as usize] * sin[j];
                }
                let mut target = target.tile_mut();
                let (to_nope, to_rope) = target.row_mut(r).split_at_mut(NOPE);
                cast::narrow(nope, to_nope);
                cast::narrow(&turned, to_rope);
            }
        });
    o.submit(task)?;
    Ok(())
}

fn hadamard_matmul(o: &mut Orchestrator<'_>, matrix: &Tensor, s: &DecodeIndexerScratch) -> Result<(), Halted> {
    let [source, target] = [&s.qr_bf16, &s.qh_acc].map(Created::tensor);
    let rotation = matrix.clone();
    let task = Task::new("qr_hadamard_matmul", Unit::Matrix)
        .blocks(ROWS / HADAMARD_ROWS)
        .input(&source)
        .input(matrix)
        .write(&target)
        .run(move |block| {
            let rows = block.index() * HADAMARD_ROWS..(block.index() + 1) * HADAMARD_ROWS;
            let a = block.tile::<bf16>(&source.rows(rows.clone()));
            let b = block.tile::<bf16>(&rotation);
            let mut c = block.tile_mut::<f32>(&target.rows(rows));
            gemm(a.tile(), Rhs::Kn(b.tile()), &mut c.tile_mut(), Store::Overwrite);
        });
    o.submit(task)?;
    Ok(())
}

fn hadamard_quant(o: &mut Orchestrator<'_>, s: &DecodeIndexerScratch) -> Result<(), Halted> {
    let [source, codes, scales] = [&s.qh_acc, &s.query, &s.query_scale].map(Created::tensor);
    let task = Task::new("qr_hadamard_quant", Unit::Vector)
        .blocks(ROWS / HADAMARD_ROWS)
        .input(&source)
        .write(&codes)
        .write(&scales)
        .run(move |block| {
            let rows = block.index() * HADAMARD_ROWS..(block.index() + 1) * HADAMARD_ROWS;
            let source = block.tile::<f32>(&source.rows(rows.clone()));
            let mut codes = block.tile_mut::<i8>(&codes.rows(rows.clone()));
            let mut scales = block.write::<f32>(&scales.rows(rows));
            for (r, scale) in scales.iter_mut().enumerate() {
                *scale = cast::quantise_row_amax(source.tile().row(r), codes.tile_mut().row_mut(r)).dequant;
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Partial `i` of token `t` is in row `16·i + t`; the other rows are zero.
fn weights_proj(
    o: &mut Orchestrator<'_>,
    x: &Tensor,
    weight: &Tensor,
    late: TaskId,
    s: &DecodeIndexerScratch,
) -> Result<(), Halted> {
    let (source, w, target) = (
        x.reshape(&[DECODE_TOKENS, HIDDEN]),
        weight.clone(),
        s.weights_partial.tensor(),
    );
    let depth = HIDDEN / SPLIT;
    let task = Task::new("weights_proj", Unit::Matrix)
        .blocks(SPLIT)
        .input(x)
        .input(weight)
        .write(&target)
        .after(late)
        .run(move |block| {
            let split = block.index();
            let a = block.tile::<bf16>(&source.view(&[0, split * depth], &[DECODE_TOKENS, depth]));
            let b = block.tile::<bf16>(&w.rows(split * depth..(split + 1) * depth));
            let mut c = block.tile_mut::<f32>(&target.rows(split * MATRIX_ROWS..(split + 1) * MATRIX_ROWS));
            let mut c = c.tile_mut();
            c.sub_mut(DECODE_TOKENS..MATRIX_ROWS, 0..INDEX_HEADS).fill(0.0);
            gemm(
                a.tile(),
                Rhs::Kn(b.tile()),
                &mut c.sub_mut(0..DECODE_TOKENS, 0..INDEX_HEADS),
                Store::Overwrite,
            );
        });
    o.submit(task)?;
    Ok(())
}

fn weights_reduce(o: &mut Orchestrator<'_>, s: &DecodeIndexerScratch) -> Result<(), Halted> {
    let [source, target] = [&s.weights_partial, &s.weights].map(Created::tensor);
    let task = Task::new("weights_proj_reduce", Unit::Vector)
        .input(&source)
        .write(&target)
        .run(move |block| {
            let source = block.read::<f32>(&source);
            let mut target = block.write::<f32>(&target);
            let mut parts = source.chunks(target.len());
            target.copy_from_slice(parts.next().expect("a weight has parts"));
            parts.for_each(|part| math::add(&mut target, part));
            math::scale(&mut target, WEIGHT_SCALE);
        });
    o.submit(task)?;
    Ok(())
}
