//! The routed experts of one rank: each local expert's W8A8 SwiGLU network over the rows that were sent to it.

pub(crate) mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, ScopeMode, Task, Tensor, Unit};

use super::swiglu::{ExpertWeights, product, swiglu};
use crate::creates::{Created, Creates};
use crate::model::{EXPERT_DIM, HIDDEN, MATRIX_ROWS};
use crate::scopes::BodyScopes;
use crate::tile::cast;

pub use case::ExpertRouted;

/// Blocks of the gate and of the up product.
const UP_BLOCKS: usize = 3;
/// Blocks of the activation.
const ACT_BLOCKS: usize = 6;
/// Blocks of the down product.
const DOWN_BLOCKS: usize = 7;
/// Columns that the last stage works on at a time.
const OUT_COLUMNS: usize = 512;

/// What was sent to the local experts; M rows at most for each.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// Rows, [E, M, 7168] i8.
    pub(crate) x: Tensor,
    /// What turns them back into values, [E, M] f32.
    pub(crate) scale: Tensor,
    /// Route weights, [E, M] f32.
    pub(crate) weights: Tensor,
    /// Rows of each expert, [E, 1] i32; read by the orchestrator.
    pub(crate) count: Tensor,
}

/// Up to 16 rows of one expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowTile {
    expert: usize,
    /// First row, of all experts' rows.
    first: usize,
    /// Rows that hold values.
    live: usize,
}

impl RowTile {
    /// The rows of `tensor`, whose leading axis counts all experts' rows.
    fn of(self, tensor: &Tensor) -> Tensor {
        tensor.rows(self.first..self.first + MATRIX_ROWS)
    }
}

