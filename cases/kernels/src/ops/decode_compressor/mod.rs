//! Main compressors in decode: each completed window of a request becomes one row of the compressed pool.

mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub use case::{DecodeCompressorRatio4, DecodeCompressorRatio128};

use super::compressor::decode::{StepArgs, closed, scatter_softmax_pool};
use super::compressor::{Projection, normalise, project};
use crate::creates::{Created, Creates};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::Form;
use crate::model::{MATRIX_ROWS, ROPE_DIM, STEP_TOKENS};
use crate::tile::cast;
use crate::tile::rotary::{Turn, rotate};

/// Columns of a projection block.
const COLUMNS: usize = 64;

/// Arguments of a step.
#[derive(Clone, Debug)]
pub(crate) struct DecodeCompressorArgs {
    /// What the step has in common with the indexer's compressor; angles are those of the start of the window.
    pub(crate) step: StepArgs,
    /// Completed rows, [4, 2, 512] f32: row `[b, 0]` is written where request `b` completed one.
    pub(crate) kv: Tensor,
    /// Compressed pool, [pages, 128, 1, 512] bf16, the mapped rows are written.
    pub(crate) cmp_kv: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct DecodeCompressorScratch {
    kv_proj: Created,
    score_proj: Created,
    pooled: Created,
    normed: Created,
}

impl DecodeCompressorScratch {
    pub(crate) fn declare(creates: &mut Creates, form: &Form) -> Self {
        let mut create = |name, cols| creates.tensor(name, DType::F32, &[MATRIX_ROWS, cols]);
        Self {
            kv_proj: create("kv_proj_pad", form.out()),
            score_proj: create("score_proj_pad", form.out()),
            pooled: create("pooled_kv", form.head),
            normed: create("normed_kv", form.head),
        }
    }
}

/// Submits the three launches; the projections also wait for `late`.
pub(crate) fn decode_compressor(
    o: &mut Orchestrator<'_>,
    args: &DecodeCompressorArgs,
    weights: &CompressorWeights,
    late: TaskId,
    scratch: &DecodeCompressorScratch,
) -> Result<(), Halted> {
    let tokens = args.step.slots.len();
    let projection = Projection {
        name: "kv_score_proj",
        x: &args.step.x.reshape(&[tokens, args.step.x.len() / tokens]),
        weights,
        kv: &scratch.kv_proj,
        score: &scratch.score_proj,
        columns: COLUMNS,
    };
    project(o, &projection, Some(late))?;
    let projected = (&*scratch.kv_proj, &*scratch.score_proj);
    scatter_softmax_pool(o, &args.step, &weights.ape, projected, &scratch.pooled)?;
    rmsnorm_rope_cache_write(o, args, &weights.norm, scratch)
}

/// Normalises and turns the rows of closed windows and writes them where they belong.
fn rmsnorm_rope_cache_write(
    o: &mut Orchestrator<'_>,
    args: &DecodeCompressorArgs,
    norm: &Tensor,
    scratch: &DecodeCompressorScratch,
) -> Result<(), Halted> {
    let StepArgs {
        form,
        slots,
        positions,
        cos,
        sin,
        ..
    } = args.step.clone();
    let (gain, pooled, normed) = (norm.clone(), scratch.pooled.tensor(), scratch.normed.tensor());
    let kv = args.kv.reshape(&[args.kv.len() / form.head, form.head]);
    let pool = args.cmp_kv.reshape(&[args.cmp_kv.len() / form.head, form.head]);
    let task = Task::new("rmsnorm_rope_cache_write", Unit::Vector)
        .input(&pooled)
        .input(norm)
        .input(&cos)
        .input(&sin)
        .input(&positions)
        .input(&slots)
        .write(&normed)
        .inout(&args.kv)
        .inout(&args.cmp_kv)
        .run(move |block| {
            let (positions, slots) = (block.read::<i32>(&positions), block.read::<i64>(&slots));
            let [cos, sin] = [&cos, &sin].map(|t| block.tile::<f32>(t));
            let gain = block.read::<bf16>(&gain);
            let pooled = block.tile::<f32>(&pooled);
            let mut normed = block.tile_mut::<f32>(&normed);
            for (b, slot) in closed(&form, &positions, &slots) {
                let mut normed = normed.tile_mut();
                let row = normed.row_mut(b);
                row.copy_from_slice(pooled.tile().row(b));
                normalise(row, &gain);
                let lanes = &mut row[form.head - ROPE_DIM..];
                rotate(lanes, cos.tile().row(b), sin.tile().row(b), Turn::Forward);
                if let Ok(slot) = usize::try_from(slot) {
                    block
                        .write::<f32>(&kv.rows(b * STEP_TOKENS..b * STEP_TOKENS + 1))
                        .copy_from_slice(row);
                    cast::narrow(row, &mut block.write::<bf16>(&pool.rows(slot..slot + 1)));
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
