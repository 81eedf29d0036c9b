//! Rotary rows of a step, gathered from the tables by position.

use half::bf16;
use ring_runtime::{Halted, Orchestrator, Task, Tensor, Unit};

use super::BlockArgs;
use crate::model::{ROPE_DIM, STEP_TOKENS};

/// Angles of each request's first token, rounded down to a window of `ratio` tokens (1 for the token itself).
#[derive(Clone, Debug)]
pub(crate) struct RequestAngles {
    pub(crate) ratio: usize,
    /// Cosines, [4, 32] f32, written.
    pub(crate) cos: Tensor,
    /// Sines, [4, 32] f32, written.
    pub(crate) sin: Tensor,
}

/// Submits one launch that gathers `tokens` (cosines and sines of each token, [8, 64] bf16) and `requests`, as far as given.
pub(crate) fn rope_rows(
    o: &mut Orchestrator<'_>,
    name: &'static str,
    args: &BlockArgs,
    tokens: Option<(&Tensor, &Tensor)>,
    requests: Option<RequestAngles>,
) -> Result<(), Halted> {
    let tables = [args.rope.cos.clone(), args.rope.sin.clone()];
    let positions = args.position_ids.clone();
    let tokens = tokens.map(|(cos, sin)| [cos.clone(), sin.clone()]);
    let mut task = Task::new(name, Unit::Vector)
        .input(&tables[0])
        .input(&tables[1])
        .input(&positions);
    for target in tokens.iter().flatten() {
        task = task.write(target);
    }
    if let Some(angles) = &requests {
        task = task.write(&angles.cos).write(&angles.sin);
    }
    let task = task.run(move |block| {
        let positions = block.read::<i32>(&positions);
        let row = |table: &Tensor, position: usize| block.read::<bf16>(&table.rows(position..position + 1)).to_vec();
        for (table, target) in tables.iter().zip(tokens.iter().flatten()) {
            let mut target = block.tile_mut::<bf16>(target);
            for (t, position) in positions.iter().enumerate() {
                target
                    .tile_mut()
                    .row_mut(t)
                    .copy_from_slice(&row(table, *position as usize));
            }
        }
        if let Some(angles) = &requests {
            for (table, target) in tables.iter().zip([&angles.cos, &angles.sin]) {
                let mut target = block.tile_mut::<f32>(target);
                for (b, first) in positions.iter().step_by(STEP_TOKENS).enumerate() {
                    let first = *first as usize;
                    let row = row(table, first - first % angles.ratio);
                    let mut target = target.tile_mut();
                    for (angle, value) in target.row_mut(b).iter_mut().zip(&row[..ROPE_DIM / 2]) {
                        *angle = value.to_f32();
                    }
                }
            }
        }
    });
    o.submit(task)?;
    Ok(())
}
