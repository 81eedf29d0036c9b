//! The grouped output projection: down in bf16, int8 per token and group, up in int8, one sum over the groups.

use half::bf16;
use ring_runtime::{Halted, Orchestrator, ScopeMode, Task, TaskId, Unit};

use super::attention::Attended;
use super::{OutWeights, SparseArgs, SparseScratch, TOKENS};
use crate::model::{GROUP_DIM, HIDDEN, O_GROUPS, O_LORA};
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math};

/// Columns of a down-projection task.
const DOWN_COLUMNS: usize = 128;
/// Tokens of a quantising task.
const QUANT_TOKENS: usize = 32;
/// Columns of an up-projection task.
const UP_COLUMNS: usize = 1024;
/// Columns and tokens of a block of the last launch.
const SUM_COLUMNS: usize = 512;
const SUM_TOKENS: usize = 32;

pub(super) fn submit(
    o: &mut Orchestrator<'_>,
    args: &SparseArgs,
    weights: &OutWeights,
    scratch: &SparseScratch,
    attended: Attended,
) -> Result<(), Halted> {
    let ups = o.scope(ScopeMode::Manual, |o| {
        let mut ups = Vec::with_capacity(O_GROUPS * HIDDEN / UP_COLUMNS);
        for g in 0..O_GROUPS {
            let downs = down(o, g, weights, scratch, attended)?;
            let quants = quant(o, g, scratch, &downs)?;
            ups.extend(up(o, g, weights, scratch, &quants)?);
        }
        Ok(ups)
    })?;
    sum_groups(o, args, weights, scratch, &ups)
}

fn down(
    o: &mut Orchestrator<'_>,
    g: usize,
    weights: &OutWeights,
    scratch: &SparseScratch,
    attended: Attended,
) -> Result<Vec<TaskId>, Halted> {
    let source = scratch.o_packed.rows(g * TOKENS..(g + 1) * TOKENS);
    let weight = weights.wo_a.reshape(&[O_GROUPS * O_LORA, GROUP_DIM]);
    let fragment = |o: &mut Orchestrator<'_>, column: usize| {
        let (a, w) = (source.clone(), weight.rows(column..column + DOWN_COLUMNS));
        let target = scratch.o_r.view(&[0, column], &[TOKENS, DOWN_COLUMNS]);
        let task = Task::new("proj_a_mm", Unit::Matrix)
            .input(&a)
            .input(&w)
            .write(&target)
            .after(attended.merge_norm)
            .after(attended.rope);
        let task = task.run(move |block| {
            let (a, w) = (block.tile::<bf16>(&a), block.tile::<bf16>(&w));
            let mut target = block.tile_mut::<f32>(&target);
            gemm(a.tile(), Rhs::Nk(w.tile()), &mut target.tile_mut(), Store::Overwrite);
        });
        Ok(o.submit(task)?.id)
    };
    (0..O_LORA)
        .step_by(DOWN_COLUMNS)
        .map(|column| fragment(o, g * O_LORA + column))
        .collect()
}

fn quant(o: &mut Orchestrator<'_>, g: usize, scratch: &SparseScratch, downs: &[TaskId]) -> Result<Vec<TaskId>, Halted> {
    let chunk = |o: &mut Orchestrator<'_>, first: usize| {
        let source = scratch.o_r.view(&[first, g * O_LORA], &[QUANT_TOKENS, O_LORA]);
        let target = scratch.o_r_i8.view(&[first, g * O_LORA], &[QUANT_TOKENS, O_LORA]);
        let scales = scratch.act_scale.view(&[g, first], &[1, QUANT_TOKENS]);
        let task = Task::new("quant", Unit::Vector)
            .input(&source)
            .write(&target)
            .write(&scales);
        let task = downs
            .iter()
            .fold(task, |task, down| task.after(*down))
            .run(move |block| {
                let source = block.tile::<f32>(&source);
                let mut target = block.tile_mut::<i8>(&target);
                let mut scales = block.write::<f32>(&scales);
                for (t, scale) in scales.iter_mut().enumerate() {
                    *scale = cast::quantise_row_amax(source.tile().row(t), target.tile_mut().row_mut(t)).dequant;
                }
            });
        Ok(o.submit(task)?.id)
    };
    (0..TOKENS).step_by(QUANT_TOKENS).map(|first| chunk(o, first)).collect()
}

