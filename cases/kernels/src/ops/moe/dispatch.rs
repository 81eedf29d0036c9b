//! From the router to the experts: each token's row goes to the ranks that own its experts.

use ring_runtime::{Block, Cmp, Halted, Orchestrator, Signals, Task, TaskId, Tensor, Unit};

use super::{Incoming, MoeCall, MoeWindows, NOTICES};
use crate::model::{CHOSEN, LOCAL_EXPERTS, RANKS};
use crate::ops::gate::GateOut;
use crate::ops::peers::{Notice, targets, wait_for_peers, write_all};

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    rank: usize,
    expert: usize,
}

impl Owner {
    /// The owner of a global expert.
    ///
    /// # Panics
    /// If there is no such expert.
    fn of(expert: i32) -> Self {
        let expert = usize::try_from(expert).expect("an expert id is not negative");
        assert!(
            expert < RANKS * LOCAL_EXPERTS,
            "expert {expert} of {}",
            RANKS * LOCAL_EXPERTS
        );
        Self {
            rank: expert / LOCAL_EXPERTS,
            expert: expert % LOCAL_EXPERTS,
        }
    }
}

/// Waits until all ranks, this one included, have consumed what they got in the last call: from then on their windows may be written.
fn wait_for_reuse(block: &Block<'_>, call: MoeCall, consumed: &Signals) -> Result<(), Halted> {
    let calls = call.epoch - 1;
    block.wait_signal(consumed, call.rank, Cmp::Ge, calls)?;
    wait_for_peers(block, call.rank, consumed, calls * (NOTICES + 1))
}

pub(super) fn reuse_wait(
    o: &mut Orchestrator<'_>,
    call: MoeCall,
    indices: &Tensor,
    windows: &MoeWindows,
) -> Result<TaskId, Halted> {
    let consumed = windows.of(call.rank).combine_arrived.clone();
    let task = Task::new("moe_reuse_wait", Unit::Scalar)
        // Nothing of it is used: a wait must not hold a core before the call has come this far.
        .input(indices)
        .run(move |block| {
            if call.epoch > 1 {
                // An early end leaves the rest to the run, which is ending.
                let _ = wait_for_reuse(block, call, &consumed);
            }
        });
    Ok(o.submit(task)?.id)
}

/// Tells every rank how many rows its experts get from here, and adds up what this rank's experts get.
pub(super) fn meta(
    o: &mut Orchestrator<'_>,
    call: MoeCall,
    reusable: TaskId,
    gated: &GateOut,
    windows: &MoeWindows,
    incoming: &Incoming,
) -> Result<TaskId, Halted> {
    let rank = call.rank;
    let lanes = targets(rank, |member| windows.of(member).meta.rows(rank..rank + 1));
    let (own, arrived) = (windows.of(rank).meta.clone(), windows.of(rank).arrived.clone());
    let notice = Notice::of(rank, |peer| windows.of(peer).arrived.clone());
    let (indices, local, count) = (gated.indices.clone(), incoming.meta.clone(), incoming.count.tensor());
    let active = call.active(windows.shape.tokens);
    let task = Task::new("dispatch_meta", Unit::Scalar)
        .after(reusable)
        .input(&indices)
        // Reads what came from the peers, too.
        .inout(&own)
        .write(&local)
        .write(&count);
    let task = write_all(task, &lanes).run(move |block| {
        let mut counts = [[0i32; LOCAL_EXPERTS]; RANKS];
        for expert in &block.read::<i32>(&indices)[..active * CHOSEN] {
            let owner = Owner::of(*expert);
            counts[owner.rank][owner.expert] += 1;
        }
        for (lane, counts) in lanes.iter().zip(&counts) {
            block.write::<i32>(lane).copy_from_slice(counts);
        }
        notice.send();
        if wait_for_peers(block, rank, &arrived, call.epoch).is_err() {
            return;
        }
        let all = block.read::<i32>(&own);
        block.write::<i32>(&local).copy_from_slice(&all);
        for (expert, count) in block.write::<i32>(&count).iter_mut().enumerate() {
            *count = (0..RANKS).map(|source| all[source * LOCAL_EXPERTS + expert]).sum();
        }
    });
    Ok(o.submit(task)?.id)
}

