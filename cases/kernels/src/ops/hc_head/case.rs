//! The standalone head.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{HcHeadScratch, HcHeadWeights, hc_head};
use crate::compare::{RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Dist, Fixture, poison};
use crate::golden;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{HC_DIM, HIDDEN, STREAMS};
use crate::ops::{DECODE_MODE, mode_tokens};
use crate::scopes::BodyScopes;

/// The standalone kernel.
#[derive(Clone, Copy, Debug)]
pub struct HcHead;

static INFO: KernelInfo = KernelInfo {
    name: "hc_head",
    summary: "Hyper-connection head: four residual streams of each token collapsed into one row",
    level: Level::L2,
    ranks: 1,
    params: &[DECODE_MODE],
    outputs: &[OutputInfo {
        name: "y",
        dtype: DType::Bf16,
        shape: &[8, 7168],
        rule: "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)",
    }],
    gflop: Gflop {
        f32: 0.001_835_008,
        bf16: 0.0,
        int8: 0.0,
    },
    ring_bytes: Some([0, 82_944, 0, 0]),
};

const SCALE: f32 = 0.076_099;
const BASE: [f32; STREAMS] = [5.9166, -3.6223, -2.9324, -3.3124];

impl HcHeadWeights {
    /// The projection drawn as the tensor `name`, with the scale and biases of the spec.
    pub(crate) fn draw(fixture: Fixture, name: &str) -> Self {
        Self {
            weight: fixture.real(name, DType::F32, &[STREAMS, HC_DIM], Dist::normal(0.0519, 0.0)),
            scale: Tensor::from_vec(&[1], vec![SCALE]),
            base: Tensor::from_vec(&[STREAMS], BASE.to_vec()),
        }
    }
}

impl Kernel for HcHead {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let fixture = Fixture::new(seed);
        Ok(Box::new(Case {
            x: fixture.real("x_hc", DType::F32, &[tokens, STREAMS, HIDDEN], Dist::normal(0.05, 0.0)),
            weights: HcHeadWeights::draw(fixture, "hc_head_fn"),
            y: Tensor::zeros(DType::Bf16, &[tokens, HIDDEN]),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    x: Tensor,
    weights: HcHeadWeights,
    y: Tensor,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let w = &self.weights;
            let y = golden::hc_head::hc_head(
                &self.x.read::<f32>(),
                &w.weight.read::<f32>(),
                w.scale.get::<f32>(0),
                &w.base.read::<f32>(),
            );
            Tensor::from_vec(self.y.dims(), y)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.y);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = HcHeadScratch::declare(&mut creates);
            creates.alloc(o)?;
            hc_head(o, BodyScopes::Automatic, &self.x, &self.weights, &self.y, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        vec![RatioAllclose::new(1e-4, 1.0 / 128.0, 0.005).compare("y", &self.y, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
