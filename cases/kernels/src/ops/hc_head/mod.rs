//! Hyper-connection head: the four residual streams of a token collapsed into one row by sigmoid gates.

pub(crate) mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use crate::creates::{Created, Creates};
use crate::model::{HC_DIM, HC_EPS, HIDDEN, MATRIX_ROWS, PREFILL_TOKENS, RMS_EPS, STREAMS};
use crate::ops::hc_pre::collapse;
use crate::scopes::BodyScopes;
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math, reduce};

pub use case::HcHead;

/// Tokens that the buffers have room for, whatever the number of tokens.
const ROOM: usize = PREFILL_TOKENS;
/// Tokens of a vector block.
const TOKENS: usize = 8;
/// Parts of the inner dimension of the projection.
const SPLIT: usize = 8;
/// The four gates, padded for the matrix unit.
const GATE_PAD: usize = 16;
/// Chunk of the sum of squares.
const CHUNK: usize = 512;

/// What the head learnt.
#[derive(Clone, Debug)]
pub(crate) struct HcHeadWeights {
    /// Projection, [4, 28672] f32.
    pub(crate) weight: Tensor,
    /// Scale of the gates, \[1\] f32.
    pub(crate) scale: Tensor,
    /// Bias of each gate, \[4\] f32.
    pub(crate) base: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct HcHeadScratch {
    inv_rms: Created,
    mixes_raw: Created,
    mixes_partials: Created,
    pre_t: Created,
}

impl HcHeadScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let mut f32 = |name, rows, cols| creates.tensor(name, DType::F32, &[rows, cols]);
        Self {
            inv_rms: f32("inv_rms", ROOM, 1),
            mixes_raw: f32("mixes_raw", ROOM, GATE_PAD),
            mixes_partials: f32("mixes_partials", SPLIT * ROOM, GATE_PAD),
            pre_t: f32("pre_t", GATE_PAD, ROOM),
        }
    }
}

/// Submits the launches: `y` [T, 7168] bf16 of `x` [T, 4, 7168] f32, up to 128 tokens in eights.
pub(crate) fn hc_head(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    x: &Tensor,
    weights: &HcHeadWeights,
    y: &Tensor,
    scratch: &HcHeadScratch,
) -> Result<(), Halted> {
    let tokens = x.dims()[0];
    let x = &x.reshape(&[tokens, HC_DIM]);
    rms(o, x, &scratch.inv_rms)?;
    linear(o, x, &weights.weight, &scratch.mixes_partials)?;
    linear_reduce(o, tokens, &scratch.mixes_partials, &scratch.mixes_raw)?;
    pre_fused(o, tokens, weights, scratch)?;
    for first in (0..tokens).step_by(TOKENS) {
        let rows = first..tokens.min(first + TOKENS);
        bodies.body(o, |o| {
            reduce_streams(
                o,
                &x.rows(rows.clone()),
                &scratch.pre_t.view(&[0, first], &[STREAMS, rows.len()]),
                &y.rows(rows),
            )
        })?;
    }
    Ok(())
}

