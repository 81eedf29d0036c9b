//! The grouped output projection of a decode step: down in bf16, int8 per token and group, up in int8, one sum over the groups.

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, ScopeMode, Task, TaskId, Tensor, Unit};

use super::{TOKENS, matrix};
use crate::creates::{Created, Creates};
use crate::model::{GROUP_DIM, HIDDEN, MATRIX_ROWS, O_GROUPS, O_LORA};
use crate::ops::prefill_sparse_attn::OutWeights;
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math, reduce};

/// Columns of a block of the last launch.
const SUM_COLUMNS: usize = 512;
/// Low-rank columns of all groups.
const LOW: usize = O_GROUPS * O_LORA;

/// How the scale that gives a quantised row back is reckoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dequant {
    /// `1 / (127 / amax)`.
    Reciprocal,
    /// `amax · (1 / 127)`.
    Share,
}

/// How a variant cuts the projection into tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Groups of a task.
    pub(crate) bundle: usize,
    /// Columns of a block on the way down.
    pub(crate) down_columns: usize,
    /// Columns of a block on the way up.
    pub(crate) up_columns: usize,
    /// Whether the codes of the padding rows are set to zero; nothing depends on them.
    pub(crate) clear_padding: bool,
    /// Scale of a quantised row.
    pub(crate) dequant: Dequant,
}

/// Tensors of the projection; rows are padded to what the matrix unit works on.
#[derive(Debug)]
pub(crate) struct ProjectionScratch {
    low: Created,
    codes: Created,
    scales: Created,
    partials: Created,
}

impl ProjectionScratch {
    /// Declares them: the low-rank rows, then the partial sums.
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        let low = matrix(creates, "o_r_pad", DType::F32, MATRIX_ROWS, LOW);
        let codes = matrix(creates, "o_r_i8_pad", DType::I8, MATRIX_ROWS, LOW);
        let scales = matrix(creates, "act_scale_dq", DType::F32, O_GROUPS, TOKENS);
        let partials = matrix(creates, "partials", DType::I32, MATRIX_ROWS, O_GROUPS * HIDDEN);
        Self {
            low,
            codes,
            scales,
            partials,
        }
    }

    /// Declares the partial sums first, then what `between` declares, then the low-rank rows.
    pub(crate) fn declare_around<R>(creates: &mut Creates, between: impl FnOnce(&mut Creates) -> R) -> (Self, R) {
        let partials = matrix(creates, "partials", DType::I32, MATRIX_ROWS, O_GROUPS * HIDDEN);
        let scales = matrix(creates, "act_scale_dq", DType::F32, O_GROUPS, TOKENS);
        let between = between(creates);
        let low = matrix(creates, "o_r_pad", DType::F32, MATRIX_ROWS, LOW);
        let codes = matrix(creates, "o_r_i8_pad", DType::I8, MATRIX_ROWS, LOW);
        let scratch = Self {
            low,
            codes,
            scales,
            partials,
        };
        (scratch, between)
    }
}

/// Submits, in a manual scope, three tasks per bundle of groups, and the sum behind it.
///
/// `packed` is [128, 4096] bf16 with group `g` of token `t` in row `g · 8 + t`. Bundle `i` waits for `merged[i]`, or all
/// for the only one.
pub(crate) fn project(
    o: &mut Orchestrator<'_>,
    cut: Cut,
    weights: &OutWeights,
    scratch: &ProjectionScratch,
    (packed, merged): (&Tensor, &[TaskId]),
    attn_out: &Tensor,
) -> Result<(), Halted> {
    let ups = o.scope(ScopeMode::Manual, |o| {
        let mut ups = Vec::with_capacity(O_GROUPS / cut.bundle);
        for (i, first) in (0..O_GROUPS).step_by(cut.bundle).enumerate() {
            let merged = if merged.len() == 1 { merged[0] } else { merged[i] };
            let bundle = Bundle { cut, first };
            let down = bundle.down(o, weights, scratch, packed, merged)?;
            let quant = bundle.quant(o, scratch, down)?;
            ups.push(bundle.up(o, weights, scratch, quant)?);
        }
        Ok(ups)
    })?;
    sum_groups(o, weights, scratch, attn_out, &ups)
}

