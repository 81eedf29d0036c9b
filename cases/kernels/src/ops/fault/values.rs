//! Programs that end well and compute something wrong.
//!
//! The right program is `y = 2 · x`, row by row.

use ring_runtime::{Cmp, DType, Halted, Orchestrator, ScopeMode, Signals, Task, Tensor, Unit};

use crate::compare::{Allclose, TensorVerdict};
use crate::fixture::{Dist, Fixture, poison};
use crate::kernel::entry_scope;
use crate::tile::math;

/// Rows and columns.
pub(super) const SHAPE: [usize; 2] = [8, 16];
/// The row that goes wrong.
const BAD_ROW: usize = 3;

pub(super) struct Values {
    x: Tensor,
    /// What a second task doubles: a copy of `x`.
    copy: Tensor,
    y: Tensor,
}

impl Values {
    pub(super) fn draw(seed: u64) -> Self {
        let fixture = Fixture::new(seed);
        Self {
            x: fixture.real("x", DType::F32, &SHAPE, Dist::uniform(1.0, 2.0)),
            copy: Tensor::zeros(DType::F32, &SHAPE),
            y: Tensor::zeros(DType::F32, &SHAPE),
        }
    }

    pub(super) fn reset(&self) {
        self.copy.write::<f32>().fill(0.0);
        poison(&self.y);
    }

    /// The right program.
    pub(super) fn scale(&self, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        let (x, y) = (self.x.clone(), self.y.clone());
        let scale = Task::new("scale", Unit::Vector)
            .blocks(SHAPE[0])
            .input(&self.x)
            .write(&self.y)
            .run(move |block| {
                let row = block.index()..block.index() + 1;
                double(
                    &block.read::<f32>(&x.rows(row.clone())),
                    &mut block.write::<f32>(&y.rows(row)),
                );
            });
        entry_scope(o, |o| o.submit(scale).map(|_| ()))
    }

    /// One row goes through a softmax over no column: the sum of nothing is 0, and 0 / 0 is NaN.
    pub(super) fn softmax_of_an_empty_row(&self, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        let (x, y) = (self.x.clone(), self.y.clone());
        let softmax = Task::new("softmax", Unit::Vector)
            .blocks(SHAPE[0])
            .input(&self.x)
            .write(&self.y)
            .run(move |block| {
                let row = block.index();
                let x = block.read::<f32>(&x.rows(row..row + 1));
                let mut y = block.write::<f32>(&y.rows(row..row + 1));
                double(&x, &mut y);
                if row == BAD_ROW {
                    let powers: Vec<f32> = x.iter().take(0).map(|v| math::exp(*v)).collect();
                    let first = powers.first().copied().unwrap_or_default();
                    y.fill(first / powers.iter().sum::<f32>());
                }
            });
        entry_scope(o, |o| o.submit(softmax).map(|_| ()))
    }

    /// `double` reads what `copy` writes, in a manual scope without the dependency: it reads the zeros that were there before.
    pub(super) fn dropped_dependency(&self, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        let (x, y) = (self.x.clone(), self.y.clone());
        // The signal makes the wrong order the only one, so that the fault doesn't depend on luck.
        let read = Signals::new(1);
        let (source, was_read) = (self.copy.clone(), read.clone());
        let reader = Task::new("double", Unit::Vector)
            .input(&self.copy)
            .write(&self.y)
            .run(move |block| {
                double(&block.read::<f32>(&source), &mut block.write::<f32>(&y));
                was_read.set(0, 1);
            });
        let target = self.copy.clone();
        let writer = Task::new("copy", Unit::Vector)
            .input(&self.x)
            .write(&self.copy)
            .run(move |block| {
                if block.wait_signal(&read, 0, Cmp::Ge, 1).is_ok() {
                    block.write::<f32>(&target).copy_from_slice(&block.read::<f32>(&x));
                }
            });
        o.scope(ScopeMode::Manual, |o| {
            o.submit(reader)?;
            o.submit(writer).map(|_| ())
        })
    }

    /// Compares `y`; a broken reference divides a row by the zero that it forgot to add to.
    pub(super) fn compare(&self, broken_reference: bool) -> TensorVerdict {
        let mut expected: Vec<f32> = self.x.read::<f32>().iter().map(|x| x + x).collect();
        if broken_reference {
            let nothing: f32 = expected.iter().take(0).sum();
            let row = BAD_ROW * SHAPE[1]..(BAD_ROW + 1) * SHAPE[1];
            expected[row].iter_mut().for_each(|v| *v *= nothing / nothing.abs());
        }
        Allclose::new(1e-5, 1e-6).compare("y", &self.y, &Tensor::from_vec(&SHAPE, expected))
    }
}

fn double(x: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x);
}
