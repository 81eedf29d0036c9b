//! Queries of the indexer: projection, turn, Hadamard rotation and quantisation, and the weight of each head.

use half::bf16;
use ring_runtime::{Halted, Orchestrator, Task, Unit};

use super::{NOPE, PrefillIndexerArgs, PrefillIndexerScratch, ROWS};
use crate::creates::Created;
use crate::model::{HIDDEN, INDEX_DIM, INDEX_HEADS, PREFILL_TOKENS, Q_LORA, ROPE_DIM};
use crate::ops::decode_indexer::{IndexerWeights, QUERY, WEIGHT_SCALE};
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::rotary::{Turn, rotate};
use crate::tile::{cast, math};

/// Columns of a block of the projection.
const PROJ_COLUMNS: usize = 256;
/// Query rows that a block rotates.
const HADAMARD_ROWS: usize = 256;
/// The same, at a time.
const HADAMARD_TILE: usize = 64;
/// Tokens of a block of head weights.
const WEIGHT_TOKENS: usize = 32;

pub(super) fn submit(
    o: &mut Orchestrator<'_>,
    args: &PrefillIndexerArgs,
    weights: &IndexerWeights,
    s: &PrefillIndexerScratch,
) -> Result<(), Halted> {
    proj(o, args, weights, s)?;
    rope(o, args, s)?;
    hadamard_quant(o, args, s)?;
    weights_proj(o, args, weights, s)
}

fn proj(
    o: &mut Orchestrator<'_>,
    args: &PrefillIndexerArgs,
    weights: &IndexerWeights,
    s: &PrefillIndexerScratch,
) -> Result<(), Halted> {
    let (source, row_scale, target) = (args.qr.clone(), args.qr_scale.clone(), s.qr_proj.tensor());
    let (w, col_scale) = (weights.wq_b.codes.clone(), weights.wq_b.scales.clone());
    let task = Task::new("prefill_idx_qr_proj", Unit::Mixed)
        .blocks(QUERY / PROJ_COLUMNS)
        .input(&source)
        .input(&row_scale)
        .input(&w)
        .input(&col_scale)
        .write(&target)
        .run(move |block| {
            let col0 = block.index() * PROJ_COLUMNS;
            let a = block.tile::<i8>(&source);
            let b = block.tile::<i8>(&w.view(&[0, col0], &[Q_LORA, PROJ_COLUMNS]));
            let mut acc = vec![0i32; PREFILL_TOKENS * PROJ_COLUMNS];
            gemm(
                a.tile(),
                Rhs::Kn(b.tile()),
                &mut ring_runtime::TileMut::new(&mut acc, PREFILL_TOKENS, PROJ_COLUMNS),
                Store::Overwrite,
            );
            let (row_scale, col_scale) = (block.read::<f32>(&row_scale), block.read::<f32>(&col_scale));
            let scale = &col_scale[col0..col0 + PROJ_COLUMNS];
            let mut out = block.tile_mut::<f32>(&target.view(&[0, col0], &[PREFILL_TOKENS, PROJ_COLUMNS]));
            for (t, acc) in acc.chunks(PROJ_COLUMNS).enumerate() {
                cast::dequantise(acc, row_scale[t], scale, out.tile_mut().row_mut(t));
            }
        });
    o.submit(task)?;
    Ok(())
}

/// The turned lanes of every head, rounded; the others are rounded where they are used.
fn rope(o: &mut Orchestrator<'_>, args: &PrefillIndexerArgs, s: &PrefillIndexerScratch) -> Result<(), Halted> {
    let [source, target] = [&s.qr_proj, &s.rope_out].map(Created::tensor);
    let rows = source.reshape(&[ROWS, INDEX_DIM]);
    let (cos, sin) = (args.cos.clone(), args.sin.clone());
    let task = Task::new("prefill_idx_qr_rope", Unit::Vector)
        .blocks(PREFILL_TOKENS)
        .input(&source)
        .input(&cos)
        .input(&sin)
        .write(&target)
        .run(move |block| {
            let t = block.index();
            let [cos, sin] = [&cos, &sin].map(|table| block.read::<f32>(&table.rows(t..t + 1)));
            let source = block.tile::<f32>(&rows.view(&[t * INDEX_HEADS, NOPE], &[INDEX_HEADS, ROPE_DIM]));
            let mut target = block.tile_mut::<bf16>(&target.rows(t * INDEX_HEADS..(t + 1) * INDEX_HEADS));
            let mut lanes = [0f32; ROPE_DIM];
            for h in 0..INDEX_HEADS {
                lanes.copy_from_slice(source.tile().row(h));
                rotate(&mut lanes, &cos, &sin, Turn::Forward);
                cast::narrow(&lanes, target.tile_mut().row_mut(h));
            }
        });
    o.submit(task)?;
    Ok(())
}