/// Puts the rows of each local expert index, one a block, into the lane of this rank at the owners.
pub(super) fn push(
    o: &mut Orchestrator<'_>,
    call: MoeCall,
    reusable: TaskId,
    gated: &GateOut,
    windows: &MoeWindows,
) -> Result<TaskId, Halted> {
    let rank = call.rank;
    let shape = windows.shape;
    let x = targets(rank, |member| windows.of(member).x.clone());
    let aux = targets(rank, |member| windows.of(member).aux.clone());
    let route = targets(rank, |member| windows.of(member).route.clone());
    let notice = Notice::of(rank, |peer| windows.of(peer).data_arrived.clone());
    let active = call.active(shape.tokens);
    let g = gated.clone();
    let task = Task::new("dispatch_push", Unit::Vector)
        .blocks(LOCAL_EXPERTS)
        .after(reusable)
        .input(&g.indices)
        .input(&g.x_i8)
        .input(&g.x_scale)
        .input(&g.weights);
    let task = [&x, &aux, &route].into_iter().fold(task, |task, t| write_all(task, t));
    let task = task.run(move |block| {
        let first = block.index() * shape.most() + rank * shape.tokens;
        let lane = first..first + shape.tokens;
        let (indices, weights) = (block.read::<i32>(&g.indices), block.read::<f32>(&g.weights));
        let scales = block.read::<f32>(&g.x_scale);
        for member in 0..RANKS {
            let mine = (0..active * CHOSEN).filter(|r| {
                let owner = Owner::of(indices[*r]);
                (owner.rank, owner.expert) == (member, block.index())
            });
            let mut target_x = block.tile_mut::<i8>(&x[member].rows(lane.clone()));
            let mut target_aux = block.tile_mut::<f32>(&aux[member].rows(lane.clone()));
            let mut target_route = block.tile_mut::<i32>(&route[member].rows(lane.clone()));
            for (slot, r) in mine.enumerate() {
                let t = r / CHOSEN;
                let row = block.read::<i8>(&g.x_i8.rows(t..t + 1));
                target_x.tile_mut().row_mut(slot).copy_from_slice(&row);
                target_aux.tile_mut().row_mut(slot)[..2].copy_from_slice(&[scales[t], weights[r]]);
                target_route.tile_mut().row_mut(slot)[0] = r as i32;
            }
        }
        notice.send();
    });
    Ok(o.submit(task)?.id)
}

pub(super) fn wait(
    o: &mut Orchestrator<'_>,
    call: MoeCall,
    counted: TaskId,
    windows: &MoeWindows,
) -> Result<TaskId, Halted> {
    let arrived = windows.of(call.rank).data_arrived.clone();
    let task = Task::new("dispatch_wait", Unit::Scalar)
        .after(counted)
        .run(move |block| {
            let _ = wait_for_peers(block, call.rank, &arrived, NOTICES * call.epoch);
        });
    Ok(o.submit(task)?.id)
}

/// Brings the lanes of each expert's sources together, one expert a block; rows beyond the count stay as they are.
pub(super) fn gather(
    o: &mut Orchestrator<'_>,
    call: MoeCall,
    [arrived, pushed]: [TaskId; 2],
    windows: &MoeWindows,
    incoming: &Incoming,
) -> Result<(), Halted> {
    let shape = windows.shape;
    let own = windows.of(call.rank);
    let [x, aux, route] = [&own.x, &own.aux, &own.route].map(Tensor::clone);
    let (meta, x_out) = (
        incoming.meta.clone(),
        incoming.x.reshape(&[LOCAL_EXPERTS * shape.most(), x.dims()[1]]),
    );
    let [scale_out, weight_out, route_out] = [&incoming.scale, &incoming.weight, &incoming.route].map(Tensor::clone);
    let task = Task::new("dispatch_gather", Unit::Vector)
        .blocks(LOCAL_EXPERTS)
        .after(arrived)
        .after(pushed)
        .input(&x)
        .input(&aux)
        .input(&route)
        .input(&meta)
        .write(&x_out)
        .write(&scale_out)
        .write(&weight_out)
        .write(&route_out)
        .run(move |block| {
            let expert = block.index();
            let first = expert * shape.most();
            let meta = block.read::<i32>(&meta);
            let one = expert..expert + 1;
            let mut x_out = block.tile_mut::<i8>(&x_out.rows(first..first + shape.most()));
            let mut scale_out = block.write::<f32>(&scale_out.rows(one.clone()));
            let mut weight_out = block.write::<f32>(&weight_out.rows(one.clone()));
            let mut route_out = block.write::<i32>(&route_out.rows(one));
            let mut row = 0;
            for source in 0..RANKS {
                let count = meta[source * LOCAL_EXPERTS + expert] as usize;
                let lane = first + source * shape.tokens;
                let lane = lane..lane + count;
                let x = block.tile::<i8>(&x.rows(lane.clone()));
                let aux = block.tile::<f32>(&aux.rows(lane.clone()));
                let route = block.tile::<i32>(&route.rows(lane));
                for slot in 0..count {
                    x_out.tile_mut().row_mut(row).copy_from_slice(x.tile().row(slot));
                    scale_out[row] = aux.tile().row(slot)[0];
                    weight_out[row] = aux.tile().row(slot)[1];
                    route_out[row] = route.tile().row(slot)[0];
                    row += 1;
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
