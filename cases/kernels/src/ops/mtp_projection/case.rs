//! The standalone projection.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{Branch, MtpArgs, MtpScratch, MtpWeights, mtp_projection};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Dist, Fixture, Rounding, constant, poison};
use crate::golden;
use crate::golden::expert::Projection;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{HIDDEN, STREAMS};
use crate::ops::{DECODE_MODE, mode_tokens};
use crate::scopes::BodyScopes;

/// The standalone kernel.
#[derive(Clone, Copy, Debug)]
pub struct MtpProjection;

static INFO: KernelInfo = KernelInfo {
    name: "mtp_projection",
    summary: "Input projection of multi-token prediction: embedding row plus residual streams, int8",
    level: Level::L2,
    ranks: 1,
    params: &[DECODE_MODE],
    outputs: &[OutputInfo {
        name: "hidden_states_out",
        dtype: DType::F32,
        shape: &[8, 4, 7168],
        rule: "ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0.05)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.0,
        int8: 4.110_417_92,
    },
    ring_bytes: Some([0, 4_724_736, 0, 0]),
};

impl MtpWeights {
    /// Gains and factors of one, projections uniform in [0, `width`/√7168) drawn as `name`.e and `name`.h.
    pub(crate) fn draw(fixture: Fixture, name: &str, width: f32) -> Self {
        let scale = width / (HIDDEN as f32).sqrt();
        let branch = |which| {
            let dist = Dist::Uniform { shift: 0.0, scale };
            let name = format!("{name}.{which}");
            Branch {
                norm: constant(DType::F32, &[HIDDEN], 1.0),
                smooth: constant(DType::F32, &[HIDDEN], 1.0),
                projection: fixture.quantised_rows(&name, HIDDEN, HIDDEN, dist, Rounding::HalfEven),
            }
        };
        Self {
            embedding: branch("e"),
            stream: branch("h"),
        }
    }

    /// The reference's result for these rows.
    pub(crate) fn reference(&self, hidden: &[bf16], previous: &[f32]) -> Vec<f32> {
        let branches = [&self.embedding, &self.stream];
        let codes = branches.map(|b| b.projection.codes.read::<i8>());
        let read = |tensor: &Tensor| tensor.read::<f32>().to_vec();
        let scales = branches.map(|b| read(&b.projection.scales));
        let norms = branches.map(|b| read(&b.norm));
        let smooths = branches.map(|b| read(&b.smooth));
        let view = |i: usize| golden::mtp_projection::Branch {
            norm: &norms[i],
            smooth: &smooths[i],
            projection: Projection {
                codes: &codes[i],
                scales: &scales[i],
            },
        };
        golden::mtp_projection::mtp_projection(hidden, previous, &view(0), &view(1))
    }
}

impl Kernel for MtpProjection {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let fixture = Fixture::new(seed);
        let streams = [tokens, STREAMS, HIDDEN];
        let normal = Dist::normal(1.0, 0.0);
        Ok(Box::new(Case {
            args: MtpArgs {
                hidden: fixture.real("hidden_states", DType::Bf16, &[tokens, HIDDEN], normal),
                previous: fixture.real("prev_hidden_states", DType::F32, &streams, normal),
                out: Tensor::zeros(DType::F32, &streams),
            },
            weights: MtpWeights::draw(fixture, "proj_w", 0.25),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: MtpArgs,
    weights: MtpWeights,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let a = &self.args;
            let out = self
                .weights
                .reference(&a.hidden.read::<bf16>(), &a.previous.read::<f32>());
            Tensor::from_vec(a.out.dims(), out)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.args.out);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = MtpScratch::declare(&mut creates, self.args.hidden.dims()[0]);
            creates.alloc(o)?;
            mtp_projection(o, BodyScopes::Automatic, &self.args, &self.weights, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        vec![RatioAllclose::new(1e-3, 1e-3, 0.05).compare("hidden_states_out", &self.args.out, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
