//! Low-rank int8 query projection with per-head RMSNorm and rotary lanes, and the shared key-value projection.

mod case;
mod key_value;
mod query;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub use case::QkvProjRope;

use crate::creates::{Created, Creates};
use crate::fixture::{Dist, Fixture, Quantised, Rounding};
use crate::golden::qkv::QkvIn;
use crate::model::{HEAD_DIM, HEADS, HIDDEN, MATRIX_ROWS, PREFILL_TOKENS, Q_LORA, ROPE_DIM};
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::math;

/// Tokens of a vector block.
const TOKENS: usize = 8;
/// Rows of the buffers: sized for prefill in decode too, as the programs that share them are.
const ROWS: usize = PREFILL_TOKENS;
/// Parts of the inner dimension of the query's down projection.
const Q_SPLIT: usize = 2;
/// Parts of the inner dimension of the key-value projection.
const KV_SPLIT: usize = 4;
/// Columns of a block of both.
const COLUMNS: usize = 128;
/// Columns of the up projection, all heads side by side.
const UP: usize = HEADS * HEAD_DIM;

/// Weights of the projections.
#[derive(Clone, Debug)]
pub(crate) struct QkvWeights {
    /// [7168, 1536] bf16.
    pub(crate) wq_a: Tensor,
    /// [1536, 65536] i8, one scale per column.
    pub(crate) wq_b: Quantised,
    /// [7168, 512] bf16.
    pub(crate) wkv: Tensor,
    /// \[1536\] bf16.
    pub(crate) gamma_cq: Tensor,
    /// \[512\] bf16.
    pub(crate) gamma_ckv: Tensor,
}

/// How the weights are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QkvDist {
    pub(crate) wq_a: Dist,
    pub(crate) wq_b: Dist,
    pub(crate) wkv: Dist,
    pub(crate) gamma: Dist,
    pub(crate) rounding: Rounding,
}

impl QkvDist {
    /// As the attention programs draw them: uniform with a width of one over the root of the inputs, gains of one.
    pub(crate) fn attention(rounding: Rounding) -> Self {
        let width = |inputs: usize| Dist::centred((inputs as f32).sqrt().recip());
        Self {
            wq_a: width(HIDDEN),
            wq_b: width(Q_LORA),
            wkv: width(HIDDEN),
            gamma: Dist::Constant(1.0),
            rounding,
        }
    }
}

impl QkvWeights {
    pub(crate) fn draw(fixture: Fixture, dist: QkvDist) -> Self {
        let bf16 = |name, dims: &[usize], dist| fixture.real(name, DType::Bf16, dims, dist);
        Self {
            wq_a: bf16("wq_a", &[HIDDEN, Q_LORA], dist.wq_a),
            wq_b: fixture.quantised_columns("wq_b", Q_LORA, UP, dist.wq_b, dist.rounding),
            wkv: bf16("wkv", &[HIDDEN, HEAD_DIM], dist.wkv),
            gamma_cq: bf16("gamma_cq", &[Q_LORA], dist.gamma),
            gamma_ckv: bf16("gamma_ckv", &[HEAD_DIM], dist.gamma),
        }
    }

