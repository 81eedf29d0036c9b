//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::{QkvArgs, QkvDist, QkvScratch, QkvWeights, qkv_proj_rope};
use crate::compare::{Int8Codes, QrScale, RatioAllclose, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Dist, Fixture, Rounding, poison};
use crate::golden::CodedRows;
use crate::golden::qkv::QkvIn;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{HEAD_DIM, HEADS, HIDDEN, Q_LORA, ROPE_DIM};
use crate::ops::{MODE, mode_tokens};

/// Query and key-value projections by themselves.
#[derive(Clone, Copy, Debug)]
pub struct QkvProjRope;

const RATIO: &str = "ratio_allclose(atol=1e-4, rtol=1/128, ratio<=0.005)";

static INFO: KernelInfo = KernelInfo {
    name: "qkv_proj_rope",
    summary: "Low-rank int8 query projection and shared key-value projection with rotary lanes",
    level: Level::L2,
    ranks: 1,
    params: &[MODE],
    outputs: &[
        OutputInfo {
            name: "q",
            dtype: DType::Bf16,
            shape: &[128, 128, 512],
            rule: RATIO,
        },
        OutputInfo {
            name: "kv",
            dtype: DType::Bf16,
            shape: &[128, 512],
            rule: RATIO,
        },
        OutputInfo {
            name: "qr",
            dtype: DType::I8,
            shape: &[128, 1536],
            rule: "quantized_codes(step<=1, changed<=0.005, per_row<=0.005)",
        },
        OutputInfo {
            name: "qr_scale",
            dtype: DType::F32,
            shape: &[128, 1],
            rule: "qr_scale(atol=2.5e-5, rtol=5e-3)",
        },
    ],
    gflop: Gflop {
        f32: 0.0,
        bf16: 3.758,
        int8: 25.770,
    },
    ring_bytes: Some([0, 37_519_360, 0, 0]),
};

impl Kernel for QkvProjRope {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let fixture = Fixture::new(seed);
        let weight = Dist::uniform(-0.1, 0.1);
        let unit = Dist::uniform(-1.0, 1.0);
        let dist = QkvDist {
            wq_a: weight,
            wq_b: weight,
            wkv: weight,
            gamma: unit,
            rounding: Rounding::HalfEven,
        };
        let bf16 = |name, dims: &[usize]| fixture.real(name, DType::Bf16, dims, unit);
        Ok(Box::new(Case {
            args: QkvArgs {
                x: bf16("x", &[tokens, HIDDEN]),
                rope_cos: bf16("rope_cos", &[tokens, ROPE_DIM]),
                rope_sin: bf16("rope_sin", &[tokens, ROPE_DIM]),
                q: Tensor::zeros(DType::Bf16, &[tokens, HEADS, HEAD_DIM]),
                kv: Tensor::zeros(DType::Bf16, &[tokens, HEAD_DIM]),
                qr: Tensor::zeros(DType::I8, &[tokens, Q_LORA]),
                qr_scale: Tensor::zeros(DType::F32, &[tokens, 1]),
            },
            weights: QkvWeights::draw(fixture, dist),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: QkvArgs,
    weights: QkvWeights,
    golden: OnceLock<Reference>,
}

struct Reference {
    kv: Tensor,
    qr: Tensor,
    qr_scale: Tensor,
}

impl Case {
    fn with_reference<R>(&self, work: impl FnOnce(QkvIn<'_>) -> R) -> R {
        let a = &self.args;
        let rope = (&*a.rope_cos.read::<bf16>(), &*a.rope_sin.read::<bf16>());
        self.weights.with_reference(&a.x.read::<bf16>(), rope, work)
    }

    fn reference(&self) -> &Reference {
        self.golden.get_or_init(|| {
            self.with_reference(|input| {
                let rows = input.qr();
                Reference {
                    kv: Tensor::from_vec(self.args.kv.dims(), input.kv()),
                    qr: Tensor::from_vec(self.args.qr.dims(), rows.codes),
                    qr_scale: Tensor::from_vec(self.args.qr_scale.dims(), rows.scales),
                }
            })
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        let a = &self.args;
        for output in [&a.q, &a.kv, &a.qr, &a.qr_scale] {
            poison(output);
        }
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = QkvScratch::declare(&mut creates, self.args.x.dims()[0]);
            creates.alloc(o)?;
            let late = o.submit(Task::new("late_dep", Unit::Scalar).dependency_only())?.id;
            qkv_proj_rope(o, &self.args, &self.weights, late, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let (a, golden) = (&self.args, self.reference());
        // A code on the edge between two may go either way, and turns a whole head: so the queries are
        // checked against those that follow from the program's own codes.
        let chosen = CodedRows {
            codes: a.qr.read::<i8>().to_vec(),
            scales: a.qr_scale.read::<f32>().to_vec(),
        };
        let q = Tensor::from_vec(a.q.dims(), self.with_reference(|input| input.q(&chosen)));
        let ratio = RatioAllclose::new(1e-4, 1.0 / 128.0, 0.005);
        vec![
            ratio.compare("q", &a.q, &q),
            ratio.compare("kv", &a.kv, &golden.kv),
            Int8Codes::new(1, 0.005, 0.005).compare("qr", &a.qr, &golden.qr),
            QrScale::new(2.5e-5, 5e-3).compare("qr_scale", &a.qr_scale, &golden.qr_scale),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
