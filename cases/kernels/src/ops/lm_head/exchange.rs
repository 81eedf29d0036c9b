//! The steps in which ranks write into each other's windows, and wait for each other.

use half::bf16;
use ring_runtime::{Block, Element, Halted, Orchestrator, Signals, Task, TaskId, Tensor, Unit};

use super::{BLOCKS, LmHeadArgs, LmHeadWindows, ROWS, SHARD};
use crate::model::{HIDDEN, RANKS};
use crate::ops::peers::{Notice, targets, wait_for_peers, write_all};

/// Hidden columns of a gather block.
const HIDDEN_TILE: usize = 512;
/// Logits of a transfer; the last tile of a shard has 1152.
const TRANSFER_TILE: usize = 2048;

/// Column and width of each transfer tile that `block` has.
fn transfers(block: &Block<'_>) -> impl Iterator<Item = (usize, usize)> + use<> {
    (block.index() * TRANSFER_TILE..SHARD)
        .step_by(block.count() * TRANSFER_TILE)
        .map(|column| (column, TRANSFER_TILE.min(SHARD - column)))
}

pub(super) fn dispatch_push(
    o: &mut Orchestrator<'_>,
    rank: usize,
    args: &LmHeadArgs,
    windows: &LmHeadWindows,
    selected: &Tensor,
) -> Result<(), Halted> {
    let lane = rank * ROWS..(rank + 1) * ROWS;
    let lanes = targets(rank, |member| windows.of(member).hidden.rows(lane.clone()));
    let done = Notice::of(rank, |peer| windows.of(peer).hidden_done.clone());
    let (hidden, rows, local) = (args.hidden.clone(), args.rows.clone(), selected.clone());
    let task = Task::new("lm_head_dispatch_push", Unit::Vector)
        .blocks(ROWS)
        .input(&hidden)
        .input(&rows)
        .write(selected);
    let task = write_all(task, &lanes).run(move |block| {
        let row = block.index()..block.index() + 1;
        let mut selected = block.write::<bf16>(&local.rows(row.clone()));
        match usize::try_from(block.read::<i32>(&rows)[row.start]) {
            Ok(index) => {
                let index = index.min(hidden.dims()[0] - 1);
                selected.copy_from_slice(&block.read::<bf16>(&hidden.rows(index..index + 1)));
            }
            Err(_) => selected.fill(bf16::ZERO),
        }
        for lane in &lanes {
            block.write::<bf16>(&lane.rows(row.clone())).copy_from_slice(&selected);
        }
        done.send();
    });
    o.submit(task)?;
    Ok(())
}

pub(super) fn dispatch_wait(
    o: &mut Orchestrator<'_>,
    rank: usize,
    epoch: i32,
    args: &LmHeadArgs,
    windows: &LmHeadWindows,
) -> Result<TaskId, Halted> {
    let done = windows.of(rank).hidden_done.clone();
    let task = Task::new("lm_head_dispatch_wait", Unit::Scalar)
        // Nothing of it is used: a wait must not hold a core before this rank can have pushed.
        .input(&args.hidden)
        .run(move |block| {
            // An early end leaves the rest to the run, which is ending.
            let _ = wait_for_peers(block, rank, &done, epoch * ROWS as i32);
        });
    Ok(o.submit(task)?.id)
}

pub(super) fn dispatch_gather(
    o: &mut Orchestrator<'_>,
    rank: usize,
    arrived: TaskId,
    windows: &LmHeadWindows,
    owner_hiddens: &Tensor,
) -> Result<(), Halted> {
    let (window, target) = (windows.of(rank).hidden.clone(), owner_hiddens.clone());
    let task = Task::new("lm_head_dispatch_gather", Unit::Vector)
        .blocks(HIDDEN / HIDDEN_TILE)
        .after(arrived)
        .input(&window)
        .write(owner_hiddens)
        .run(move |block| {
            let column = block.index() * HIDDEN_TILE;
            copy::<bf16>(block, &window, &target, column, HIDDEN_TILE);
        });
    o.submit(task)?;
    Ok(())
}

/// Copies columns `column..column + width` of all rows.
fn copy<T: Element>(block: &Block<'_>, source: &Tensor, target: &Tensor, column: usize, width: usize) {
    let rows = source.dims()[0];
    let source = block.tile::<T>(&source.view(&[0, column], &[rows, width]));
    let mut target = block.tile_mut::<T>(&target.view(&[0, column], &[rows, width]));
    for row in 0..rows {
        target.tile_mut().row_mut(row).copy_from_slice(source.tile().row(row));
    }
}

pub(super) fn combine_push(
    o: &mut Orchestrator<'_>,
    rank: usize,
    shards: &Tensor,
    windows: &LmHeadWindows,
) -> Result<(), Halted> {
    let slices = targets(rank, |owner| {
        windows.of(owner).logits.view(&[0, rank * SHARD], &[ROWS, SHARD])
    });
    let done = Notice::of(rank, |peer| windows.of(peer).logits_done.clone());
    let source = shards.clone();
    let task = Task::new("lm_head_combine_push", Unit::Vector)
        .blocks(BLOCKS)
        .input(shards);
    let task = write_all(task, &slices).run(move |block| {
        for (column, width) in transfers(block) {
            for (owner, slice) in slices.iter().enumerate() {
                let rows = source.rows(owner * ROWS..(owner + 1) * ROWS);
                copy::<f32>(block, &rows, slice, column, width);
            }
        }
        done.send();
    });
    o.submit(task)?;
    Ok(())
}

pub(super) fn combine_wait(
    o: &mut Orchestrator<'_>,
    rank: usize,
    epoch: i32,
    shards: &Tensor,
    windows: &LmHeadWindows,
) -> Result<TaskId, Halted> {
    let done = windows.of(rank).logits_done.clone();
    let task = Task::new("lm_head_combine_wait", Unit::Scalar)
        .input(shards)
        .run(move |block| {
            let _ = wait_for_peers(block, rank, &done, epoch * BLOCKS as i32);
        });
    Ok(o.submit(task)?.id)
}

pub(super) fn combine_gather(
    o: &mut Orchestrator<'_>,
    rank: usize,
    arrived: TaskId,
    args: &LmHeadArgs,
    windows: &LmHeadWindows,
) -> Result<(), Halted> {
    let (window, target) = (windows.of(rank).logits.clone(), args.logits.clone());
    let task = Task::new("lm_head_combine_gather", Unit::Vector)
        .blocks(BLOCKS)
        .after(arrived)
        .input(&window)
        .write(&args.logits)
        .run(move |block| {
            for (column, width) in transfers(block) {
                for source in 0..RANKS {
                    copy::<f32>(block, &window, &target, source * SHARD + column, width);
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Clears this rank's signals for the next call. All notices of this one were seen by the two waits, which
/// came before the logits.
pub(super) fn signal_clear(
    o: &mut Orchestrator<'_>,
    rank: usize,
    args: &LmHeadArgs,
    windows: &LmHeadWindows,
) -> Result<(), Halted> {
    let signals = [&windows.of(rank).hidden_done, &windows.of(rank).logits_done].map(Signals::clone);
    let task = Task::new("lm_head_signal_clear", Unit::Scalar)
        .input(&args.logits)
        .run(move |_| {
            for signals in &signals {
                (0..RANKS).for_each(|source| signals.set(source, 0));
            }
        });
    o.submit(task)?;
    Ok(())
}
