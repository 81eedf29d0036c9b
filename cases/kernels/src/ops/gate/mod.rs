//! Router of a mixture of experts: quantised normalised rows for the experts, and each token's six experts with their weights.

pub(crate) mod case;
mod route;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, TileMut, Unit};

use crate::creates::{Created, Creates};
use crate::model::{HASH_LAYERS, HIDDEN, MATRIX_ROWS, RMS_EPS, matrix_rows};
use crate::scopes::BodyScopes;
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math, reduce};

pub use case::Gate;

/// Tokens of a quantisation or route block.
const TOKENS: usize = 8;
/// Experts of a logits block.
const COLUMNS: usize = 16;
/// Width of a row of scores, padded for the sort.
const SCORE_PAD: usize = 512;
/// Length of the partial sums and maxima of a row.
const CHUNK: usize = 896;
/// Biased score of the columns beyond the experts: never chosen.
const NEVER: f32 = f32::MIN;

/// What the router learnt.
#[derive(Clone, Debug)]
pub(crate) struct GateWeights {
    /// Gain of the norm, \[7168\] bf16.
    pub(crate) norm: Tensor,
    /// Projection, [N, 7168] f32.
    pub(crate) projection: Tensor,
    /// Selection bias, \[N\] f32.
    pub(crate) bias: Tensor,
    /// Experts of each token id in the hash layers, [129280, 6] i32.
    pub(crate) table: Tensor,
}

/// Where the results go.
#[derive(Clone, Debug)]
pub(crate) struct GateOut {
    /// Quantised normalised rows, [T, 7168] i8.
    pub(crate) x_i8: Tensor,
    /// What turns them back into values, [T, 1] f32; zero for tokens that are not in use.
    pub(crate) x_scale: Tensor,
    /// Chosen experts, [T, 6] i32.
    pub(crate) indices: Tensor,
    /// Their weights, [T, 6] f32.
    pub(crate) weights: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct GateScratch {
    xg: Created,
    inv_rms: Created,
    xn_scale: Created,
    route_scores: Created,
    biased_scores: Created,
}

impl GateScratch {
    pub(crate) fn declare(creates: &mut Creates, tokens: usize) -> Self {
        let rows = matrix_rows(tokens);
        let mut f32 = |name, cols| creates.tensor(name, DType::F32, &[rows, cols]);
        Self {
            xg: f32("xg_buf", HIDDEN),
            inv_rms: f32("inv_rms_buf", 1),
            xn_scale: f32("xn_scale_buf", 1),
            route_scores: f32("route_scores_buf", SCORE_PAD),
            biased_scores: f32("biased_scores_buf", SCORE_PAD),
        }
    }
}

/// How a layer routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routing {
    /// By the token's id, in the first layers.
    Hash,
    /// By score and bias.
    Score,
}

impl Routing {
    /// The routing of a layer.
    pub(crate) fn of_layer(layer_id: i32) -> Self {
        if layer_id < HASH_LAYERS {
            Self::Hash
        } else {
            Self::Score
        }
    }
}

/// Rows of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rows {
    /// Tokens in use.
    active: usize,
    /// Rows that are normalised: whole matrix tiles, as far as there are tokens.
    normalised: usize,
}

impl Rows {
    fn of(num_tokens: i32, tokens: usize) -> Self {
        let active = usize::try_from(num_tokens).unwrap_or(0).min(tokens);
        Self {
            active,
            normalised: matrix_rows(active).min(tokens),
        }
    }
}

