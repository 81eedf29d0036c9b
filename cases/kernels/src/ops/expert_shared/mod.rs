//! The shared expert: a W8A8 SwiGLU network that every token of the rank goes through.

pub(crate) mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::swiglu::{ExpertWeights, product, swiglu};
use crate::creates::{Created, Creates};
use crate::fixture::Quantised;
use crate::model::{EXPERT_DIM, HIDDEN, MATRIX_ROWS};
use crate::scopes::BodyScopes;
use crate::tile::{cast, reduce};

pub use case::ExpertShared;

/// Blocks of the gate and of the up product.
const UP_BLOCKS: usize = 12;
/// Blocks of the down product.
const DOWN_BLOCKS: usize = 28;
/// Rows of an activation block.
const ACT_ROWS: usize = 2;
/// Columns that the last stage works on at a time.
const OUT_COLUMNS: usize = 512;
/// A row's scale is stored this often: the width of a vector load.
const SCALE_COPIES: usize = 8;

/// The tensors that the body of a tile creates.
#[derive(Debug)]
struct Tile {
    gate: Created,
    up: Created,
    h: Created,
    h_i8: Created,
    h_scale: Tensor,
    y: Created,
}

impl Tile {
    fn create(o: &mut Orchestrator<'_>) -> Result<Self, Halted> {
        let mut creates = Creates::new();
        let mut tensor = |name, dtype, cols| creates.tensor(name, dtype, &[MATRIX_ROWS, cols]);
        let gate = tensor("gate_i32", DType::I32, EXPERT_DIM);
        let up = tensor("up_i32", DType::I32, EXPERT_DIM);
        let h = tensor("h_tile_fp32", DType::F32, EXPERT_DIM);
        let h_i8 = tensor("h_tile_i8", DType::I8, EXPERT_DIM);
        let h_scale = tensor("h_tile_scale_dq", DType::F32, SCALE_COPIES);
        let y = tensor("y_i32", DType::I32, HIDDEN);
        creates.alloc(o)?;
        Ok(Self {
            gate,
            up,
            h,
            h_i8,
            // Its order rides on `h_tile_i8` and `y_i32`.
            h_scale: h_scale.tensor().untracked(),
            y,
        })
    }
}

/// Submits the launches: `sh` [T, 7168] bf16 of the rows `x` [T, 7168] i8 with scales `x_scale` [T, 1] f32, 16 tokens a tile.
///
/// Each tile is the body of a parallel `for`, which creates its own buffers.
pub(crate) fn expert_shared(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    x: &Tensor,
    x_scale: &Tensor,
    weights: &ExpertWeights,
    sh: &Tensor,
) -> Result<(), Halted> {
    let tokens = x.dims()[0];
    for first in (0..tokens).step_by(MATRIX_ROWS) {
        let rows = first..tokens.min(first + MATRIX_ROWS);
        let live = rows.len();
        let [x, x_scale, sh] = [x, x_scale, sh].map(|t| t.rows(rows.clone()));
        bodies.body(o, |o| {
            let tile = Tile::create(o)?;
            product(o, "sh_gate_mm", UP_BLOCKS, live, &x, &weights.gate.codes, &tile.gate)?;
            product(o, "sh_up_mm", UP_BLOCKS, live, &x, &weights.up.codes, &tile.up)?;
            gate_up_act_q(o, &x_scale, weights, &tile)?;
            product(
                o,
                "sh_w2_mm",
                DOWN_BLOCKS,
                live,
                &tile.h_i8,
                &weights.down.codes,
                &tile.y,
            )?;
            w2_act(o, &weights.down, &tile, &sh)
        })?;
    }
    Ok(())
}

/// Activation and quantisation of two rows a block.
///
/// The original zero-fills the code buffer once, for the rows without a token; [`product`] gives zero for those by itself.
fn gate_up_act_q(
    o: &mut Orchestrator<'_>,
    x_scale: &Tensor,
    weights: &ExpertWeights,
    tile: &Tile,
) -> Result<(), Halted> {
    let live = x_scale.dims()[0];
    let [gate, up, h, h_i8] = [&tile.gate, &tile.up, &tile.h, &tile.h_i8].map(Created::tensor);
    let h_scale = tile.h_scale.clone();
    let [x_scale, gate_scale, up_scale] = [x_scale, &weights.gate.scales, &weights.up.scales].map(Tensor::clone);
    let task = Task::new("sh_gate_up_act_q", Unit::Vector)
        .blocks(live.div_ceil(ACT_ROWS))
        .input(&gate)
        .input(&up)
        .input(&x_scale)
        .input(&gate_scale)
        .input(&up_scale)
        .write(&h)
        .write(&h_i8)
        .write(&h_scale)
        .run(move |block| {
            let first = block.index() * ACT_ROWS;
            let rows = first..live.min(first + ACT_ROWS);
            let [gate, up] = [&gate, &up].map(|t| block.tile::<i32>(&t.rows(rows.clone())));
            let x_scale = block.read::<f32>(&x_scale.rows(rows.clone()));
            let [gate_scale, up_scale] = [&gate_scale, &up_scale].map(|t| block.read::<f32>(t));
            let mut h = block.tile_mut::<f32>(&h.rows(rows.clone()));
            let mut h_i8 = block.tile_mut::<i8>(&h_i8.rows(rows.clone()));
            let mut h_scale = block.tile_mut::<f32>(&h_scale.rows(rows));
            for (t, x_scale) in x_scale.iter().enumerate() {
                let mut h = h.tile_mut();
                let h = h.row_mut(t);
                swiglu(
                    gate.tile().row(t),
                    up.tile().row(t),
                    *x_scale,
                    &gate_scale,
                    &up_scale,
                    h,
                );
                let scale = cast::quantise_row_amax(h, h_i8.tile_mut().row_mut(t));
                h_scale.tile_mut().row_mut(t).fill(scale.dequant);
            }
        });
    o.submit(task)?;
    Ok(())
}

fn w2_act(o: &mut Orchestrator<'_>, down: &Quantised, tile: &Tile, sh: &Tensor) -> Result<(), Halted> {
    let (y, h_scale, down_scale, target) = (tile.y.tensor(), tile.h_scale.clone(), down.scales.clone(), sh.clone());
    let live = sh.dims()[0];
    let task = Task::new("sh_w2_act", Unit::Vector)
        .input(&y)
        .input(&h_scale)
        .input(&down_scale)
        .write(sh)
        .run(move |block| {
            let y = block.tile::<i32>(&y.rows(0..live));
            let h_scale = block.tile::<f32>(&h_scale.rows(0..live));
            let down_scale = block.read::<f32>(&down_scale);
            let mut target = block.tile_mut::<bf16>(&target);
            let mut wide = [0f32; OUT_COLUMNS];
            for t in 0..live {
                let scale = reduce::max(h_scale.tile().row(t));
                let mut target = target.tile_mut();
                let columns = target.row_mut(t).chunks_mut(OUT_COLUMNS);
                let sources = y.tile().row(t).chunks(OUT_COLUMNS).zip(down_scale.chunks(OUT_COLUMNS));
                for (out, (acc, column)) in columns.zip(sources) {
                    cast::dequantise(acc, scale, column, &mut wide);
                    cast::narrow(&wide, out);
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