/// Groups `first..first + cut.bundle`.
#[derive(Clone, Copy, Debug)]
struct Bundle {
    cut: Cut,
    first: usize,
}

impl Bundle {
    /// Columns of these groups, in a matrix with `width` columns a group.
    fn columns(self, of: &Tensor, width: usize) -> Tensor {
        of.view(&[0, self.first * width], &[of.dims()[0], self.cut.bundle * width])
    }

    fn down(
        self,
        o: &mut Orchestrator<'_>,
        weights: &OutWeights,
        scratch: &ProjectionScratch,
        packed: &Tensor,
        merged: TaskId,
    ) -> Result<TaskId, Halted> {
        let (groups, width) = (self.first..self.first + self.cut.bundle, self.cut.down_columns);
        let source = packed.rows(groups.start * TOKENS..groups.end * TOKENS);
        let weight = weights
            .wo_a
            .reshape(&[LOW, GROUP_DIM])
            .rows(groups.start * O_LORA..groups.end * O_LORA);
        let target = self.columns(&scratch.low, O_LORA);
        let task = Task::new("proj_a_mm", Unit::Matrix)
            .blocks(self.cut.bundle * O_LORA / width)
            .input(&source)
            .input(&weight)
            .write(&target)
            .after(merged)
            .run(move |block| {
                let column = block.index() * width;
                let g = column / O_LORA;
                let a = block.tile::<bf16>(&source.rows(g * TOKENS..(g + 1) * TOKENS));
                let w = block.tile::<bf16>(&weight.rows(column..column + width));
                let mut target = block.tile_mut::<f32>(&target.view(&[0, column], &[MATRIX_ROWS, width]));
                let mut target = target.tile_mut();
                gemm(
                    a.tile(),
                    Rhs::Nk(w.tile()),
                    &mut target.sub_mut(0..TOKENS, 0..width),
                    Store::Overwrite,
                );
                // The product of the zeros that pad the rows.
                target.sub_mut(TOKENS..MATRIX_ROWS, 0..width).fill(0.0);
            });
        Ok(o.submit(task)?.id)
    }

    fn quant(self, o: &mut Orchestrator<'_>, scratch: &ProjectionScratch, down: TaskId) -> Result<TaskId, Halted> {
        let (source, target) = (self.columns(&scratch.low, O_LORA), self.columns(&scratch.codes, O_LORA));
        let scales = scratch.scales.rows(self.first..self.first + self.cut.bundle);
        let cut = self.cut;
        let task = Task::new("quant", Unit::Vector)
            .blocks(cut.bundle)
            .input(&source)
            .write(&target)
            .write(&scales)
            .after(down)
            .run(move |block| {
                let g = block.index();
                let source = block.tile::<f32>(&source.view(&[0, g * O_LORA], &[TOKENS, O_LORA]));
                let rows = if cut.clear_padding { MATRIX_ROWS } else { TOKENS };
                let mut target = block.tile_mut::<i8>(&target.view(&[0, g * O_LORA], &[rows, O_LORA]));
                let mut target = target.tile_mut();
                let mut scales = block.write::<f32>(&scales.rows(g..g + 1));
                for (t, scale) in scales.iter_mut().enumerate() {
                    *scale = quantise(source.tile().row(t), target.row_mut(t), cut.dequant);
                }
                target.sub_mut(TOKENS..rows, 0..O_LORA).fill(0);
            });
        Ok(o.submit(task)?.id)
    }

