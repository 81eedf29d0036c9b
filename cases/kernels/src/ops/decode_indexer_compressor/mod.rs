//! Inner compressor of the indexer in decode: each completed window becomes one int8 key with a scale.

pub(crate) mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub use case::DecodeIndexerCompressor;

use super::compressor::decode::{StepArgs, closed, scatter_softmax_pool};
use super::compressor::{Projection, key_rows, normalise, project, quantise_key};
use crate::creates::{Created, Creates};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::INDEX;
use crate::model::{INDEX_DIM, MATRIX_ROWS, REQUESTS, ROPE_DIM, STEP_TOKENS};
use crate::tile::cast;
use crate::tile::gemm::{Rhs, Store, gemm};

/// Lanes of a key that are not rotated.
const NOPE: usize = INDEX_DIM - ROPE_DIM;
/// Columns of a tile of the Hadamard product.
const TILE: usize = 64;

/// Arguments of a step.
#[derive(Clone, Debug)]
pub(crate) struct DecodeIndexerCompressorArgs {
    /// What the step has in common with the main compressors; the caller chooses the angles' position.
    pub(crate) step: StepArgs,
    /// Rotation of keys, [128, 128] bf16.
    pub(crate) hadamard: Tensor,
    /// Completed keys before their roundings, [4, 2, 128] f32: row `[b, 0]` is written where request `b` completed one.
    pub(crate) kv: Tensor,
    /// Keys, [pages, 128, 1, 128] i8, the mapped rows are written.
    pub(crate) cache: Tensor,
    /// Scales of the keys, [pages, 128, 1, 1] f32.
    pub(crate) scale: Tensor,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct DecodeIndexerCompressorScratch {
    kv_proj: Created,
    score_proj: Created,
    pooled: Created,
    normed: Created,
    cos_il: Created,
    sin_signed: Created,
    swap: Created,
    kv_final: Created,
}

impl DecodeIndexerCompressorScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let mut create = |name, dtype, cols| creates.tensor(name, dtype, &[MATRIX_ROWS, cols]);
        Self {
            kv_proj: create("kv_proj_pad", DType::F32, INDEX.out()),
            score_proj: create("score_proj_pad", DType::F32, INDEX.out()),
            pooled: create("pooled_kv", DType::F32, INDEX_DIM),
            normed: create("normed_kv", DType::Bf16, INDEX_DIM),
            cos_il: create("cmp_cos_il", DType::F32, ROPE_DIM),
            sin_signed: create("cmp_sin_signed", DType::F32, ROPE_DIM),
            swap: creates.tensor("cmp_swap_flat", DType::I32, &[1, MATRIX_ROWS * ROPE_DIM]),
            kv_final: creates.tensor("kv_final", DType::F32, &[MATRIX_ROWS, INDEX_DIM]),
        }
    }
}

/// Submits the six launches; the projections also wait for `late`. Returns the last one, after which the keys are there.
pub(crate) fn decode_indexer_compressor(
    o: &mut Orchestrator<'_>,
    args: &DecodeIndexerCompressorArgs,
    weights: &CompressorWeights,
    late: TaskId,
    s: &DecodeIndexerCompressorScratch,
) -> Result<TaskId, Halted> {
    let tokens = args.step.slots.len();
    let projection = Projection {
        name: "kv_score_proj",
        x: &args.step.x.reshape(&[tokens, args.step.x.len() / tokens]),
        weights,
        kv: &s.kv_proj,
        score: &s.score_proj,
        columns: 32,
    };
    project(o, &projection, Some(late))?;
    scatter_softmax_pool(o, &args.step, &weights.ape, (&s.kv_proj, &s.score_proj), &s.pooled)?;
    rope_tables(
        o,
        "cmp_rope_tables",
        (&args.step.cos, &args.step.sin),
        (&s.cos_il, &s.sin_signed, &s.swap),
    )?;
    rmsnorm_rope(o, &weights.norm, s)?;
    hadamard(o, &args.hadamard, s)?;
    kv_and_cache_write(o, args, &s.kv_final)
}

/// Submits the spread of a request's 32 cosines and sines over 64 lanes, with the sign of each lane's partner term, and
/// the flat index of each lane's partner, for as many rows as that has.
///
/// Angles are [4, 32] f32; the spread ones have a row per request (and more, which are left alone).
pub(crate) fn rope_tables(
    o: &mut Orchestrator<'_>,
    name: &'static str,
    (cos, sin): (&Tensor, &Tensor),
    (cos_il, sin_signed, swap): (&Tensor, &Tensor, &Tensor),
) -> Result<(), Halted> {
    let [cos_in, sin_in, cos_out, sin_out, swap_out] = [cos, sin, cos_il, sin_signed, swap].map(Tensor::clone);
    let task = Task::new(name, Unit::Vector)
        .input(cos)
        .input(sin)
        .write(cos_il)
        .write(sin_signed)
        .write(swap)
        .run(move |block| {
            let (cos, sin) = (block.read::<f32>(&cos_in), block.read::<f32>(&sin_in));
            let (mut cos_out, mut sin_out) = (block.write::<f32>(&cos_out), block.write::<f32>(&sin_out));
            for i in 0..REQUESTS * ROPE_DIM {
                cos_out[i] = cos[i / 2];
                sin_out[i] = if i % 2 == 0 { -sin[i / 2] } else { sin[i / 2] };
            }
            for (i, swap) in block.write::<i32>(&swap_out).iter_mut().enumerate() {
                *swap = (i ^ 1) as i32;
            }
        });
    o.submit(task)?;
    Ok(())
}

