//! What the compressors of the key-value stream have in common, in decode and prefill, main and inner.

pub(crate) mod decode;
mod pool;
pub(crate) mod prefill;

use half::bf16;
use ring_runtime::{Block, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub(crate) use pool::{Online, normalise};

use crate::fixture::CompressorWeights;
use crate::golden::compressor::Weights;
use crate::tile::cast;
use crate::tile::gemm::{Rhs, Store, gemm};

/// Score of an entry that is not there: no weight beside a real one.
pub(crate) const ABSENT: f32 = f32::MIN;

/// The projections of a tile and where they go.
#[derive(Clone, Debug)]
pub(crate) struct Projection<'a> {
    /// Name of the launch.
    pub(crate) name: &'static str,
    /// Normalised activations, [T, 7168] bf16.
    pub(crate) x: &'a Tensor,
    pub(crate) weights: &'a CompressorWeights,
    /// [rows ≥ T, out] f32; rows from T on are zeroed.
    pub(crate) kv: &'a Tensor,
    pub(crate) score: &'a Tensor,
    /// Columns of a block.
    pub(crate) columns: usize,
}

/// Submits `x·wkvᵀ` and `x·wgateᵀ`; also waits for `late`.
pub(crate) fn project(o: &mut Orchestrator<'_>, p: &Projection<'_>, late: Option<TaskId>) -> Result<(), Halted> {
    let (x, columns) = (p.x.clone(), p.columns);
    let [weights, targets] = [[&p.weights.wkv, &p.weights.wgate], [p.kv, p.score]].map(|pair| pair.map(Tensor::clone));
    let (tokens, depth, rows) = (x.dims()[0], x.dims()[1], p.kv.dims()[0]);
    let mut task = Task::new(p.name, Unit::Matrix)
        .blocks(p.kv.dims()[1] / columns)
        .input(p.x)
        .input(&p.weights.wkv)
        .input(&p.weights.wgate)
        .write(p.kv)
        .write(p.score);
    if let Some(late) = late {
        task = task.after(late);
    }
    let task = task.run(move |block| {
        let col0 = block.index() * columns;
        let a = block.tile::<bf16>(&x);
        for (weight, target) in weights.iter().zip(&targets) {
            let b = block.tile::<bf16>(&weight.view(&[col0, 0], &[columns, depth]));
            let mut c = block.tile_mut::<f32>(&target.view(&[0, col0], &[rows, columns]));
            let mut c = c.tile_mut();
            c.sub_mut(tokens..rows, 0..columns).fill(0.0);
            gemm(
                a.tile(),
                Rhs::Nk(b.tile()),
                &mut c.sub_mut(0..tokens, 0..columns),
                Store::Overwrite,
            );
        }
    });
    o.submit(task)?;
    Ok(())
}

/// A pool of keys or of their scales, [pages, 128, 1, n], as rows.
pub(crate) fn key_rows(pool: &Tensor) -> Tensor {
    let width = pool.dims()[pool.rank() - 1];
    pool.reshape(&[pool.len() / width, width])
}

/// Stores a rotated key of the indexer in row `slot` of the pools: rounded to bf16, then to int8 with a scale of its own.
pub(crate) fn quantise_key(block: &Block<'_>, rotated: &[f32], (keys, scales): (&Tensor, &Tensor), slot: usize) {
    let mut rounded = vec![bf16::ZERO; rotated.len()];
    cast::narrow(rotated, &mut rounded);
    let mut wide = vec![0f32; rotated.len()];
    cast::widen(&rounded, &mut wide);
    let scale = cast::quantise_row_amax(&wide, &mut block.write::<i8>(&keys.rows(slot..slot + 1)));
    block.write::<f32>(&scales.rows(slot..slot + 1))[0] = scale.dequant;
}

/// Calls `work` with the reference's view of the weights.
pub(crate) fn with_weights<R>(weights: &CompressorWeights, work: impl FnOnce(Weights<'_>) -> R) -> R {
    work(Weights {
        wkv: &weights.wkv.read(),
        wgate: &weights.wgate.read(),
        ape: &weights.ape.read(),
        norm: &weights.norm.read(),
    })
}
