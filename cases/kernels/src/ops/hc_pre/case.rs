//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{HcPreOut, HcPreScratch, HcWeights, hc_pre};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Dist, Fixture, poison};
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{HC_MIX, HIDDEN, STREAMS};
use crate::ops::{MODE, mode_tokens};

/// The pre-mix by itself.
#[derive(Clone, Copy, Debug)]
pub struct HcPre;

static INFO: KernelInfo = KernelInfo {
    name: "hc_pre",
    summary: "Hyper-connection pre-mix: gates, mixing matrix and collapsed row of each token",
    level: Level::L2,
    ranks: 1,
    params: &[
        MODE,
        ParamSpec::tolerance("gate_rtol", 0.0, 2e-2, 5e-3, "Relative tolerance of post and comb"),
        ParamSpec::tolerance("gate_atol", 0.0, 1e-4, 2.5e-5, "Absolute tolerance of post and comb"),
    ],
    outputs: &[
        OutputInfo {
            name: "x_mixed",
            dtype: DType::Bf16,
            shape: &[128, 7168],
            rule: "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)",
        },
        OutputInfo {
            name: "post",
            dtype: DType::F32,
            shape: &[128, 4],
            rule: "ratio_allclose(atol=2.5e-5, rtol=5e-3, ratio<=0.005)",
        },
        OutputInfo {
            name: "comb",
            dtype: DType::F32,
            shape: &[128, 16],
            rule: "ratio_allclose(atol=2.5e-5, rtol=5e-3, ratio<=0.005)",
        },
    ],
    gflop: Gflop {
        f32: 0.235,
        bf16: 0.0,
        int8: 0.0,
    },
    ring_bytes: Some([0, 95_232, 0, 0]),
};

const SCALE: [f32; 3] = [0.076_099, 0.032_597, 0.226_994];
const BASE: [f32; HC_MIX] = [
    5.9166, -3.6223, -2.9324, -3.3124, -3.9100, -0.9384, -3.3256, -2.5240, 2.0706, -2.5728, 0.1424, -3.9453, -3.8859,
    3.4634, -3.3799, -2.6077, -2.7191, -2.4846, 2.0395, -0.5010, -3.5992, -2.7520, -3.3493, 3.1587,
];

impl Kernel for HcPre {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let fixture = Fixture::new(seed);
        Ok(Box::new(Case {
            x: fixture.real("x", DType::F32, &[tokens, STREAMS, HIDDEN], Dist::normal(0.05, 0.0)),
            weights: HcWeights::draw(fixture, "hc_fn", 0.0519, SCALE, BASE),
            out: HcPreOut {
                x_mixed: Tensor::zeros(DType::Bf16, &[tokens, HIDDEN]),
                post: Tensor::zeros(DType::F32, &[tokens, STREAMS]),
                comb: Tensor::zeros(DType::F32, &[tokens, STREAMS * STREAMS]),
            },
            gates: RatioAllclose::new(params.tolerance("gate_atol"), params.tolerance("gate_rtol"), 0.005),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    x: Tensor,
    weights: HcWeights,
    out: HcPreOut,
    gates: RatioAllclose,
    golden: OnceLock<HcPreOut>,
}

impl Case {
    fn reference(&self) -> &HcPreOut {
        self.golden.get_or_init(|| {
            let g = self.weights.reference(&self.x.read::<f32>());
            HcPreOut {
                x_mixed: Tensor::from_vec(self.out.x_mixed.dims(), g.x_mixed),
                post: Tensor::from_vec(self.out.post.dims(), g.post),
                comb: Tensor::from_vec(self.out.comb.dims(), g.comb),
            }
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        for output in [&self.out.x_mixed, &self.out.post, &self.out.comb] {
            poison(output);
        }
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = HcPreScratch::declare(&mut creates, self.x.dims()[0]);
            creates.alloc(o)?;
            hc_pre(o, &self.x, &self.weights, &self.out, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let golden = self.reference();
        vec![
            RatioAllclose::new(1e-4, 1.0 / 128.0, 0.005).compare("x_mixed", &self.out.x_mixed, &golden.x_mixed),
            self.gates.compare("post", &self.out.post, &golden.post),
            self.gates.compare("comb", &self.out.comb, &golden.comb),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