    fn up(
        self,
        o: &mut Orchestrator<'_>,
        weights: &OutWeights,
        scratch: &ProjectionScratch,
        quant: TaskId,
    ) -> Result<TaskId, Halted> {
        let source = self.columns(&scratch.codes, O_LORA);
        let weight = self.columns(&weights.wo_b.codes, O_LORA);
        let target = self.columns(&scratch.partials, HIDDEN);
        let width = self.cut.up_columns;
        let task = Task::new("proj_b_mm", Unit::Matrix)
            .blocks(self.cut.bundle * HIDDEN / width)
            .input(&source)
            .input(&weight)
            .write(&target)
            .after(quant)
            .run(move |block| {
                let column = block.index() * width;
                let (g, row) = (column / HIDDEN, column % HIDDEN);
                let a = block.tile::<i8>(&source.view(&[0, g * O_LORA], &[TOKENS, O_LORA]));
                let w = block.tile::<i8>(&weight.view(&[row, g * O_LORA], &[width, O_LORA]));
                let mut target = block.tile_mut::<i32>(&target.view(&[0, column], &[TOKENS, width]));
                gemm(a.tile(), Rhs::Nk(w.tile()), &mut target.tile_mut(), Store::Overwrite);
            });
        Ok(o.submit(task)?.id)
    }
}

/// Quantises a row and returns the scale that gives it back.
fn quantise(row: &[f32], codes: &mut [i8], dequant: Dequant) -> f32 {
    let amax = reduce::amax(row);
    let scale = cast::RowScale::of_amax(amax);
    cast::quantise_row(row, scale.quant, codes);
    match dequant {
        Dequant::Reciprocal => scale.dequant,
        // Not `f32::max`, which would drop a NaN.
        Dequant::Share if amax < cast::AMAX_FLOOR => cast::AMAX_FLOOR * (1.0 / cast::INT8_MAX),
        Dequant::Share => amax * (1.0 / cast::INT8_MAX),
    }
}

/// Adds the groups, ascending, each by its token's scale, then scales the columns.
fn sum_groups(
    o: &mut Orchestrator<'_>,
    weights: &OutWeights,
    scratch: &ProjectionScratch,
    attn_out: &Tensor,
    ups: &[TaskId],
) -> Result<(), Halted> {
    let (partials, scales) = (scratch.partials.tensor(), scratch.scales.tensor());
    let (column_scale, target) = (weights.wo_b.scales.clone(), attn_out.clone());
    let task = Task::new("proj_b_act", Unit::Vector)
        .blocks(HIDDEN / SUM_COLUMNS)
        .input(&partials)
        .input(&scales)
        .input(&column_scale)
        .write(&target);
    let task = ups.iter().fold(task, |task, up| task.after(*up)).run(move |block| {
        let column = block.index() * SUM_COLUMNS;
        let group = |g: usize| block.tile::<i32>(&partials.view(&[0, g * HIDDEN + column], &[TOKENS, SUM_COLUMNS]));
        let groups: Vec<_> = (0..O_GROUPS).map(group).collect();
        let scales = block.tile::<f32>(&scales);
        let column_scale = block.read::<f32>(&column_scale);
        let mut target = block.tile_mut::<bf16>(&target.view(&[0, column], &[TOKENS, SUM_COLUMNS]));
        let mut sum = [0f32; SUM_COLUMNS];
        for t in 0..TOKENS {
            sum.fill(0.0);
            for (g, group) in groups.iter().enumerate() {
                cast::dequantise_add(group.tile().row(t), scales.tile().row(g)[t], &mut sum);
            }
            math::mul(&mut sum, &column_scale[column..column + SUM_COLUMNS]);
            cast::narrow(&sum, target.tile_mut().row_mut(t));
        }
    });
    o.submit(task)?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the scales are exact")]
mod tests {
    use super::*;

    #[test]
    fn both_scales_give_a_row_back() {
        let row = [0.3f32, -2.0, 1.1];
        let mut codes = [0i8; 3];
        assert_eq!(quantise(&row, &mut codes, Dequant::Reciprocal), 1.0 / (127.0 / 2.0));
        assert_eq!(codes, [19, -127, 70]);
        assert_eq!(quantise(&row, &mut codes, Dequant::Share), 2.0 * (1.0 / 127.0));
        assert_eq!(codes, [19, -127, 70]);
        assert_eq!(quantise(&[0.0; 3], &mut codes, Dequant::Share), 1e-4 * (1.0 / 127.0));
        assert!(quantise(&[f32::NAN; 3], &mut codes, Dequant::Share).is_nan());
    }
}
