//! Input projection of multi-token prediction: the projected embedding row, added to each projected residual stream.

pub(crate) mod case;
mod project;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use crate::creates::{Created, Creates};
use crate::fixture::Quantised;
use crate::model::{HC_DIM, HIDDEN, MATRIX_ROWS, RMS_EPS, STREAMS, matrix_rows};
use crate::scopes::BodyScopes;
use crate::tile::{cast, math, reduce};

pub use case::MtpProjection;

/// Tokens of a vector task.
const TOKENS: usize = 8;
/// Columns that are summed, or projected, at a time.
const CHUNK: usize = 128;
/// Chunks of a row.
const CHUNKS: usize = HIDDEN / CHUNK;

/// What one kind of hidden rows goes through.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    /// Gain of the norm, \[7168\] f32.
    pub(crate) norm: Tensor,
    /// Factors before quantisation, \[7168\] f32.
    pub(crate) smooth: Tensor,
    /// Projection, [7168 out, 7168 in].
    pub(crate) projection: Quantised,
}

/// What the projection learnt.
#[derive(Clone, Debug)]
pub(crate) struct MtpWeights {
    /// For the embedding row (e).
    pub(crate) embedding: Branch,
    /// For the residual streams (h).
    pub(crate) stream: Branch,
}

/// Arguments of a call.
#[derive(Clone, Debug)]
pub(crate) struct MtpArgs {
    /// Embedding rows, [T, 7168] bf16.
    pub(crate) hidden: Tensor,
    /// Residual streams before the head, [T, 4, 7168] f32.
    pub(crate) previous: Tensor,
    /// Result, [T, 4, 7168] f32.
    pub(crate) out: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct MtpScratch {
    hidden_norm: Created,
    prev_norm: Created,
    out_pad: Created,
    hidden_i8: Created,
    prev_i8: Created,
    hidden_inv_rms: Created,
    hidden_scale: Created,
    prev_inv_rms: Created,
    prev_scale: Created,
    hidden_amax: Created,
    prev_amax: Created,
}

impl MtpScratch {
    pub(crate) fn declare(creates: &mut Creates, tokens: usize) -> Self {
        let rows = matrix_rows(tokens);
        let mut tensor = |name, dtype, dims: [usize; 2]| creates.tensor(name, dtype, &dims);
        Self {
            hidden_norm: tensor("hidden_norm", DType::F32, [rows, HIDDEN]),
            prev_norm: tensor("prev_norm", DType::F32, [rows, HC_DIM]),
            out_pad: tensor("out_pad", DType::F32, [rows, HC_DIM]),
            hidden_i8: tensor("hidden_i8", DType::I8, [rows, HIDDEN]),
            prev_i8: tensor("prev_i8", DType::I8, [rows, HC_DIM]),
            hidden_inv_rms: tensor("hidden_inv_rms", DType::F32, [rows, 1]),
            hidden_scale: tensor("hidden_scale_dq", DType::F32, [rows, 1]),
            prev_inv_rms: tensor("prev_inv_rms", DType::F32, [STREAMS, rows]),
            prev_scale: tensor("prev_scale_dq", DType::F32, [STREAMS, rows]),
            hidden_amax: tensor("hidden_amax_parts", DType::F32, [CHUNKS, rows]),
            prev_amax: tensor("prev_amax_parts", DType::F32, [STREAMS * CHUNKS, rows]),
        }
    }
}

/// Submits the launches; T is a multiple of 8.
pub(crate) fn mtp_projection(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    args: &MtpArgs,
    weights: &MtpWeights,
    scratch: &MtpScratch,
) -> Result<(), Halted> {
    let tokens = args.hidden.dims()[0];
    let tiles = || (0..tokens).step_by(TOKENS);
    for first in tiles() {
        bodies.body(o, |o| rms(o, first, args, scratch))?;
    }
    for first in tiles() {
        bodies.body(o, |o| norm(o, first, args, weights, scratch))?;
    }
    for first in tiles() {
        bodies.body(o, |o| quant(o, first, scratch))?;
    }
    for first in (0..tokens).step_by(MATRIX_ROWS) {
        bodies.body(o, |o| {
            for chunk in 0..CHUNKS {
                bodies.body(o, |o| {
                    let rows = first..tokens.min(first + MATRIX_ROWS);
                    project::linear(o, rows, chunk * CHUNK, weights, scratch)
                })?;
            }
            Ok(())
        })?;
    }
    project::output(o, &args.out, &scratch.out_pad)
}

/// Rows `first..first + 8`.
fn tile(tensor: &Tensor, first: usize) -> Tensor {
    tensor.rows(first..first + TOKENS)
}

/// Columns `first..first + 8`, for what is stored token by token along the last axis.
fn lane_tile(tensor: &Tensor, first: usize) -> Tensor {
    tensor.view(&[0, first], &[tensor.dims()[0], TOKENS])
}

fn rms(o: &mut Orchestrator<'_>, first: usize, args: &MtpArgs, scratch: &MtpScratch) -> Result<(), Halted> {
    let hidden = tile(&args.hidden, first);
    let previous = tile(&args.previous, first).reshape(&[TOKENS * STREAMS, HIDDEN]);
    let hidden_inv = tile(&scratch.hidden_inv_rms, first);
    let prev_inv = lane_tile(&scratch.prev_inv_rms, first);
    let inverse =
        |row: &[f32]| math::inv_sqrt(reduce::sum_of_squares_chunked(row, CHUNK) * (1.0 / HIDDEN as f32) + RMS_EPS);
    let task = Task::new("mtp_projection_rms", Unit::Vector)
        .input(&hidden)
        .input(&previous)
        .write(&hidden_inv)
        .write(&prev_inv)
        .run(move |block| {
            let (hidden, previous) = (block.tile::<bf16>(&hidden), block.tile::<f32>(&previous));
            let mut hidden_inv = block.write::<f32>(&hidden_inv);
            let mut prev_inv = block.tile_mut::<f32>(&prev_inv);
            let mut wide = vec![0f32; HIDDEN];
            for t in 0..TOKENS {
                cast::widen(hidden.tile().row(t), &mut wide);
                hidden_inv[t] = inverse(&wide);
                for h in 0..STREAMS {
                    prev_inv.tile_mut().row_mut(h)[t] = inverse(previous.tile().row(STREAMS * t + h));
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// `row = ((row · inv) · norm) · smooth`, and the largest magnitude of each chunk.
fn norm_row(row: &mut [f32], inv: f32, norm: &[f32], smooth: &[f32], mut part: impl FnMut(usize, f32)) {
    math::scale_mul(row, inv, norm);
    math::mul(row, smooth);
    for (c, chunk) in row.chunks(CHUNK).enumerate() {
        part(c, reduce::amax(chunk));
    }
}

fn norm(
    o: &mut Orchestrator<'_>,
    first: usize,
    args: &MtpArgs,
    weights: &MtpWeights,
    scratch: &MtpScratch,
) -> Result<(), Halted> {
    let hidden = tile(&args.hidden, first);
    let previous = tile(&args.previous, first).reshape(&[TOKENS * STREAMS, HIDDEN]);
    let gains = [&weights.embedding, &weights.stream].map(|b| [b.norm.clone(), b.smooth.clone()]);
    let hidden_inv = tile(&scratch.hidden_inv_rms, first);
    let prev_inv = lane_tile(&scratch.prev_inv_rms, first);
    let hidden_norm = tile(&scratch.hidden_norm, first);
    let prev_norm = tile(&scratch.prev_norm, first).reshape(&[TOKENS * STREAMS, HIDDEN]);
    let [hidden_amax, prev_amax] = [&scratch.hidden_amax, &scratch.prev_amax].map(|t| lane_tile(t, first));
    let mut task = Task::new("mtp_projection_norm", Unit::Vector)
        .input(&hidden)
        .input(&previous)
        .input(&hidden_inv)
        .input(&prev_inv);
    for gain in gains.as_flattened() {
        task = task.input(gain);
    }
    let task = task
        .write(&hidden_norm)
        .write(&prev_norm)
        .write(&hidden_amax)
        .write(&prev_amax)
        .run(move |block| {
            let (hidden, previous) = (block.tile::<bf16>(&hidden), block.tile::<f32>(&previous));
            let (hidden_inv, prev_inv) = (block.read::<f32>(&hidden_inv), block.tile::<f32>(&prev_inv));
            let [[enorm, esmooth], [hnorm, hsmooth]] =
                [&gains[0], &gains[1]].map(|[norm, smooth]| [block.read::<f32>(norm), block.read::<f32>(smooth)]);
            let mut hidden_norm = block.tile_mut::<f32>(&hidden_norm);
            let mut prev_norm = block.tile_mut::<f32>(&prev_norm);
            let mut hidden_amax = block.tile_mut::<f32>(&hidden_amax);
            let mut prev_amax = block.tile_mut::<f32>(&prev_amax);
            for t in 0..TOKENS {
                let mut hidden_norm = hidden_norm.tile_mut();
                let row = hidden_norm.row_mut(t);
                cast::widen(hidden.tile().row(t), row);
                norm_row(row, hidden_inv[t], &enorm, &esmooth, |c, amax| {
                    hidden_amax.tile_mut().row_mut(c)[t] = amax;
                });
                for h in 0..STREAMS {
                    let mut prev_norm = prev_norm.tile_mut();
                    let row = prev_norm.row_mut(STREAMS * t + h);
                    row.copy_from_slice(previous.tile().row(STREAMS * t + h));
                    norm_row(row, prev_inv.tile().row(h)[t], &hnorm, &hsmooth, |c, amax| {
                        prev_amax.tile_mut().row_mut(h * CHUNKS + c)[t] = amax;
                    });
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

fn quant(o: &mut Orchestrator<'_>, first: usize, scratch: &MtpScratch) -> Result<(), Halted> {
    let wide = |t: &Tensor| tile(t, first).reshape(&[TOKENS * STREAMS, HIDDEN]);
    let (hidden_norm, prev_norm) = (tile(&scratch.hidden_norm, first), wide(&scratch.prev_norm));
    let (hidden_i8, prev_i8) = (tile(&scratch.hidden_i8, first), wide(&scratch.prev_i8));
    let [hidden_amax, prev_amax, prev_scale] =
        [&scratch.hidden_amax, &scratch.prev_amax, &scratch.prev_scale].map(|t| lane_tile(t, first));
    let hidden_scale = tile(&scratch.hidden_scale, first);
    let task = Task::new("mtp_projection_quant", Unit::Vector)
        .input(&hidden_norm)
        .input(&prev_norm)
        .input(&hidden_amax)
        .input(&prev_amax)
        .write(&hidden_i8)
        .write(&prev_i8)
        .write(&hidden_scale)
        .write(&prev_scale)
        .run(move |block| {
            let (hidden_norm, prev_norm) = (block.tile::<f32>(&hidden_norm), block.tile::<f32>(&prev_norm));
            let (hidden_amax, prev_amax) = (block.tile::<f32>(&hidden_amax), block.tile::<f32>(&prev_amax));
            let mut hidden_i8 = block.tile_mut::<i8>(&hidden_i8);
            let mut prev_i8 = block.tile_mut::<i8>(&prev_i8);
            let mut hidden_scale = block.write::<f32>(&hidden_scale);
            let mut prev_scale = block.tile_mut::<f32>(&prev_scale);
            for t in 0..TOKENS {
                let parts: [f32; CHUNKS] = std::array::from_fn(|c| hidden_amax.tile().row(c)[t]);
                let scale = cast::RowScale::of_amax(reduce::amax(&parts));
                cast::quantise_row(hidden_norm.tile().row(t), scale.quant, hidden_i8.tile_mut().row_mut(t));
                hidden_scale[t] = scale.dequant;
                for h in 0..STREAMS {
                    let row = STREAMS * t + h;
                    let parts: [f32; CHUNKS] = std::array::from_fn(|c| prev_amax.tile().row(h * CHUNKS + c)[t]);
                    let scale = cast::RowScale::of_amax(reduce::amax(&parts));
                    cast::quantise_row(prev_norm.tile().row(row), scale.quant, prev_i8.tile_mut().row_mut(row));
                    prev_scale.tile_mut().row_mut(h)[t] = scale.dequant;
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