/// RMSNorm with gain, turn of the last 64 lanes, and rounding to bf16 of each request's row.
///
/// Rows of requests without a completed window hold whatever the ring held; they are worked on and never stored.
fn rmsnorm_rope(o: &mut Orchestrator<'_>, norm: &Tensor, s: &DecodeIndexerCompressorScratch) -> Result<(), Halted> {
    let [pooled, normed, cos_il, sin_signed, swap] =
        [&s.pooled, &s.normed, &s.cos_il, &s.sin_signed, &s.swap].map(Created::tensor);
    let gain = norm.clone();
    let task = Task::new("rmsnorm_rope", Unit::Vector)
        .input(&pooled)
        .input(norm)
        .input(&cos_il)
        .input(&sin_signed)
        .input(&swap)
        .write(&normed)
        .run(move |block| {
            let gain = block.read::<bf16>(&gain);
            let pooled = block.tile::<f32>(&pooled);
            let tables = [&cos_il, &sin_signed].map(|t| block.tile::<f32>(t));
            let swap = block.read::<i32>(&swap);
            let mut normed = block.tile_mut::<bf16>(&normed);
            let (mut row, mut turned) = ([0f32; INDEX_DIM], [0f32; ROPE_DIM]);
            for b in 0..REQUESTS {
                row.copy_from_slice(pooled.tile().row(b));
                normalise(&mut row, &gain);
                let [cos, sin] = [0, 1].map(|i| tables[i].tile().row(b));
                for (j, turned) in turned.iter_mut().enumerate() {
                    let partner = row[NOPE + swap[j] as usize];
                    *turned = row[NOPE + j] * cos[j] + partner * sin[j];
                }
                let mut normed = normed.tile_mut();
                let (nope, rope) = normed.row_mut(b).split_at_mut(NOPE);
                cast::narrow(&row[..NOPE], nope);
                cast::narrow(&turned, rope);
            }
        });
    o.submit(task)?;
    Ok(())
}

fn hadamard(o: &mut Orchestrator<'_>, matrix: &Tensor, s: &DecodeIndexerCompressorScratch) -> Result<(), Halted> {
    let (normed, rotation, target) = (s.normed.tensor(), matrix.clone(), s.kv_final.tensor());
    let task = Task::new("kv_hadamard", Unit::Matrix)
        .input(&normed)
        .input(matrix)
        .write(&target)
        .run(move |block| {
            let a = block.tile::<bf16>(&normed.rows(0..REQUESTS));
            for col0 in (0..INDEX_DIM).step_by(TILE) {
                let b = block.tile::<bf16>(&rotation.view(&[0, col0], &[INDEX_DIM, TILE]));
                let mut c = block.tile_mut::<f32>(&target.view(&[0, col0], &[REQUESTS, TILE]));
                gemm(a.tile(), Rhs::Kn(b.tile()), &mut c.tile_mut(), Store::Overwrite);
            }
        });
    o.submit(task)?;
    Ok(())
}

fn kv_and_cache_write(
    o: &mut Orchestrator<'_>,
    args: &DecodeIndexerCompressorArgs,
    kv_final: &Tensor,
) -> Result<TaskId, Halted> {
    let (source, positions, slots) = (kv_final.clone(), args.step.positions.clone(), args.step.slots.clone());
    let kv = args.kv.reshape(&[REQUESTS * STEP_TOKENS, INDEX_DIM]);
    let [cache, scale] = [&args.cache, &args.scale].map(key_rows);
    let task = Task::new("kv_and_cache_write", Unit::Vector)
        .input(kv_final)
        .input(&positions)
        .input(&slots)
        .inout(&args.kv)
        .inout(&args.cache)
        .inout(&args.scale)
        .run(move |block| {
            let (positions, slots) = (block.read::<i32>(&positions), block.read::<i64>(&slots));
            let rows = block.tile::<f32>(&source);
            for (b, slot) in closed(&INDEX, &positions, &slots) {
                if let Ok(slot) = usize::try_from(slot) {
                    let row = rows.tile().row(b);
                    block
                        .write::<f32>(&kv.rows(b * STEP_TOKENS..b * STEP_TOKENS + 1))
                        .copy_from_slice(row);
                    quantise_key(block, row, (&cache, &scale), slot);
                }
            }
        });
    Ok(o.submit(task)?.id)
}
