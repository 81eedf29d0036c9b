//! Vocabulary projection over a group of ranks, and greedy sampling.
//!
//! Each rank has half of the vocabulary and eight logit rows of its own. The selected hidden rows go
//! to all ranks, each multiplies all of them with its shard, and the slices of the logits go back to
//! the owners of the rows.

mod case;
mod exchange;
mod windows;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use crate::creates::{Created, Creates};
use crate::fixture::{Dist, Fixture};
use crate::model::{HIDDEN, RANKS, VOCAB};
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::reduce;

pub use case::LmHead;
pub(crate) use windows::LmHeadWindows;

/// Logit rows of a rank.
pub(crate) const ROWS: usize = 8;
/// Logit rows of the group.
pub(crate) const GROUP_ROWS: usize = RANKS * ROWS;
/// Token ids of a shard.
pub(crate) const SHARD: usize = VOCAB / RANKS;
/// Columns of a row of sampled ids: the id, then zeros.
pub(crate) const SAMPLE_PAD: usize = 8;

/// Blocks of the projection, and of the exchange of its result.
const BLOCKS: usize = 24;
/// Token ids of a product.
const VOCAB_TILE: usize = 128;
/// Logits that the sampling looks at at a time.
const SAMPLE_CHUNK: usize = 256;

/// Arguments of one rank.
#[derive(Clone, Debug)]
pub(crate) struct LmHeadArgs {
    /// Hidden rows to select from, [rows, 7168] bf16.
    pub(crate) hidden: Tensor,
    /// Row of each logit row, \[8\] i32; −1 for none, rows beyond the last are cut to it.
    pub(crate) rows: Tensor,
    /// This rank's shard, [64640, 7168] bf16.
    pub(crate) weight: Tensor,
    /// Logits of the selected rows over the whole vocabulary, [8, 129280] f32, written.
    pub(crate) logits: Tensor,
    /// Sampled ids, [8, 8] i32, written: the id in column 0, zeros in the others.
    pub(crate) sampled: Tensor,
}

/// The shard of `rank`, drawn in the way of the standalone program.
pub(crate) fn draw_shard(fixture: Fixture, rank: usize) -> Tensor {
    let deviation = 1.0 / (HIDDEN as f32).sqrt();
    let name = format!("lm_head_weight.{rank}");
    fixture.real(&name, DType::Bf16, &[SHARD, HIDDEN], Dist::normal(deviation, 0.0))
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct LmHeadScratch {
    selected: Created,
    owner_hiddens: Created,
    logits_shards: Created,
}

impl LmHeadScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        Self {
            selected: creates.tensor("selected_hidden", DType::Bf16, &[ROWS, HIDDEN]),
            owner_hiddens: creates.tensor("owner_hiddens", DType::Bf16, &[GROUP_ROWS, HIDDEN]),
            logits_shards: creates.tensor("logits_shards", DType::F32, &[GROUP_ROWS, SHARD]),
        }
    }
}

/// Submits the nine launches of `rank`.
///
/// `epoch` counts the calls since the signals were zero, from 1. The last step but one clears them,
/// so that it is 1 wherever a program calls once. Two tasks wait for the peer and hold a core while
/// they do: a rank needs two cores, see [`KernelInfo::min_cores`](crate::kernel::KernelInfo::min_cores).
pub(crate) fn lm_head(
    o: &mut Orchestrator<'_>,
    rank: usize,
    epoch: i32,
    args: &LmHeadArgs,
    windows: &LmHeadWindows,
    scratch: &LmHeadScratch,
) -> Result<(), Halted> {
    exchange::dispatch_push(o, rank, args, windows, &scratch.selected)?;
    let arrived = exchange::dispatch_wait(o, rank, epoch, args, windows)?;
    exchange::dispatch_gather(o, rank, arrived, windows, &scratch.owner_hiddens)?;
    matmul(o, args, &scratch.owner_hiddens, &scratch.logits_shards)?;
    exchange::combine_push(o, rank, &scratch.logits_shards, windows)?;
    let arrived = exchange::combine_wait(o, rank, epoch, &scratch.logits_shards, windows)?;
    exchange::combine_gather(o, rank, arrived, args, windows)?;
    exchange::signal_clear(o, rank, args, windows)?;
    greedy_sample(o, args)
}

fn matmul(o: &mut Orchestrator<'_>, args: &LmHeadArgs, hidden: &Tensor, shards: &Tensor) -> Result<(), Halted> {
    let (source, weight, target) = (hidden.clone(), args.weight.clone(), shards.clone());
    let task = Task::new("lm_head_matmul", Unit::Matrix)
        .blocks(BLOCKS)
        .input(hidden)
        .input(&args.weight)
        .write(shards)
        .run(move |block| {
            let hidden = block.tile::<bf16>(&source);
            for tile in (block.index()..SHARD / VOCAB_TILE).step_by(BLOCKS) {
                let first = tile * VOCAB_TILE;
                let weight = block.tile::<bf16>(&weight.rows(first..first + VOCAB_TILE));
                let mut logits = block.tile_mut::<f32>(&target.view(&[0, first], &[GROUP_ROWS, VOCAB_TILE]));
                gemm(
                    hidden.tile(),
                    Rhs::Nk(weight.tile()),
                    &mut logits.tile_mut(),
                    Store::Overwrite,
                );
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Position of the largest logit, of equal ones the lowest. A row with a NaN has no largest: it gives 0.
fn argmax(logits: &[f32]) -> usize {
    let best = reduce::max(logits);
    let whole = logits.chunks(SAMPLE_CHUNK).enumerate();
    for (i, chunk) in whole.filter(|(_, chunk)| reduce::max(chunk) >= best) {
        if let Some(inside) = chunk.iter().position(|v| *v >= best) {
            return i * SAMPLE_CHUNK + inside;
        }
    }
    0
}

fn greedy_sample(o: &mut Orchestrator<'_>, args: &LmHeadArgs) -> Result<(), Halted> {
    let (logits, sampled) = (args.logits.clone(), args.sampled.clone());
    let task = Task::new("lm_head_greedy_sample", Unit::Vector)
        .blocks(ROWS)
        .input(&args.logits)
        .write(&args.sampled)
        .run(move |block| {
            let row = block.index()..block.index() + 1;
            let id = argmax(&block.read::<f32>(&logits.rows(row.clone())));
            let mut sampled = block.write::<i32>(&sampled.rows(row));
            sampled.fill(0);
            sampled[0] = id as i32;
        });
    o.submit(task)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::argmax;

    #[test]
    fn the_first_of_equal_logits_is_taken() {
        let mut logits = vec![-1f32; 1000];
        assert_eq!(argmax(&logits), 0);
        logits[999] = 2.0;
        assert_eq!(argmax(&logits), 999);
        logits[300] = 2.0;
        assert_eq!(argmax(&logits), 300);
        // Both zeros are equal.
        assert_eq!(argmax(&[-0.0, 0.0, -1.0]), 0);
        assert_eq!(argmax(&[1.0, f32::NAN, 3.0]), 0);
    }
}