fn rms(o: &mut Orchestrator<'_>, x: &Tensor, inv_rms: &Tensor) -> Result<(), Halted> {
    let tokens = x.dims()[0];
    let (source, target) = (x.clone(), inv_rms.rows(0..tokens));
    let task = Task::new("hc_head_rms", Unit::Vector)
        .blocks(tokens.div_ceil(TOKENS))
        .input(x)
        .write(&target)
        .run({
            let target = target.clone();
            move |block| {
                let first = block.index() * TOKENS;
                let rows = first..tokens.min(first + TOKENS);
                let x = block.tile::<f32>(&source.rows(rows.clone()));
                let mut inv = block.write::<f32>(&target.rows(rows));
                for (t, inv) in inv.iter_mut().enumerate() {
                    let mean = reduce::sum_of_squares_chunked(x.tile().row(t), CHUNK) * (1.0 / HC_DIM as f32);
                    *inv = math::inv_sqrt(mean + RMS_EPS);
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Partial `s` of token `t` is in row `128 · s + t`; the padding of a row is zero.
fn linear(o: &mut Orchestrator<'_>, x: &Tensor, weight: &Tensor, partials: &Tensor) -> Result<(), Halted> {
    let (source, w, target) = (x.clone(), weight.clone(), partials.clone());
    let tokens = x.dims()[0];
    let depth = HC_DIM / SPLIT;
    let task = Task::new("hc_head_linear", Unit::Matrix)
        .blocks(tokens.div_ceil(MATRIX_ROWS) * SPLIT)
        .input(x)
        .input(weight)
        .write(partials)
        .run(move |block| {
            let (row0, split) = (block.index() / SPLIT * MATRIX_ROWS, block.index() % SPLIT);
            let rows = MATRIX_ROWS.min(tokens - row0);
            let a = block.tile::<f32>(&source.view(&[row0, split * depth], &[rows, depth]));
            let b = block.tile::<f32>(&w.view(&[0, split * depth], &[STREAMS, depth]));
            let mut c = block.tile_mut::<f32>(&target.view(&[split * ROOM + row0, 0], &[rows, GATE_PAD]));
            let mut c = c.tile_mut();
            c.sub_mut(0..rows, STREAMS..GATE_PAD).fill(0.0);
            gemm(
                a.tile(),
                Rhs::Nk(b.tile()),
                &mut c.sub_mut(0..rows, 0..STREAMS),
                Store::Overwrite,
            );
        });
    o.submit(task)?;
    Ok(())
}

fn linear_reduce(o: &mut Orchestrator<'_>, tokens: usize, partials: &Tensor, raw: &Tensor) -> Result<(), Halted> {
    let (source, target) = (partials.clone(), raw.clone());
    let task = Task::new("hc_head_linear_reduce", Unit::Vector)
        .blocks(tokens.div_ceil(MATRIX_ROWS))
        .input(partials)
        .write(raw)
        .run(move |block| {
            let row0 = block.index() * MATRIX_ROWS;
            let rows = MATRIX_ROWS.min(tokens - row0);
            let part = |split: usize| block.read::<f32>(&source.rows(split * ROOM + row0..split * ROOM + row0 + rows));
            let mut sum = block.write::<f32>(&target.rows(row0..row0 + rows));
            sum.copy_from_slice(&part(0));
            (1..SPLIT).for_each(|split| math::add(&mut sum, &part(split)));
        });
    o.submit(task)?;
    Ok(())
}

/// The gates of all tokens, one stream a row.
fn pre_fused(
    o: &mut Orchestrator<'_>,
    tokens: usize,
    weights: &HcHeadWeights,
    scratch: &HcHeadScratch,
) -> Result<(), Halted> {
    let [raw, inv_rms, pre_t] = [&scratch.mixes_raw, &scratch.inv_rms, &scratch.pre_t].map(Created::tensor);
    let (scale, base) = (weights.scale.clone(), weights.base.clone());
    let task = Task::new("hc_head_pre_fused", Unit::Vector)
        .input(&raw)
        .input(&inv_rms)
        .input(&scale)
        .input(&base)
        .write(&pre_t)
        .run(move |block| {
            let raw = block.tile::<f32>(&raw.rows(0..tokens));
            let inv = block.read::<f32>(&inv_rms.rows(0..tokens));
            let (scale, base) = (block.read::<f32>(&scale), block.read::<f32>(&base));
            let mut pre_t = block.tile_mut::<f32>(&pre_t.view(&[0, 0], &[STREAMS, tokens]));
            for h in 0..STREAMS {
                let mut gates = pre_t.tile_mut();
                for (t, gate) in gates.row_mut(h).iter_mut().enumerate() {
                    *gate = math::sigmoid((raw.tile().row(t)[h] * inv[t]) * scale[0] + base[h]) + HC_EPS;
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Collapses the tokens of one tile; `gates` [4, n] are theirs.
fn reduce_streams(o: &mut Orchestrator<'_>, x: &Tensor, gates: &Tensor, y: &Tensor) -> Result<(), Halted> {
    let (source, weights, target) = (x.clone(), gates.clone(), y.clone());
    let task = Task::new("hc_head_reduce", Unit::Vector)
        .input(x)
        .input(gates)
        .write(y)
        .run(move |block| {
            let (x, gates) = (block.tile::<f32>(&source), block.tile::<f32>(&weights));
            let mut y = block.tile_mut::<bf16>(&target);
            let mut sum = vec![0f32; HIDDEN];
            for t in 0..target.dims()[0] {
                let x = x.tile().row(t);
                collapse(
                    [0, 1, 2, 3].map(|h| &x[h * HIDDEN..(h + 1) * HIDDEN]),
                    [0, 1, 2, 3].map(|h| gates.tile().row(h)[t]),
                    &mut sum,
                );
                cast::narrow(&sum, y.tile_mut().row_mut(t));
            }
        });
    o.submit(task)?;
    Ok(())
}