/// The product is the sum of two: lanes that were not turned, then lanes that were.
fn hadamard_quant(
    o: &mut Orchestrator<'_>,
    args: &PrefillIndexerArgs,
    s: &PrefillIndexerScratch,
) -> Result<(), Halted> {
    let [source, turned, codes, scales] = [&s.qr_proj, &s.rope_out, &s.query, &s.query_scale].map(Created::tensor);
    let rows = source.reshape(&[ROWS, INDEX_DIM]);
    let rotation = args.inner.hadamard.clone();
    let task = Task::new("prefill_idx_qr_hadamard_quant", Unit::Mixed)
        .blocks(ROWS / HADAMARD_ROWS)
        .input(&source)
        .input(&turned)
        .input(&rotation)
        .write(&codes)
        .write(&scales)
        .run(move |block| {
            let rotation = block.tile::<bf16>(&rotation);
            let [nope_part, rope_part] =
                [0..NOPE, NOPE..INDEX_DIM].map(|lanes| rotation.tile().sub(lanes, 0..INDEX_DIM));
            let mut plain = vec![bf16::ZERO; HADAMARD_TILE * NOPE];
            let mut sum = vec![0f32; HADAMARD_TILE * INDEX_DIM];
            for row0 in (block.index() * HADAMARD_ROWS..(block.index() + 1) * HADAMARD_ROWS).step_by(HADAMARD_TILE) {
                let tile = row0..row0 + HADAMARD_TILE;
                let nope = block.tile::<f32>(&rows.view(&[row0, 0], &[HADAMARD_TILE, NOPE]));
                for (r, plain) in plain.chunks_mut(NOPE).enumerate() {
                    cast::narrow(nope.tile().row(r), plain);
                }
                let turned = block.tile::<bf16>(&turned.rows(tile.clone()));
                let mut c = ring_runtime::TileMut::new(&mut sum, HADAMARD_TILE, INDEX_DIM);
                let plain = ring_runtime::Tile::new(&plain, HADAMARD_TILE, NOPE);
                gemm(plain, Rhs::Kn(nope_part), &mut c, Store::Overwrite);
                gemm(turned.tile(), Rhs::Kn(rope_part), &mut c, Store::Accumulate);
                let mut codes = block.tile_mut::<i8>(&codes.rows(tile.clone()));
                let mut scales = block.write::<f32>(&scales.rows(tile));
                for (r, scale) in scales.iter_mut().enumerate() {
                    *scale = cast::quantise_row_amax(c.row(r), codes.tile_mut().row_mut(r)).dequant;
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

fn weights_proj(
    o: &mut Orchestrator<'_>,
    args: &PrefillIndexerArgs,
    weights: &IndexerWeights,
    s: &PrefillIndexerScratch,
) -> Result<(), Halted> {
    let (source, w, target) = (
        args.inner.tile.x.clone(),
        weights.weights_proj.clone(),
        s.weights.tensor(),
    );
    let task = Task::new("prefill_idx_weights_proj", Unit::Mixed)
        .blocks(PREFILL_TOKENS / WEIGHT_TOKENS)
        .input(&source)
        .input(&w)
        .write(&target)
        .run(move |block| {
            let rows = block.index() * WEIGHT_TOKENS..(block.index() + 1) * WEIGHT_TOKENS;
            let a = block.tile::<bf16>(&source.view(&[rows.start, 0], &[WEIGHT_TOKENS, HIDDEN]));
            let b = block.tile::<bf16>(&w);
            let mut c = block.tile_mut::<f32>(&target.rows(rows));
            gemm(a.tile(), Rhs::Kn(b.tile()), &mut c.tile_mut(), Store::Overwrite);
            let mut c = c.tile_mut();
            for t in 0..WEIGHT_TOKENS {
                math::scale(c.row_mut(t), WEIGHT_SCALE);
            }
        });
    o.submit(task)?;
    Ok(())
}
