//! Hyper-connection pre-mix: gates and mixing matrix of each token from its four residual streams, and their collapse into one row.

mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

pub use case::HcPre;

use crate::creates::{Created, Creates};
use crate::fixture::{Dist, Fixture};
use crate::golden;
use crate::model::{
    HC_DIM, HC_EPS, HC_GATE_PAD, HC_MIX, HC_MIX_PAD, HIDDEN, MATRIX_ROWS, RMS_EPS, SINKHORN_ROUNDS, STREAMS,
    matrix_rows,
};
use crate::simd::vectorised;
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math, reduce};

/// Tokens of a vector block.
const TOKENS: usize = 8;
/// Parts of the inner dimension of the comb projection.
const SPLIT: usize = 4;
/// Columns of a `mix_x` block.
const MIX_COLUMNS: usize = 1024;
/// Chunk of the long sums.
const CHUNK: usize = 256;

/// What the hyper-connections of a sub-layer learnt.
#[derive(Clone, Debug)]
pub(crate) struct HcWeights {
    /// Projection, [24, 28672] f32.
    pub(crate) weight: Tensor,
    /// Scales of pre, post and comb, \[3\] f32.
    pub(crate) scale: Tensor,
    /// Bias of each row of the projection, \[24\] f32.
    pub(crate) base: Tensor,
}

impl HcWeights {
    /// Weights with a normal projection of this standard deviation, drawn as the tensor `name`.
    pub(crate) fn draw(fixture: Fixture, name: &str, deviation: f32, scale: [f32; 3], base: [f32; HC_MIX]) -> Self {
        Self {
            weight: fixture.real(name, DType::F32, &[HC_MIX, HC_DIM], Dist::normal(deviation, 0.0)),
            scale: Tensor::from_vec(&[3], scale.to_vec()),
            base: Tensor::from_vec(&[HC_MIX], base.to_vec()),
        }
    }

    /// What the reference makes of `x`, tokens of 4 × 7168.
    pub(crate) fn reference(&self, x: &[f32]) -> golden::hc_pre::HcPre {
        let (weight, scale, base) = (
            self.weight.read::<f32>(),
            self.scale.read::<f32>(),
            self.base.read::<f32>(),
        );
        golden::hc_pre::hc_pre(x, &weight, &scale, &base)
    }
}

/// The tensors that the body creates; rows are padded to what the matrix unit works on.
#[derive(Debug)]
pub(crate) struct HcPreScratch {
    inv_rms: Created,
    mixes_raw: Created,
    mixes_partials: Created,
    pre_raw: Created,
    post_raw: Created,
    pre_val: Created,
}

impl HcPreScratch {
    pub(crate) fn declare(creates: &mut Creates, tokens: usize) -> Self {
        let rows = matrix_rows(tokens);
        let mut f32 = |name, rows, cols| creates.tensor(name, DType::F32, &[rows, cols]);
        Self {
            inv_rms: f32("inv_rms", rows, 1),
            mixes_raw: f32("mixes_raw", rows, HC_MIX_PAD),
            mixes_partials: f32("mixes_partials", SPLIT * rows, HC_MIX_PAD),
            pre_raw: f32("pre_raw_store", rows, HC_GATE_PAD),
            post_raw: f32("post_raw_store", rows, HC_GATE_PAD),
            pre_val: f32("pre_val_store", rows, HC_GATE_PAD),
        }
    }
}

/// Where the results go.
#[derive(Clone, Debug)]
pub(crate) struct HcPreOut {
    /// Collapsed rows, [T, 7168] bf16.
    pub(crate) x_mixed: Tensor,
    /// Gates of the way back, [T, 4] f32.
    pub(crate) post: Tensor,
    /// Mixing matrices, [T, 16] f32.
    pub(crate) comb: Tensor,
}