fn up(
    o: &mut Orchestrator<'_>,
    g: usize,
    weights: &OutWeights,
    scratch: &SparseScratch,
    quants: &[TaskId],
) -> Result<Vec<TaskId>, Halted> {
    let source = scratch.o_r_i8.view(&[0, g * O_LORA], &[TOKENS, O_LORA]);
    let chunk = |o: &mut Orchestrator<'_>, column: usize| {
        let a = source.clone();
        let w = weights.wo_b.codes.view(&[column, g * O_LORA], &[UP_COLUMNS, O_LORA]);
        let target = scratch.partials.view(&[0, g * HIDDEN + column], &[TOKENS, UP_COLUMNS]);
        let task = Task::new("proj_b_mm", Unit::Matrix).input(&a).input(&w).write(&target);
        let task = quants
            .iter()
            .fold(task, |task, quant| task.after(*quant))
            .run(move |block| {
                let (a, w) = (block.tile::<i8>(&a), block.tile::<i8>(&w));
                let mut target = block.tile_mut::<i32>(&target);
                gemm(a.tile(), Rhs::Nk(w.tile()), &mut target.tile_mut(), Store::Overwrite);
            });
        Ok(o.submit(task)?.id)
    };
    (0..HIDDEN).step_by(UP_COLUMNS).map(|column| chunk(o, column)).collect()
}

/// Adds the groups, ascending, each by its token's scale, then scales the columns.
fn sum_groups(
    o: &mut Orchestrator<'_>,
    args: &SparseArgs,
    weights: &OutWeights,
    scratch: &SparseScratch,
    ups: &[TaskId],
) -> Result<(), Halted> {
    let (partials, act_scale) = (scratch.partials.tensor(), scratch.act_scale.tensor());
    let (scale, target) = (weights.wo_b.scales.clone(), args.attn_out.clone());
    let token_blocks = TOKENS / SUM_TOKENS;
    let task = Task::new("proj_b_act", Unit::Vector)
        .blocks(HIDDEN / SUM_COLUMNS * token_blocks)
        .input(&partials)
        .input(&act_scale)
        .input(&scale)
        .write(&target);
    let task = ups.iter().fold(task, |task, up| task.after(*up)).run(move |block| {
        let (col0, row0) = (
            block.index() / token_blocks * SUM_COLUMNS,
            block.index() % token_blocks * SUM_TOKENS,
        );
        let groups: Vec<_> = (0..O_GROUPS)
            .map(|g| block.tile::<i32>(&partials.view(&[row0, g * HIDDEN + col0], &[SUM_TOKENS, SUM_COLUMNS])))
            .collect();
        let act_scale = block.tile::<f32>(&act_scale);
        let scale = block.read::<f32>(&scale);
        let mut target = block.tile_mut::<bf16>(&target.view(&[row0, col0], &[SUM_TOKENS, SUM_COLUMNS]));
        let mut sum = vec![0f32; SUM_COLUMNS];
        for t in 0..SUM_TOKENS {
            sum.fill(0.0);
            for (g, group) in groups.iter().enumerate() {
                cast::dequantise_add(group.tile().row(t), act_scale.tile().row(g)[row0 + t], &mut sum);
            }
            math::mul(&mut sum, &scale[col0..col0 + SUM_COLUMNS]);
            cast::narrow(&sum, target.tile_mut().row_mut(t));
        }
    });
    o.submit(task)?;
    Ok(())
}
