//! What the two expert programs have in common: int8 products as launches, and the SwiGLU of a row.

use ring_runtime::{Halted, Orchestrator, Task, Tensor, Unit};

use crate::fixture::Quantised;
use crate::golden::expert::{Expert, Projection};
use crate::model::SWIGLU_LIMIT;
use crate::simd::vectorised;
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::math;

/// The three projections of one expert, or of several along a leading axis: codes [out, in] i8, a scale per output.
#[derive(Clone, Debug)]
pub(crate) struct ExpertWeights {
    /// w1: 7168 to 3072.
    pub(crate) gate: Quantised,
    /// w3: 7168 to 3072.
    pub(crate) up: Quantised,
    /// w2: 3072 to 7168.
    pub(crate) down: Quantised,
}

impl ExpertWeights {
    /// The projections of local expert `expert`. When fewer experts are stored, expert `e` has the weights of `e` modulo their number.
    pub(crate) fn of_expert(&self, expert: usize) -> Self {
        let one = |w: &Quantised| {
            let e = expert % w.codes.dims()[0];
            Quantised {
                codes: w.codes.rows(e..e + 1).reshape(&w.codes.dims()[1..]),
                scales: w.scales.rows(e..e + 1).reshape(&w.scales.dims()[1..]),
            }
        };
        Self {
            gate: one(&self.gate),
            up: one(&self.up),
            down: one(&self.down),
        }
    }

    /// Hands the reference's view of the weights to `work`.
    pub(crate) fn with_golden<R>(&self, work: impl FnOnce(&Expert<'_>) -> R) -> R {
        let projections = [&self.gate, &self.up, &self.down];
        let codes = projections.map(|w| w.codes.read::<i8>());
        let scales = projections.map(|w| w.scales.read::<f32>());
        let view = |i: usize| Projection {
            codes: &codes[i],
            scales: &scales[i],
        };
        work(&Expert {
            gate: view(0),
            up: view(1),
            down: view(2),
        })
    }
}

/// Submits `acc = x · wᵀ` for `x` [16, K] i8, `w` [N, K] i8 and `acc` [16, N] i32, the columns shared out over `blocks`.
///
/// Only the first `live` rows hold values. The others are multiplied by the original as well, as
/// zeroes or without anybody using the result; here they give zero without being read.
pub(super) fn product(
    o: &mut Orchestrator<'_>,
    name: &'static str,
    blocks: usize,
    live: usize,
    x: &Tensor,
    w: &Tensor,
    acc: &Tensor,
) -> Result<(), Halted> {
    let (source, weight, target) = (x.clone(), w.clone(), acc.clone());
    let (rows, width) = (acc.dims()[0], acc.dims()[1] / blocks);
    let task = Task::new(name, Unit::Matrix)
        .blocks(blocks)
        .input(x)
        .input(w)
        .write(acc)
        .run(move |block| {
            let col0 = block.index() * width;
            let a = block.tile::<i8>(&source.rows(0..live));
            let b = block.tile::<i8>(&weight.rows(col0..col0 + width));
            let mut c = block.tile_mut::<i32>(&target.view(&[0, col0], &[rows, width]));
            let mut c = c.tile_mut();
            gemm(
                a.tile(),
                Rhs::Nk(b.tile()),
                &mut c.sub_mut(0..live, 0..width),
                Store::Overwrite,
            );
            c.sub_mut(live..rows, 0..width).fill(0);
        });
    o.submit(task)?;
    Ok(())
}

vectorised! {
    /// `h = silu(min(g, 10)) · clamp(u, ±10)` with `g = (f32(gate) · row) · gate_scale` and `u` likewise. NaN stays NaN.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(super) fn swiglu(gate: &[i32], up: &[i32], row: f32, gate_scale: &[f32], up_scale: &[f32], h: &mut [f32]) {
        let n = h.len();
        assert!(
            [gate.len(), up.len(), gate_scale.len(), up_scale.len()] == [n; 4],
            "rows of one length"
        );
        for i in 0..n {
            let g = (gate[i] as f32 * row) * gate_scale[i];
            let u = (up[i] as f32 * row) * up_scale[i];
            let g = if g > SWIGLU_LIMIT { SWIGLU_LIMIT } else { g };
            let u = if u > SWIGLU_LIMIT { SWIGLU_LIMIT } else { u };
            let u = if u < -SWIGLU_LIMIT { -SWIGLU_LIMIT } else { u };
            h[i] = math::silu(g) * u;
        }
    }
}