/// Submits the launches for the rows `x_mixed` [T, 7168] bf16 of the tokens `input_ids` \[T\] i64.
///
/// A launch that would have no block is left out (no token in use). So are the scopes of the two
/// branches that clamp `num_tokens`: nothing is submitted in them.
#[expect(clippy::too_many_arguments, reason = "the arguments of the program")]
pub(crate) fn gate(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    x_mixed: &Tensor,
    input_ids: &Tensor,
    weights: &GateWeights,
    layer_id: i32,
    num_tokens: i32,
    out: &GateOut,
    scratch: &GateScratch,
) -> Result<(), Halted> {
    let rows = Rows::of(num_tokens, x_mixed.dims()[0]);
    let routing = Routing::of_layer(layer_id);
    if rows.active > 0 {
        ffn_norm(o, x_mixed, &weights.norm, rows.normalised, out, scratch)?;
        for first in (0..rows.normalised).step_by(TOKENS) {
            let last = rows.normalised.min(first + TOKENS);
            bodies.body(o, |o| x_norm_quant(o, first..last, &out.x_i8, scratch))?;
        }
    }
    gate_pre_route(o, rows.active, weights.bias.dims()[0], out, scratch)?;
    if rows.active > 0 {
        logits(o, rows, routing, weights, scratch)?;
        bodies.body(o, |o| match routing {
            Routing::Hash => route::hash(o, rows.active, input_ids, &weights.table, out, scratch),
            Routing::Score => route::sort(o, rows.active, weights.bias.dims()[0], out, scratch),
        })?;
    }
    Ok(())
}

/// One token a block: the row with its gain, the factor that normalises it, and the scales of its codes.
fn ffn_norm(
    o: &mut Orchestrator<'_>,
    x: &Tensor,
    norm: &Tensor,
    rows: usize,
    out: &GateOut,
    scratch: &GateScratch,
) -> Result<(), Halted> {
    let (source, gain) = (x.clone(), norm.clone());
    let [xg, inv_rms, xn_scale, x_scale] =
        [&*scratch.xg, &scratch.inv_rms, &scratch.xn_scale, &out.x_scale].map(|t| t.rows(0..rows));
    let task = Task::new("ffn_norm", Unit::Vector)
        .blocks(rows)
        .input(x)
        .input(norm)
        .write(&xg)
        .write(&inv_rms)
        .write(&xn_scale)
        .write(&x_scale)
        .run(move |block| {
            let row = block.index()..block.index() + 1;
            let mut wide = vec![0f32; HIDDEN];
            cast::widen(&block.read::<bf16>(&source.rows(row.clone())), &mut wide);
            let mean = reduce::sum_of_squares_chunked(&wide, CHUNK) * (1.0 / HIDDEN as f32);
            let inv = 1.0 / (mean + RMS_EPS).sqrt();
            let mut xg = block.write::<f32>(&xg.rows(row.clone()));
            cast::widen(&block.read::<bf16>(&gain), &mut xg);
            math::mul(&mut xg, &wide);
            let amax = reduce::amax(&xg);
            // Not `f32::max`, which would drop a NaN.
            let amax = if amax < cast::AMAX_FLOOR {
                cast::AMAX_FLOOR
            } else {
                amax
            };
            block.write::<f32>(&inv_rms.rows(row.clone()))[0] = inv;
            block.write::<f32>(&xn_scale.rows(row.clone()))[0] = cast::INT8_MAX / amax;
            block.write::<f32>(&x_scale.rows(row))[0] = (amax * (1.0 / cast::INT8_MAX)) * inv;
        });
    o.submit(task)?;
    Ok(())
}

