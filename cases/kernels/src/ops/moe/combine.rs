//! From the experts back to the tokens.

use half::bf16;
use ring_runtime::{Halted, Orchestrator, Task, TaskId, Tensor, Unit};

use super::{Incoming, MoeCall, MoeWindows, NOTICES};
use crate::model::{CHOSEN, HIDDEN, LOCAL_EXPERTS, RANKS};
use crate::ops::peers::{Notice, targets, wait_for_peers, write_all};
use crate::tile::{cast, math};

/// Puts each row that the experts made to its route at its source, one expert a block.
///
/// The routes have no edge of their own: they were written with the received rows, which come before any
/// row of `recv_y`. An expert without rows looks at neither.
pub(super) fn combine(
    o: &mut Orchestrator<'_>,
    call: MoeCall,
    recv_y: &Tensor,
    windows: &MoeWindows,
    incoming: &Incoming,
) -> Result<TaskId, Halted> {
    let shape = windows.shape;
    let routed = targets(call.rank, |member| windows.of(member).routed_y.clone());
    let notice = Notice::of(call.rank, |peer| windows.of(peer).combine_arrived.clone());
    let y = recv_y.reshape(&[LOCAL_EXPERTS * shape.most(), HIDDEN]);
    let (meta, route) = (incoming.meta.clone(), incoming.route.clone());
    let task = Task::new("combine", Unit::Vector)
        .blocks(LOCAL_EXPERTS)
        .input(&y)
        .input(&meta)
        .input(&route);
    let task = write_all(task, &routed).run(move |block| {
        let expert = block.index();
        let meta = block.read::<i32>(&meta);
        let counts = [0, 1].map(|source: usize| meta[source * LOCAL_EXPERTS + expert] as usize);
        let rows: usize = counts.iter().sum();
        let first = expert * shape.most();
        let y = block.tile::<bf16>(&y.rows(first..first + rows));
        let route = block.read::<i32>(&route.view(&[expert, 0], &[1, rows]));
        let mut row = 0;
        for (source, count) in counts.into_iter().enumerate() {
            for _ in 0..count {
                let r = route[row] as usize;
                block
                    .write::<bf16>(&routed[source].rows(r..r + 1))
                    .copy_from_slice(y.tile().row(row));
                row += 1;
            }
        }
        notice.send();
    });
    Ok(o.submit(task)?.id)
}

pub(super) fn wait(
    o: &mut Orchestrator<'_>,
    call: MoeCall,
    combined: TaskId,
    windows: &MoeWindows,
) -> Result<TaskId, Halted> {
    let arrived = windows.of(call.rank).combine_arrived.clone();
    let task = Task::new("combine_wait", Unit::Scalar)
        .after(combined)
        .run(move |block| {
            let value = (call.epoch - 1) * (NOTICES + 1) + NOTICES;
            let _ = wait_for_peers(block, call.rank, &arrived, value);
        });
    Ok(o.submit(task)?.id)
}

/// Adds the rows of a token's routes, in their order, to that of the shared expert; one token a block.
pub(super) fn shared_routed(
    o: &mut Orchestrator<'_>,
    call: MoeCall,
    arrived: TaskId,
    sh: &Tensor,
    windows: &MoeWindows,
    ffn_out: &Tensor,
) -> Result<TaskId, Halted> {
    let active = call.active(windows.shape.tokens);
    // The peers write it as well: `arrived` orders, not the tensor map.
    let routed = windows.of(call.rank).routed_y.clone().untracked();
    let (shared, target) = (sh.clone(), ffn_out.clone());
    let task = Task::new("shared_routed", Unit::Vector)
        .blocks(windows.shape.tokens)
        .after(arrived)
        .input(sh)
        .input(&routed)
        .write(ffn_out)
        .run(move |block| {
            let t = block.index();
            let mut sum = vec![0f32; HIDDEN];
            cast::widen(&block.read::<bf16>(&shared.rows(t..t + 1)), &mut sum);
            if t < active {
                let routed = block.tile::<bf16>(&routed.rows(t * CHOSEN..(t + 1) * CHOSEN));
                let mut part = vec![0f32; HIDDEN];
                for k in 0..CHOSEN {
                    cast::widen(routed.tile().row(k), &mut part);
                    math::add(&mut sum, &part);
                }
            }
            cast::narrow(&sum, &mut block.write::<bf16>(&target.rows(t..t + 1)));
        });
    Ok(o.submit(task)?.id)
}

/// Tells every rank, this one included, that what came in this call was consumed.
pub(super) fn consumed(
    o: &mut Orchestrator<'_>,
    call: MoeCall,
    reduced: TaskId,
    windows: &MoeWindows,
) -> Result<(), Halted> {
    let signals: [_; RANKS] = std::array::from_fn(|member| windows.of(member).combine_arrived.clone());
    let task = Task::new("moe_consumed", Unit::Scalar)
        .after(reduced)
        .run(move |_| signals.iter().for_each(|signals| signals.add(call.rank, 1)));
    o.submit(task)?;
    Ok(())
}
