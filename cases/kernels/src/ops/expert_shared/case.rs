//! The standalone shared expert.

use std::any::Any;
use std::sync::OnceLock;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::expert_shared;
use crate::compare::{RatioReldiff, TensorVerdict};
use crate::fixture::{Dist, Fixture, Quantised, Rounding, poison};
use crate::golden::expert::feed_forward;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{EXPERT_DIM, HIDDEN};
use crate::ops::swiglu::ExpertWeights;
use crate::ops::{DECODE_MODE, mode_tokens};
use crate::scopes::BodyScopes;

/// The standalone kernel.
#[derive(Clone, Copy, Debug)]
pub struct ExpertShared;

static INFO: KernelInfo = KernelInfo {
    name: "expert_shared",
    summary: "Shared expert: an int8 SwiGLU network over every token",
    level: Level::L2,
    ranks: 1,
    params: &[DECODE_MODE],
    outputs: &[OutputInfo {
        name: "sh",
        dtype: DType::Bf16,
        shape: &[8, 7168],
        rule: "ratio_reldiff(diff_thd=2e-3, pct_thd=0.01)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.0,
        int8: 1.056_964_608,
    },
    ring_bytes: Some([0, 0, 1_098_752, 0]),
};

impl ExpertWeights {
    /// Weights of a shared expert, drawn as the tensors `name`.w1 and so on, with these standard deviations of w1, w3 and w2.
    pub(crate) fn draw_shared(fixture: Fixture, name: &str, deviation: [f64; 3]) -> Self {
        let draw = |w, dims, cv, deviation| fixture.shared_weights(&format!("{name}.{w}"), dims, cv, deviation);
        Self {
            gate: draw("w1", [EXPERT_DIM, HIDDEN], 0.5, deviation[0]),
            up: draw("w3", [EXPERT_DIM, HIDDEN], 0.5, deviation[1]),
            down: draw("w2", [HIDDEN, EXPERT_DIM], 0.33, deviation[2]),
        }
    }
}

impl Kernel for ExpertShared {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let fixture = Fixture::new(seed);
        Ok(Box::new(Case {
            x: fixture.quantised_rows("x_local", tokens, HIDDEN, Dist::normal(1.0, 0.0), Rounding::HalfEven),
            weights: ExpertWeights::draw_shared(fixture, "shared", [1.71e-2, 1.70e-2, 1.68e-2]),
            sh: Tensor::zeros(DType::Bf16, &[tokens, HIDDEN]),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    x: Quantised,
    weights: ExpertWeights,
    sh: Tensor,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let (x, scale) = (self.x.codes.read::<i8>(), self.x.scales.read::<f32>());
            let ones = vec![1.0; scale.len()];
            let sh = self
                .weights
                .with_golden(|expert| feed_forward(&x, &scale, &ones, expert));
            Tensor::from_vec(self.sh.dims(), sh)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.sh);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        let scale = self.x.scales.reshape(&[self.x.scales.len(), 1]);
        entry_scope(o, |o| {
            expert_shared(o, BodyScopes::Automatic, &self.x.codes, &scale, &self.weights, &self.sh)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        vec![RatioReldiff::new(2e-3, 0.01).compare("sh", &self.sh, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use ring_runtime::{RingLimits, Runtime, RuntimeConfig};

    use super::*;
    use crate::check::{AMPLE, fresh_seed, session};
    use crate::compare::Outcome;

    #[test]
    fn a_wrong_scale_is_seen() {
        let mut session = session("expert_shared", &[], fresh_seed(), AMPLE);
        session.instance().golden();
        let case = session
            .instance()
            .as_any()
            .downcast_ref::<Case>()
            .expect("this kernel's case");
        // 4 % on one column in 16: more than the 1 % that may differ.
        for scale in case.weights.down.scales.write::<f32>().iter_mut().step_by(16) {
            *scale *= 1.04;
        }
        assert!(session.dispatch(Duration::ZERO).passed());
        let verdict = &session.instance().validate()[0];
        assert_eq!(verdict.outcome, Outcome::Mismatch, "{verdict:#?}");
    }

    /// In an entry without automatic scopes all tiles' buffers stay until the scope around the stage closes.
    #[test]
    fn tiles_add_up_without_automatic_scopes() {
        let session = session("expert_shared", &[("mode", "prefill")], fresh_seed(), AMPLE);
        let case = session
            .instance()
            .as_any()
            .downcast_ref::<Case>()
            .expect("this kernel's case");
        let scale = case.x.scales.reshape(&[128, 1]);
        let rings = [1 << 20, 16 << 20, 1 << 20, 1 << 20].map(|heap| RingLimits::new(heap, 64, 64).expect("valid"));
        let mut runtime = Runtime::new(RuntimeConfig::new(rings, NonZeroUsize::MIN)).expect("a valid config");
        let report = runtime.run(|o| {
            entry_scope(o, |o| {
                expert_shared(
                    o,
                    BodyScopes::ExplicitOnly,
                    &case.x.codes,
                    &scale,
                    &case.weights,
                    &case.sh,
                )
            })
        });
        assert!(report.passed(), "{:?}", report.end);
        assert_eq!(report.rings.map(|ring| ring.heap_high_water), [0, 8 * 1_098_752, 0, 0]);
        assert!(case.validate()[0].passed());
    }
}
