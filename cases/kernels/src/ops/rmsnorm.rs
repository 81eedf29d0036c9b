//! RMSNorm of the collapsed row with a bf16 gain, before attention.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

use super::{MODE, mode_tokens};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::fixture::{Dist, Fixture, poison};
use crate::golden;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{HIDDEN, RMS_EPS};
use crate::tile::{cast, math, reduce};

/// Tokens of a block.
const TOKENS: usize = 8;
/// Blocks that share the columns of a token tile.
const SPLIT: usize = 4;
/// Columns that are summed at a time.
const CHUNK: usize = 128;

/// Submits the launch: `x_normed = bf16((x · inv_rms) · norm_w)`, all [tokens, 7168] bf16 but the gain \[7168\].
///
/// Returns the task, for callers that hang a barrier on it.
pub(crate) fn rms_norm(
    o: &mut Orchestrator<'_>,
    x: &Tensor,
    norm_w: &Tensor,
    x_normed: &Tensor,
) -> Result<TaskId, Halted> {
    let (source, gain, target) = (x.clone(), norm_w.clone(), x_normed.clone());
    let width = HIDDEN / SPLIT;
    let task = Task::new("rms_norm", Unit::Vector)
        .blocks(x.dims()[0] / TOKENS * SPLIT)
        .input(x)
        .input(norm_w)
        .write(x_normed)
        .run(move |block| {
            let (row0, col0) = (block.index() / SPLIT * TOKENS, block.index() % SPLIT * width);
            let rows = block.tile::<bf16>(&source.rows(row0..row0 + TOKENS));
            let gain = block.read::<bf16>(&gain);
            let mut target = block.tile_mut::<bf16>(&target.view(&[row0, col0], &[TOKENS, width]));
            let (mut row, mut w) = (vec![0f32; HIDDEN], vec![0f32; width]);
            cast::widen(&gain[col0..col0 + width], &mut w);
            for t in 0..TOKENS {
                // Every block of the tile sums the whole row, so that all use the same factor.
                cast::widen(rows.tile().row(t), &mut row);
                let mean = reduce::sum_of_squares_chunked(&row, CHUNK) * (1.0 / HIDDEN as f32);
                let inv = math::inv_sqrt(mean + RMS_EPS);
                let part = &mut row[col0..col0 + width];
                math::scale_mul(part, inv, &w);
                cast::narrow(part, target.tile_mut().row_mut(t));
            }
        });
    Ok(o.submit(task)?.id)
}

/// The standalone kernel.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm;

static INFO: KernelInfo = KernelInfo {
    name: "rmsnorm",
    summary: "RMSNorm of the collapsed residual row with a bf16 gain",
    level: Level::L2,
    ranks: 1,
    params: &[MODE],
    outputs: &[OutputInfo {
        name: "x_normed",
        dtype: DType::Bf16,
        shape: &[128, 7168],
        rule: "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.0,
        int8: 0.0,
    },
    ring_bytes: Some([0; 4]),
};

impl Kernel for RmsNorm {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let fixture = Fixture::new(seed);
        Ok(Box::new(Case {
            x: fixture.real("x", DType::Bf16, &[tokens, HIDDEN], Dist::normal(1.0, -0.5)),
            norm_w: fixture.real("norm_w", DType::Bf16, &[HIDDEN], Dist::normal(0.1, 1.0)),
            x_normed: Tensor::zeros(DType::Bf16, &[tokens, HIDDEN]),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    x: Tensor,
    norm_w: Tensor,
    x_normed: Tensor,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let rows = golden::rmsnorm::rms_norm(&self.x.read::<bf16>(), &self.norm_w.read::<bf16>());
            Tensor::from_vec(self.x.dims(), rows)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.x_normed);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| rms_norm(o, &self.x, &self.norm_w, &self.x_normed).map(|_| ()))
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let rule = RatioAllclose::new(1e-4, 1.0 / 128.0, 0.005);
        vec![rule.compare("x_normed", &self.x_normed, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
