//! Main compressors in prefill: the windows that a tile of one request completes become rows of the compressed pool.

mod case;
mod ratio128;
mod ratio4;

use half::bf16;
use ring_runtime::{Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub use case::{PrefillCompressorRatio4, PrefillCompressorRatio128};
pub(crate) use ratio4::{Ratio4Scratch, prefill_compressor_ratio4};
pub(crate) use ratio128::{Ratio128Scratch, prefill_compressor_ratio128};

use super::compressor::prefill::{TileArgs, WriteMap};
use crate::tile::cast;

/// Arguments of a tile.
#[derive(Clone, Debug)]
pub(crate) struct PrefillCompressorArgs {
    pub(crate) tile: TileArgs,
    /// Compressed pool, [pages, 128, 1, 512] bf16, the mapped rows are written.
    pub(crate) cmp_kv: Tensor,
}

/// Rounds normalised rows to where the map sends them, `rows` of them a block.
fn cache_write(
    o: &mut Orchestrator<'_>,
    (name, rows): (&'static str, usize),
    args: &PrefillCompressorArgs,
    map: &WriteMap,
    normed: &Tensor,
) -> Result<TaskId, Halted> {
    let head = args.tile.form.head;
    let pool = args.cmp_kv.reshape(&[args.cmp_kv.len() / head, head]);
    let (source, targets) = (normed.clone(), map.rows.tensor());
    let task = Task::new(name, Unit::Vector)
        .blocks(normed.dims()[0] / rows)
        .input(normed)
        .input(&targets)
        .inout(&args.cmp_kv)
        .run(move |block| {
            let targets = block.read::<i32>(&targets);
            for i in block.index() * rows..(block.index() + 1) * rows {
                if let Ok(target) = usize::try_from(targets[i]) {
                    let row = block.read::<f32>(&source.rows(i..i + 1));
                    cast::narrow(&row, &mut block.write::<bf16>(&pool.rows(target..target + 1)));
                }
            }
        });
    Ok(o.submit(task)?.id)
}