/// Submits the eight launches for `x` [T, 4, 7168] f32.
pub(crate) fn hc_pre(
    o: &mut Orchestrator<'_>,
    x: &Tensor,
    weights: &HcWeights,
    out: &HcPreOut,
    scratch: &HcPreScratch,
) -> Result<(), Halted> {
    let tokens = x.dims()[0];
    let x = &x.reshape(&[tokens, HC_DIM]);
    rms(o, x, &scratch.inv_rms)?;
    linear(o, x, &weights.weight, &scratch.mixes_partials)?;
    linear_reduce(o, tokens, &scratch.mixes_partials, &scratch.mixes_raw)?;
    gate_linear(
        o,
        "hc_pre_pre_linear_vector",
        x,
        &weights.weight.rows(0..4),
        &scratch.pre_raw,
    )?;
    gate_linear(
        o,
        "hc_pre_post_linear_vector",
        x,
        &weights.weight.rows(4..8),
        &scratch.post_raw,
    )?;
    split_pre_post(o, tokens, weights, &out.post, scratch)?;
    comb_sinkhorn(o, tokens, weights, &out.comb, scratch)?;
    mix_x(o, x, &scratch.pre_val, &out.x_mixed)
}

fn rms(o: &mut Orchestrator<'_>, x: &Tensor, inv_rms: &Tensor) -> Result<(), Halted> {
    let (source, target) = (x.clone(), inv_rms.clone());
    let task = Task::new("hc_pre_rms", Unit::Vector)
        .blocks(x.dims()[0] / TOKENS)
        .input(x)
        .write(inv_rms)
        .run(move |block| {
            let rows = block.index() * TOKENS..(block.index() + 1) * TOKENS;
            let x = block.tile::<f32>(&source.rows(rows.clone()));
            let mut inv = block.write::<f32>(&target.rows(rows));
            for (t, inv) in inv.iter_mut().enumerate() {
                let mean = reduce::sum_of_squares_chunked(x.tile().row(t), CHUNK) * (1.0 / HC_DIM as f32);
                *inv = math::inv_sqrt(mean + RMS_EPS);
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Partial `s` of tokens `t..` is in rows `s · T + t..`; the last 8 columns belong to the padding of the weight and are zero.
fn linear(o: &mut Orchestrator<'_>, x: &Tensor, weight: &Tensor, partials: &Tensor) -> Result<(), Halted> {
    let (source, w, target) = (x.clone(), weight.clone(), partials.clone());
    let tokens = x.dims()[0];
    let padded = partials.dims()[0] / SPLIT;
    let depth = HC_DIM / SPLIT;
    let task = Task::new("hc_pre_linear", Unit::Matrix)
        .blocks(padded / MATRIX_ROWS * SPLIT)
        .input(x)
        .input(weight)
        .write(partials)
        .run(move |block| {
            let (row0, split) = (block.index() / SPLIT * MATRIX_ROWS, block.index() % SPLIT);
            let rows = MATRIX_ROWS.min(tokens - row0);
            let a = block.tile::<f32>(&source.view(&[row0, split * depth], &[rows, depth]));
            let b = block.tile::<f32>(&w.view(&[0, split * depth], &[HC_MIX, depth]));
            let mut c = block.tile_mut::<f32>(&target.view(&[split * padded + row0, 0], &[rows, HC_MIX_PAD]));
            let mut c = c.tile_mut();
            c.sub_mut(0..rows, HC_MIX..HC_MIX_PAD).fill(0.0);
            gemm(
                a.tile(),
                Rhs::Nk(b.tile()),
                &mut c.sub_mut(0..rows, 0..HC_MIX),
                Store::Overwrite,
            );
        });
    o.submit(task)?;
    Ok(())
}

fn linear_reduce(o: &mut Orchestrator<'_>, tokens: usize, partials: &Tensor, raw: &Tensor) -> Result<(), Halted> {
    let (source, target) = (partials.clone(), raw.clone());
    let padded = raw.dims()[0];
    let task = Task::new("hc_pre_linear_reduce", Unit::Vector)
        .blocks(padded / MATRIX_ROWS)
        .input(partials)
        .write(raw)
        .run(move |block| {
            let row0 = block.index() * MATRIX_ROWS;
            let rows = MATRIX_ROWS.min(tokens - row0);
            let mut sum = block.write::<f32>(&target.rows(row0..row0 + rows));
            for split in 0..SPLIT {
                let first = split * padded + row0;
                let part = block.read::<f32>(&source.rows(first..first + rows));
                if split == 0 {
                    sum.copy_from_slice(&part);
                } else {
                    math::add(&mut sum, &part);
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Dots of each token's streams with four rows of the projection, one token a block.
fn gate_linear(
    o: &mut Orchestrator<'_>,
    name: &'static str,
    x: &Tensor,
    weight: &Tensor,
    raw: &Tensor,
) -> Result<(), Halted> {
    let (source, w, target) = (x.clone(), weight.clone(), raw.clone());
    let task = Task::new(name, Unit::Vector)
        .blocks(x.dims()[0])
        .input(x)
        .input(weight)
        .write(raw)
        .run(move |block| {
            let t = block.index();
            let x = block.read::<f32>(&source.rows(t..t + 1));
            let w = block.tile::<f32>(&w);
            let mut raw = block.write::<f32>(&target.rows(t..t + 1));
            for n in 0..STREAMS {
                raw[n] = reduce::dot_chunked(&x, w.tile().row(n), CHUNK);
            }
        });
    o.submit(task)?;
    Ok(())
}

fn split_pre_post(
    o: &mut Orchestrator<'_>,
    tokens: usize,
    weights: &HcWeights,
    post: &Tensor,
    scratch: &HcPreScratch,
) -> Result<(), Halted> {
    let [pre_raw, post_raw, inv_rms, pre_val] =
        [&scratch.pre_raw, &scratch.post_raw, &scratch.inv_rms, &scratch.pre_val].map(Created::tensor);
    let (scale, base, post) = (weights.scale.clone(), weights.base.clone(), post.clone());
    let task = Task::new("split_pre_post", Unit::Vector)
        .blocks(tokens / TOKENS)
        .input(&pre_raw)
        .input(&post_raw)
        .input(&inv_rms)
        .input(&scale)
        .input(&base)
        .write(&pre_val)
        .write(&post)
        .run(move |block| {
            let rows = block.index() * TOKENS..(block.index() + 1) * TOKENS;
            let (scale, base) = (block.read::<f32>(&scale), block.read::<f32>(&base));
            let inv = block.read::<f32>(&inv_rms.rows(rows.clone()));
            let raw = [&pre_raw, &post_raw].map(|t| block.tile::<f32>(&t.rows(rows.clone())));
            let mut pre_val = block.tile_mut::<f32>(&pre_val.rows(rows.clone()));
            let mut post = block.tile_mut::<f32>(&post.rows(rows.clone()));
            // Eight values a token, so precision costs nothing: the gates stand before the rounding of whole rows to bf16.
            let sigmoid = |z: f32| (1.0 / ((-f64::from(z)).exp() + 1.0)) as f32;
            let gate = |raw: f32, inv: f32, scale: f32, base: f32| sigmoid((raw * inv) * scale + base);
            for t in 0..TOKENS {
                for h in 0..STREAMS {
                    let [pre_raw, post_raw] = [raw[0].tile().row(t)[h], raw[1].tile().row(t)[h]];
                    pre_val.tile_mut().row_mut(t)[h] = gate(pre_raw, inv[t], scale[0], base[h]) + HC_EPS;
                    post.tile_mut().row_mut(t)[h] = 2.0 * gate(post_raw, inv[t], scale[1], base[STREAMS + h]);
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Row softmax, then column and row sums are brought to one in turn.
fn sinkhorn(m: &mut [[f32; STREAMS]; STREAMS]) {
    for row in m.iter_mut() {
        let parts = math::softmax_parts(row);
        row.iter_mut().for_each(|v| *v = *v / parts.sum + HC_EPS);
    }
    let columns = |m: &mut [[f32; STREAMS]; STREAMS]| {
        for j in 0..STREAMS {
            let sum = (m[0][j] + m[1][j]) + (m[2][j] + m[3][j]);
            m.iter_mut().for_each(|row| row[j] /= sum + HC_EPS);
        }
    };
    columns(m);
    for _ in 1..SINKHORN_ROUNDS {
        for row in m.iter_mut() {
            let sum = reduce::sum(row);
            row.iter_mut().for_each(|v| *v /= sum + HC_EPS);
        }
        columns(m);
    }
}

fn comb_sinkhorn(
    o: &mut Orchestrator<'_>,
    tokens: usize,
    weights: &HcWeights,
    comb: &Tensor,
    scratch: &HcPreScratch,
) -> Result<(), Halted> {
    let [raw, inv_rms] = [&scratch.mixes_raw, &scratch.inv_rms].map(Created::tensor);
    let (scale, base, comb) = (weights.scale.clone(), weights.base.clone(), comb.clone());
    let task = Task::new("comb_sinkhorn", Unit::Vector)
        .blocks(tokens / TOKENS)
        .input(&raw)
        .input(&inv_rms)
        .input(&scale)
        .input(&base)
        .write(&comb)
        .run(move |block| {
            let rows = block.index() * TOKENS..(block.index() + 1) * TOKENS;
            let (scale, base) = (block.read::<f32>(&scale), block.read::<f32>(&base));
            let inv = block.read::<f32>(&inv_rms.rows(rows.clone()));
            let raw = block.tile::<f32>(&raw.rows(rows.clone()));
            let mut comb = block.tile_mut::<f32>(&comb.rows(rows));
            for (t, inv) in inv.iter().enumerate() {
                let raw = raw.tile().row(t);
                let mut m = [[0f32; STREAMS]; STREAMS];
                for (i, v) in m.as_flattened_mut().iter_mut().enumerate() {
                    let n = 2 * STREAMS + i;
                    *v = (raw[n] * inv) * scale[2] + base[n];
                }
                sinkhorn(&mut m);
                comb.tile_mut().row_mut(t).copy_from_slice(m.as_flattened());
            }
        });
    o.submit(task)?;
    Ok(())
}

vectorised! {
    /// `sum = (x₀·g₀ + x₁·g₁) + (x₂·g₂ + x₃·g₃)`.
    pub(super) fn collapse(streams: [&[f32]; STREAMS], gates: [f32; STREAMS], sum: &mut [f32]) {
        for (d, sum) in sum.iter_mut().enumerate() {
            let [a, b, c, e] = [0, 1, 2, 3].map(|i| streams[i][d] * gates[i]);
            *sum = (a + b) + (c + e);
        }
    }
}

fn mix_x(o: &mut Orchestrator<'_>, x: &Tensor, pre_val: &Tensor, x_mixed: &Tensor) -> Result<(), Halted> {
    let (source, gates, target) = (x.clone(), pre_val.clone(), x_mixed.clone());
    let column_blocks = HIDDEN / MIX_COLUMNS;
    let task = Task::new("mix_x", Unit::Vector)
        .blocks(x.dims()[0] / TOKENS * column_blocks)
        .input(pre_val)
        .input(x)
        .write(x_mixed)
        .run(move |block| {
            let (row0, col0) = (
                block.index() / column_blocks * TOKENS,
                block.index() % column_blocks * MIX_COLUMNS,
            );
            let gates = block.tile::<f32>(&gates.rows(row0..row0 + TOKENS));
            let streams = [0, 1, 2, 3]
                .map(|i| block.tile::<f32>(&source.view(&[row0, i * HIDDEN + col0], &[TOKENS, MIX_COLUMNS])));
            let mut target = block.tile_mut::<bf16>(&target.view(&[row0, col0], &[TOKENS, MIX_COLUMNS]));
            let mut sum = vec![0f32; MIX_COLUMNS];
            for t in 0..TOKENS {
                let g = gates.tile().row(t);
                collapse(
                    [0, 1, 2, 3].map(|i| streams[i].tile().row(t)),
                    [g[0], g[1], g[2], g[3]],
                    &mut sum,
                );
                cast::narrow(&sum, target.tile_mut().row_mut(t));
            }
        });
    o.submit(task)?;
    Ok(())
}
