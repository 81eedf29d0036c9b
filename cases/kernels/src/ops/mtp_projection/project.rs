//! The int8 products, and the copy of their sum to the output.

use std::ops::Range;

use ring_runtime::{Halted, Orchestrator, Task, Tensor, TileMut, Unit};

use super::{CHUNK, MtpScratch, MtpWeights};
use crate::model::{HC_DIM, HIDDEN, STREAMS};
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math};

/// 128 output columns of up to 16 tokens, from `column` on: five products, summed in pairs.
///
/// Rows of the matrix tile beyond the tokens are left out: what they give is thrown away.
pub(super) fn linear(
    o: &mut Orchestrator<'_>,
    rows: Range<usize>,
    column: usize,
    weights: &MtpWeights,
    scratch: &MtpScratch,
) -> Result<(), Halted> {
    let live = rows.len();
    let streams = STREAMS * live;
    let hidden = scratch.hidden_i8.rows(rows.clone());
    // The four streams of a token are neighbours: one product multiplies all of them.
    let previous = scratch.prev_i8.rows(rows.clone()).reshape(&[streams, HIDDEN]);
    let hidden_scale = scratch.hidden_scale.rows(rows.clone());
    let prev_scale = scratch.prev_scale.view(&[0, rows.start], &[STREAMS, live]);
    let branches = [&weights.embedding.projection, &weights.stream.projection].map(|p| {
        let columns = column..column + CHUNK;
        [p.codes.rows(columns.clone()), p.scales.rows(columns)]
    });
    let out = scratch
        .out_pad
        .reshape(&[scratch.out_pad.dims()[0], STREAMS, HIDDEN])
        .view(&[rows.start, 0, column], &[live, STREAMS, CHUNK]);
    let mut task = Task::new("mtp_projection_linear", Unit::Mixed)
        .input(&hidden)
        .input(&previous)
        .input(&hidden_scale)
        .input(&prev_scale);
    for weight in branches.as_flattened() {
        task = task.input(weight);
    }
    let task = task.write(&out).run(move |block| {
        let product = |x: &Tensor, w: &Tensor, acc: &mut [i32]| {
            let (x, w) = (block.tile::<i8>(x), block.tile::<i8>(w));
            let rows = x.tile().rows();
            gemm(
                x.tile(),
                Rhs::Nk(w.tile()),
                &mut TileMut::new(acc, rows, CHUNK),
                Store::Overwrite,
            );
        };
        let [[e_codes, e_scales], [h_codes, h_scales]] = &branches;
        let (mut e_acc, mut h_acc) = (vec![0i32; live * CHUNK], vec![0i32; streams * CHUNK]);
        product(&hidden, e_codes, &mut e_acc);
        product(&previous, h_codes, &mut h_acc);
        let (hidden_scale, prev_scale) = (block.read::<f32>(&hidden_scale), block.tile::<f32>(&prev_scale));
        let (e_scales, h_scales) = (block.read::<f32>(e_scales), block.read::<f32>(h_scales));
        let mut out = block.tile_mut::<f32>(&out);
        let mut e = [0f32; CHUNK];
        for t in 0..live {
            cast::dequantise(&e_acc[t * CHUNK..][..CHUNK], hidden_scale[t], &e_scales, &mut e);
            for h in 0..STREAMS {
                let row = STREAMS * t + h;
                let mut out = out.tile_mut();
                let out = out.row_mut(row);
                let scale = prev_scale.tile().row(h)[t];
                cast::dequantise(&h_acc[row * CHUNK..][..CHUNK], scale, &h_scales, out);
                math::add(out, &e);
            }
        }
    });
    o.submit(task)?;
    Ok(())
}

/// Copies the rows of tokens out of the padded buffer.
pub(super) fn output(o: &mut Orchestrator<'_>, out: &Tensor, out_pad: &Tensor) -> Result<(), Halted> {
    let tokens = out.dims()[0];
    let source = out_pad.rows(0..tokens);
    let target = out.reshape(&[tokens, HC_DIM]);
    let task = Task::new("mtp_projection_output", Unit::Vector)
        .input(&source)
        .write(out)
        .run(move |block| {
            block.write::<f32>(&target).copy_from_slice(&block.read::<f32>(&source));
        });
    o.submit(task)?;
    Ok(())
}