fn x_norm_quant(
    o: &mut Orchestrator<'_>,
    rows: std::ops::Range<usize>,
    x_i8: &Tensor,
    scratch: &GateScratch,
) -> Result<(), Halted> {
    let [xg, scale, codes] = [&*scratch.xg, &scratch.xn_scale, x_i8].map(|t| t.rows(rows.clone()));
    let task = Task::new("x_norm_quant", Unit::Vector)
        .input(&xg)
        .input(&scale)
        .write(&codes)
        .run(move |block| {
            let (xg, scale) = (block.tile::<f32>(&xg), block.read::<f32>(&scale));
            let mut codes = block.tile_mut::<i8>(&codes);
            for (t, scale) in scale.iter().enumerate() {
                cast::quantise_row(xg.tile().row(t), *scale, codes.tile_mut().row_mut(t));
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Zeroes what belongs to tokens that are not in use, and makes the padding columns lose every comparison.
fn gate_pre_route(
    o: &mut Orchestrator<'_>,
    active: usize,
    experts: usize,
    out: &GateOut,
    scratch: &GateScratch,
) -> Result<(), Halted> {
    let tokens = out.indices.dims()[0];
    let rows = scratch.biased_scores.dims()[0];
    let pad = scratch.biased_scores.view(&[0, experts], &[rows, SCORE_PAD - experts]);
    let tails =
        (active < tokens).then(|| [&out.x_scale, &out.indices, &out.weights].map(|tensor| tensor.rows(active..tokens)));
    let mut task = Task::new("gate_pre_route", Unit::Vector).write(&pad);
    if let Some([x_scale, indices, weights]) = &tails {
        // The norm wrote scales of its whole matrix tile: zeroes come after them.
        task = task.inout(x_scale).write(indices).write(weights);
    }
    o.submit(task.run(move |block| {
        block.tile_mut::<f32>(&pad).tile_mut().fill(NEVER);
        if let Some([x_scale, indices, weights]) = &tails {
            block.write::<f32>(x_scale).fill(0.0);
            block.write::<i32>(indices).fill(0);
            block.write::<f32>(weights).fill(0.0);
        }
    }))?;
    Ok(())
}

/// Scores of 16 tokens and 16 experts a block.
///
/// The matrix tile has rows beyond the tokens when there are only 8: nobody looks at what they give, so they are left out.
fn logits(
    o: &mut Orchestrator<'_>,
    rows: Rows,
    routing: Routing,
    weights: &GateWeights,
    scratch: &GateScratch,
) -> Result<(), Halted> {
    let experts = weights.bias.dims()[0];
    let column_blocks = experts / COLUMNS;
    let tiles = rows.active.div_ceil(MATRIX_ROWS);
    let [xg, inv_rms] = [&scratch.xg, &scratch.inv_rms].map(Created::tensor);
    let [scores, biased] =
        [&scratch.route_scores, &scratch.biased_scores].map(|t| t.view(&[0, 0], &[tiles * MATRIX_ROWS, experts]));
    let (projection, bias) = (weights.projection.clone(), weights.bias.clone());
    let mut task = Task::new("gate", Unit::Mixed)
        .blocks(tiles * column_blocks)
        .input(&xg)
        .input(&projection)
        .input(&inv_rms)
        .input(&bias)
        .write(&scores);
    if routing == Routing::Score {
        task = task.write(&biased);
    }
    o.submit(task.run(move |block| {
        let (row0, col0) = (
            block.index() / column_blocks * MATRIX_ROWS,
            block.index() % column_blocks * COLUMNS,
        );
        let count = MATRIX_ROWS.min(rows.normalised - row0);
        let at = |t: &Tensor| t.view(&[row0, col0], &[count, COLUMNS]);
        let a = block.tile::<f32>(&xg.rows(row0..row0 + count));
        let b = block.tile::<f32>(&projection.rows(col0..col0 + COLUMNS));
        let mut l = [0f32; MATRIX_ROWS * COLUMNS];
        let l = &mut l[..count * COLUMNS];
        gemm(
            a.tile(),
            Rhs::Nk(b.tile()),
            &mut TileMut::new(l, count, COLUMNS),
            Store::Overwrite,
        );
        let inv = block.read::<f32>(&inv_rms.rows(row0..row0 + count));
        for (row, inv) in l.chunks_mut(COLUMNS).zip(&*inv) {
            math::scale(row, *inv);
        }
        math::sqrt_softplus_row(l);
        let mut scores = block.tile_mut::<f32>(&at(&scores));
        for (t, row) in l.chunks(COLUMNS).enumerate() {
            scores.tile_mut().row_mut(t).copy_from_slice(row);
        }
        if routing == Routing::Score {
            let bias = block.read::<f32>(&bias.rows(col0..col0 + COLUMNS));
            let mut biased = block.tile_mut::<f32>(&at(&biased));
            for (t, row) in l.chunks_mut(COLUMNS).enumerate() {
                math::add(row, &bias);
                biased.tile_mut().row_mut(t).copy_from_slice(row);
            }
        }
    }))?;
    Ok(())
}