/// Runs `body` for every tile of every expert, in two nested `for` loops whose bounds are read from device memory.
fn for_each_tile(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    received: &Received,
    mut body: impl FnMut(&mut Orchestrator<'_>, RowTile) -> Result<(), Halted>,
) -> Result<(), Halted> {
    let (experts, most) = (received.x.dims()[0], received.x.dims()[1]);
    for expert in 0..experts {
        bodies.body(o, |o| {
            let count = o.read_scalar::<i32>(&received.count, expert)?;
            let Some(count) = usize::try_from(count).ok().filter(|count| *count <= most) else {
                return Err(o.fail(format!("expert {expert} received {count} rows, not 0 to {most}")));
            };
            for row in (0..count).step_by(MATRIX_ROWS) {
                let tile = RowTile {
                    expert,
                    first: expert * most + row,
                    live: MATRIX_ROWS.min(count - row),
                };
                bodies.body(o, |o| body(o, tile))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Submits the launches: `y` [E, M, 7168] bf16 gets the whole tiles that hold received rows, the rest is left alone.
///
/// Opens the explicit scope of the hidden rows; in it a scope per tile (gate, up, activation), and
/// one around the down projections of all tiles.
pub(crate) fn expert_routed(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    received: &Received,
    weights: &ExpertWeights,
    y: &Tensor,
) -> Result<(), Halted> {
    let rows = received.x.dims()[0] * received.x.dims()[1];
    let x = received.x.reshape(&[rows, HIDDEN]);
    let [scale, route] = [&received.scale, &received.weights].map(|t| t.reshape(&[rows]));
    let y = y.reshape(&[rows, HIDDEN]);
    o.scope(ScopeMode::Auto, |o| {
        let mut creates = Creates::new();
        let h_i8 = creates.tensor("h_i8", DType::I8, &[rows, EXPERT_DIM]);
        let h_scale = creates.tensor("h_scale_dq", DType::F32, &[rows, 1]);
        creates.alloc(o)?;
        // Its order rides on `h_i8`.
        let h_scale = h_scale.tensor().untracked();
        for_each_tile(o, bodies, received, |o, tile| {
            let weights = weights.of_expert(tile.expert);
            o.scope(ScopeMode::Auto, |o| {
                hidden_rows(o, tile, &x, &scale, &weights, &h_i8, &h_scale)
            })
        })?;
        o.scope(ScopeMode::Auto, |o| {
            for_each_tile(o, bodies, received, |o, tile| {
                let down = weights.of_expert(tile.expert).down;
                let mut creates = Creates::new();
                let acc = creates.tensor("y_i32", DType::I32, &[MATRIX_ROWS, HIDDEN]);
                creates.alloc(o)?;
                product(
                    o,
                    "exp_w2_mm",
                    DOWN_BLOCKS,
                    tile.live,
                    &tile.of(&h_i8),
                    &down.codes,
                    &acc,
                )?;
                w2_act(
                    o,
                    &acc,
                    [&h_scale, &route].map(|t| tile.of(t)),
                    &down.scales,
                    &tile.of(&y),
                )
            })
        })
    })
}

/// First phase of a tile: from received rows to hidden codes.
fn hidden_rows(
    o: &mut Orchestrator<'_>,
    tile: RowTile,
    x: &Tensor,
    x_scale: &Tensor,
    weights: &ExpertWeights,
    h_i8: &Tensor,
    h_scale: &Tensor,
) -> Result<(), Halted> {
    let mut creates = Creates::new();
    let mut buffer = |name, dtype| creates.tensor(name, dtype, &[MATRIX_ROWS, EXPERT_DIM]);
    let gate = buffer("gate_tile_i32", DType::I32);
    let up = buffer("up_tile_i32", DType::I32);
    let h = buffer("h_tile_fp32", DType::F32);
    creates.alloc(o)?;
    let x = tile.of(x);
    product(o, "exp_gate_mm", UP_BLOCKS, tile.live, &x, &weights.gate.codes, &gate)?;
    product(o, "exp_up_mm", UP_BLOCKS, tile.live, &x, &weights.up.codes, &up)?;
    gate_up_act(o, tile.live, [&gate, &up], &tile.of(x_scale), weights, &h)?;
    h_q(o, &h, &tile.of(h_i8), &tile.of(h_scale))
}

fn gate_up_act(
    o: &mut Orchestrator<'_>,
    live: usize,
    [gate, up]: [&Created; 2],
    x_scale: &Tensor,
    weights: &ExpertWeights,
    h: &Tensor,
) -> Result<(), Halted> {
    let (gate, up, target, x_scale) = (gate.tensor(), up.tensor(), h.clone(), x_scale.clone());
    let (gate_scale, up_scale) = (weights.gate.scales.clone(), weights.up.scales.clone());
    let width = EXPERT_DIM / ACT_BLOCKS;
    let task = Task::new("exp_gate_up_act", Unit::Vector)
        .blocks(ACT_BLOCKS)
        .input(&gate)
        .input(&up)
        .input(&x_scale)
        .input(&gate_scale)
        .input(&up_scale)
        .write(h)
        .run(move |block| {
            let col0 = block.index() * width;
            let columns = |t: &Tensor, rows| t.view(&[0, col0], &[rows, width]);
            let [gate, up] = [&gate, &up].map(|t| block.tile::<i32>(&columns(t, live)));
            let [gate_scale, up_scale] =
                [&gate_scale, &up_scale].map(|t| block.read::<f32>(&t.rows(col0..col0 + width)));
            let x_scale = block.read::<f32>(&x_scale);
            let mut h = block.tile_mut::<f32>(&columns(&target, MATRIX_ROWS));
            let mut h = h.tile_mut();
            for t in 0..live {
                let (gate, up) = (gate.tile(), up.tile());
                swiglu(gate.row(t), up.row(t), x_scale[t], &gate_scale, &up_scale, h.row_mut(t));
            }
            // What the scales of the other rows hold must not matter.
            h.sub_mut(live..MATRIX_ROWS, 0..width).fill(0.0);
        });
    o.submit(task)?;
    Ok(())
}

fn h_q(o: &mut Orchestrator<'_>, h: &Tensor, h_i8: &Tensor, h_scale: &Tensor) -> Result<(), Halted> {
    let (source, codes, scales) = (h.clone(), h_i8.clone(), h_scale.clone());
    let task = Task::new("exp_h_q", Unit::Vector)
        .input(h)
        .write(h_i8)
        .write(h_scale)
        .run(move |block| {
            let h = block.tile::<f32>(&source);
            let mut codes = block.tile_mut::<i8>(&codes);
            let mut scales = block.write::<f32>(&scales);
            for (t, scale) in scales.iter_mut().enumerate() {
                *scale = cast::quantise_row_amax(h.tile().row(t), codes.tile_mut().row_mut(t)).dequant;
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Writes the whole tile of `y`, rows without a value too.
fn w2_act(
    o: &mut Orchestrator<'_>,
    acc: &Tensor,
    [h_scale, route]: [Tensor; 2],
    down_scale: &Tensor,
    y: &Tensor,
) -> Result<(), Halted> {
    let (source, column_scale, target) = (acc.clone(), down_scale.clone(), y.clone());
    let task = Task::new("exp_w2_act", Unit::Vector)
        .input(acc)
        .input(&h_scale)
        .input(&route)
        .input(down_scale)
        .write(y)
        .run(move |block| {
            let acc = block.tile::<i32>(&source);
            let (h_scale, route) = (block.read::<f32>(&h_scale), block.read::<f32>(&route));
            let column_scale = block.read::<f32>(&column_scale);
            let mut y = block.tile_mut::<bf16>(&target);
            let mut wide = [0f32; OUT_COLUMNS];
            for t in 0..MATRIX_ROWS {
                let row_scale = h_scale[t] * route[t];
                let mut y = y.tile_mut();
                let columns = y.row_mut(t).chunks_mut(OUT_COLUMNS);
                let sources = acc
                    .tile()
                    .row(t)
                    .chunks(OUT_COLUMNS)
                    .zip(column_scale.chunks(OUT_COLUMNS));
                for (out, (acc, column)) in columns.zip(sources) {
                    cast::dequantise(acc, row_scale, column, &mut wide);
                    cast::narrow(&wide, out);
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