    /// Calls `work` with the reference's view of the arguments.
    pub(crate) fn with_reference<R>(
        &self,
        x: &[bf16],
        (rope_cos, rope_sin): (&[bf16], &[bf16]),
        work: impl FnOnce(QkvIn<'_>) -> R,
    ) -> R {
        work(QkvIn {
            x,
            wq_a: &self.wq_a.read(),
            wq_b: &self.wq_b.codes.read(),
            wq_b_scale: &self.wq_b.scales.read(),
            wkv: &self.wkv.read(),
            gamma_cq: &self.gamma_cq.read(),
            gamma_ckv: &self.gamma_ckv.read(),
            rope_cos,
            rope_sin,
        })
    }
}

/// Activations in and out.
#[derive(Clone, Debug)]
pub(crate) struct QkvArgs {
    /// Normalised rows, [T, 7168] bf16.
    pub(crate) x: Tensor,
    /// Cosines of each token, [T, 64] bf16; the first half counts.
    pub(crate) rope_cos: Tensor,
    /// Sines of each token, [T, 64] bf16.
    pub(crate) rope_sin: Tensor,
    /// Queries, [T, 128, 512] bf16, written.
    pub(crate) q: Tensor,
    /// Key-value rows, [T, 512] bf16, written.
    pub(crate) kv: Tensor,
    /// Low-rank query codes, [T, 1536] i8, written.
    pub(crate) qr: Tensor,
    /// Their scales, [T, 1] f32, written.
    pub(crate) qr_scale: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct QkvScratch {
    cos_il: Created,
    sin_signed: Created,
    swap_idx: Created,
    qr_fp32: Created,
    qr_partials: Created,
    qr_i8: Created,
    q_proj: Created,
    kv_fp32: Created,
    kv_partials: Created,
}

impl QkvScratch {
    pub(crate) fn declare(creates: &mut Creates, tokens: usize) -> Self {
        let mut create = |name, dtype, rows, cols| creates.tensor(name, dtype, &[rows, cols]);
        Self {
            cos_il: create("q_rope_cos_il", DType::F32, tokens, ROPE_DIM),
            sin_signed: create("q_rope_sin_signed", DType::F32, tokens, ROPE_DIM),
            swap_idx: create("q_rope_swap_idx", DType::I32, tokens, ROPE_DIM),
            qr_fp32: create("qr_fp32", DType::F32, ROWS, Q_LORA),
            qr_partials: create("qr_partials", DType::F32, Q_SPLIT * ROWS, Q_LORA),
            qr_i8: create("qr_i8_matmul", DType::I8, ROWS, Q_LORA),
            q_proj: create("q_proj_i32", DType::I32, ROWS, UP),
            kv_fp32: create("kv_fp32", DType::F32, ROWS, HEAD_DIM),
            kv_partials: create("kv_partials", DType::F32, KV_SPLIT * ROWS, HEAD_DIM),
        }
    }
}

/// Submits the nine launches; the key-value projection also waits for `late`.
pub(crate) fn qkv_proj_rope(
    o: &mut Orchestrator<'_>,
    args: &QkvArgs,
    weights: &QkvWeights,
    late: TaskId,
    scratch: &QkvScratch,
) -> Result<(), Halted> {
    query::submit(o, args, weights, scratch)?;
    key_value::submit(o, args, weights, late, scratch)
}

/// Submits the gather of cosine and sine rows by position; rows from `num_tokens` on stay as they are.
///
/// Tables are [positions, 64] bf16, `position_ids` \[T\] i32, results [T, 64] bf16.
pub(crate) fn materialize_rope_rows(
    o: &mut Orchestrator<'_>,
    (freqs_cos, freqs_sin): (&Tensor, &Tensor),
    position_ids: &Tensor,
    num_tokens: usize,
    (rope_cos, rope_sin): (&Tensor, &Tensor),
) -> Result<(), Halted> {
    let [tables, targets] = [[freqs_cos, freqs_sin], [rope_cos, rope_sin]].map(|pair| pair.map(Tensor::clone));
    let positions = position_ids.clone();
    let task = Task::new("qkv_rope_rows", Unit::Vector)
        .blocks(rope_cos.dims()[0] / TOKENS)
        .input(freqs_cos)
        .input(freqs_sin)
        .input(position_ids)
        .write(rope_cos)
        .write(rope_sin)
        .run(move |block| {
            let first = block.index() * TOKENS;
            let positions = block.read::<i32>(&positions);
            for t in first..num_tokens.min(first + TOKENS) {
                let position = positions[t] as usize;
                for (table, target) in tables.iter().zip(&targets) {
                    let row = block.read::<bf16>(&table.rows(position..position + 1));
                    block.write::<bf16>(&target.rows(t..t + 1)).copy_from_slice(&row);
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Product of `x` [T, k] bf16 with a weight [k, n] bf16 in `splits` parts of k: part `s` of token `t` is row `s · 128 + t` of
/// `partials`. One block per 128 columns and part; `after` is waited for.
fn split_product(
    o: &mut Orchestrator<'_>,
    name: &'static str,
    (x, weight, partials): (&Tensor, &Tensor, &Tensor),
    splits: usize,
    after: Option<TaskId>,
) -> Result<(), Halted> {
    let (tokens, depth) = (x.dims()[0], x.dims()[1] / splits);
    let (source, w, target) = (x.clone(), weight.clone(), partials.clone());
    let mut task = Task::new(name, Unit::Matrix)
        .blocks(weight.dims()[1] / COLUMNS * splits)
        .input(x)
        .input(weight)
        .write(partials);
    if let Some(after) = after {
        task = task.after(after);
    }
    let task = task.run(move |block| {
        let (col0, split) = (block.index() / splits * COLUMNS, block.index() % splits);
        let a = block.tile::<bf16>(&source.view(&[0, split * depth], &[tokens, depth]));
        let b = block.tile::<bf16>(&w.view(&[split * depth, col0], &[depth, COLUMNS]));
        let mut c = block.tile_mut::<f32>(&target.view(&[split * ROWS, col0], &[tokens, COLUMNS]));
        gemm(a.tile(), Rhs::Kn(b.tile()), &mut c.tile_mut(), Store::Overwrite);
    });
    o.submit(task)?;
    Ok(())
}

/// Adds the parts of [`split_product`], ascending; one block per 16 tokens and 128 columns.
fn add_parts(
    o: &mut Orchestrator<'_>,
    name: &'static str,
    (partials, sum): (&Tensor, &Tensor),
    tokens: usize,
    splits: usize,
) -> Result<(), Halted> {
    let (source, target) = (partials.clone(), sum.clone());
    let column_blocks = sum.dims()[1] / COLUMNS;
    let task = Task::new(name, Unit::Vector)
        .blocks(tokens.div_ceil(MATRIX_ROWS) * column_blocks)
        .input(partials)
        .write(sum)
        .run(move |block| {
            let (row0, col0) = (
                block.index() / column_blocks * MATRIX_ROWS,
                block.index() % column_blocks * COLUMNS,
            );
            let rows = MATRIX_ROWS.min(tokens - row0);
            let parts: Vec<_> = (0..splits)
                .map(|s| block.tile::<f32>(&source.view(&[s * ROWS + row0, col0], &[rows, COLUMNS])))
                .collect();
            let mut sum = block.tile_mut::<f32>(&target.view(&[row0, col0], &[rows, COLUMNS]));
            for t in 0..rows {
                let mut sum = sum.tile_mut();
                let row = sum.row_mut(t);
                row.copy_from_slice(parts[0].tile().row(t));
                for part in &parts[1..] {
                    math::add(row, part.tile().row(t));
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
