//! The standalone routed experts.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{Received, expert_routed};
use crate::compare::{RatioReldiff, ReceivedRows, TensorVerdict};
use crate::fixture::{Dist, Fixture, Rounding};
use crate::golden;
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{CHOSEN, DECODE_TOKENS, EXPERT_DIM, HIDDEN, LOCAL_EXPERTS, MATRIX_ROWS};
use crate::ops::swiglu::ExpertWeights;
use crate::scopes::BodyScopes;

/// The standalone kernel.
#[derive(Clone, Copy, Debug)]
pub struct ExpertRouted;

/// Rows that are sent by default: what 8 tokens choose.
const ROUTES: i64 = (DECODE_TOKENS * CHOSEN) as i64;

static INFO: KernelInfo = KernelInfo {
    name: "expert_routed",
    summary: "Routed experts of one rank: an int8 SwiGLU network per expert over the rows sent to it",
    level: Level::L2,
    ranks: 1,
    params: &[
        ParamSpec::choice("recv_max", &["64", "16", "256"], "Most rows of an expert"),
        ParamSpec::int("routes", 0, 768, ROUTES, "Rows sent, each to an expert drawn by lot"),
        WEIGHT_ALIAS,
    ],
    outputs: &[OutputInfo {
        name: "recv_y",
        dtype: DType::Bf16,
        shape: &[48, 64, 7168],
        rule: "received_rows(ratio_reldiff(diff_thd=2e-3, pct_thd=0.01), equal_tail)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.0,
        int8: 6.341_787_648,
    },
    ring_bytes: Some([0, 0, 9_449_472, 589_824]),
};

/// How many experts have weights of their own. Rings, tasks and work are the same for any value.
pub(crate) const WEIGHT_ALIAS: ParamSpec = ParamSpec::int(
    "weight_alias",
    1,
    LOCAL_EXPERTS as i64,
    4,
    "Distinct expert weights per rank, 66 MB each: expert e uses those of e modulo this; 48 is the full setting",
);

impl ExpertWeights {
    /// Weights of `stored` routed experts, drawn as the tensors `name`.w1 and so on, with these standard deviations of w1, w3 and w2.
    pub(crate) fn draw_routed(fixture: Fixture, name: &str, stored: usize, deviation: [f64; 3]) -> Self {
        let draw = |w, [outputs, inputs]: [usize; 2], deviation| {
            fixture.routed_weights(&format!("{name}.{w}"), [stored, outputs, inputs], deviation)
        };
        Self {
            gate: draw("w1", [EXPERT_DIM, HIDDEN], deviation[0]),
            up: draw("w3", [EXPERT_DIM, HIDDEN], deviation[1]),
            down: draw("w2", [HIDDEN, EXPERT_DIM], deviation[2]),
        }
    }
}

/// Rows for experts drawn by lot; `None` when one of them would get more than `most`.
fn received(fixture: Fixture, routes: usize, most: usize) -> Option<Received> {
    let lot = fixture.stream("recv_expert");
    let mut count = vec![0i32; LOCAL_EXPERTS];
    (0..routes as u64).for_each(|i| count[lot.below(i, LOCAL_EXPERTS as u64) as usize] += 1);
    if count.iter().any(|n| *n as usize > most) {
        return None;
    }
    let rows = LOCAL_EXPERTS * most;
    let x = fixture.quantised_rows("recv_x", rows, HIDDEN, Dist::normal(1.0, 0.0), Rounding::HalfEven);
    let weights = fixture.real("recv_weights", DType::F32, &[rows], Dist::uniform(0.0, 1.0));
    {
        let (mut codes, mut scales, mut weights) =
            (x.codes.write::<i8>(), x.scales.write::<f32>(), weights.write::<f32>());
        for (expert, count) in count.iter().enumerate() {
            let unused = expert * most + *count as usize..(expert + 1) * most;
            codes[unused.start * HIDDEN..unused.end * HIDDEN].fill(0);
            scales[unused.clone()].fill(0.0);
            weights[unused].fill(0.0);
        }
    }
    Some(Received {
        x: x.codes.reshape(&[LOCAL_EXPERTS, most, HIDDEN]),
        scale: x.scales.reshape(&[LOCAL_EXPERTS, most]),
        weights: weights.reshape(&[LOCAL_EXPERTS, most]),
        count: Tensor::from_vec(&[LOCAL_EXPERTS, 1], count),
    })
}

impl Kernel for ExpertRouted {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let fixture = Fixture::new(seed);
        let (routes, most) = (params.count("routes"), params.count("recv_max"));
        let received = received(fixture, routes, most).ok_or_else(|| SetupError::Contradiction {
            kernel: INFO.name,
            reason: format!("of {routes} rows an expert gets more than `recv_max`, {most}"),
        })?;
        let count: Vec<usize> = received.count.read::<i32>().iter().map(|n| *n as usize).collect();
        Ok(Box::new(Case {
            count,
            weights: ExpertWeights::draw_routed(
                fixture,
                "routed",
                params.count("weight_alias"),
                [2.47e-2, 2.46e-2, 2.44e-2],
            ),
            y: Tensor::zeros(DType::Bf16, received.x.dims()),
            received,
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    received: Received,
    count: Vec<usize>,
    weights: ExpertWeights,
    y: Tensor,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let received = golden::expert::Received {
                x: &self.received.x.read::<i8>(),
                scale: &self.received.scale.read::<f32>(),
                weights: &self.received.weights.read::<f32>(),
                count: &self.received.count.read::<i32>(),
            };
            let y = self
                .weights
                .with_golden(|experts| golden::expert::expert_routed(&received, experts));
            Tensor::from_vec(self.y.dims(), y)
        })
    }
}

impl Instance for Case {
    /// The output starts as zero, as the program leaves rows alone; whole tiles with received rows must be written.
    fn reset(&self) {
        let most = self.y.dims()[1];
        let mut y = self.y.write::<bf16>();
        for (expert, count) in y.chunks_mut(most * HIDDEN).zip(&self.count) {
            let (written, left) = expert.split_at_mut(count.next_multiple_of(MATRIX_ROWS) * HIDDEN);
            written.fill(bf16::NAN);
            left.fill(bf16::ZERO);
        }
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            expert_routed(o, BodyScopes::Automatic, &self.received, &self.weights, &self.y)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let rule = ReceivedRows {
            rule: RatioReldiff::new(2e-3, 0.01),
            count: &self.count,
        };
        vec![rule.compare("recv_y", &self.y, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use ring_runtime::{RingLimits, Runtime, RuntimeConfig, ScopeMode};

    use super::*;
    use crate::check::{AMPLE, Given, fresh_seed, session};
    use crate::compare::Outcome;

    const SMALL: Given<'_> = &[("recv_max", "16"), ("weight_alias", "1"), ("routes", "40")];

    #[test]
    fn a_wrong_row_weight_is_seen() {
        let mut session = session("expert_routed", SMALL, fresh_seed(), AMPLE);
        session.instance().golden();
        let case = session
            .instance()
            .as_any()
            .downcast_ref::<Case>()
            .expect("this kernel's case");
        let expert = case.count.iter().position(|n| *n > 0).expect("40 rows were sent");
        case.received.weights.write::<f32>()[expert * 16] += 1.0;
        assert!(session.dispatch(Duration::ZERO).passed());
        let verdict = &session.instance().validate()[0];
        assert_eq!(verdict.outcome, Outcome::Mismatch, "{verdict:#?}");
        assert_eq!(
            verdict.first.as_ref().map(|at| at.index[..2].to_vec()),
            Some(vec![expert, 0])
        );
    }

    /// Two scopes deep, as in a mixture of experts, the hidden rows lie in ring 3 in front of the tiles'
    /// buffers and hold all of them back, whether bodies are scopes or not.
    #[test]
    fn hidden_rows_hold_back_the_tiles_behind_them() {
        let session = session("expert_routed", SMALL, fresh_seed(), AMPLE);
        let case = session
            .instance()
            .as_any()
            .downcast_ref::<Case>()
            .expect("this kernel's case");
        let tiles: usize = case.count.iter().map(|n| n.div_ceil(MATRIX_ROWS)).sum();
        for bodies in [BodyScopes::Automatic, BodyScopes::ExplicitOnly] {
            case.reset();
            let rings =
                [1 << 20, 1 << 20, 1 << 20, 64 << 20].map(|heap| RingLimits::new(heap, 1024, 1024).expect("valid"));
            let mut runtime = Runtime::new(RuntimeConfig::new(rings, NonZeroUsize::MIN)).expect("a valid config");
            let report = runtime.run(|o| {
                entry_scope(o, |o| {
                    o.scope(ScopeMode::Auto, |o| {
                        expert_routed(o, bodies, &case.received, &case.weights, &case.y)
                    })
                })
            });
            assert!(report.passed(), "{bodies:?}: {:?}", report.end);
            let bytes = 2_362_368 + tiles as u64 * (589_824 + 458_752);
            assert_eq!(report.rings.map(|r| r.heap_high_water), [0, 0, 0, bytes], "{bodies:?}");
            assert_eq!(report.rings[3].tasks_submitted as usize, 8 * tiles + 1, "{bodies:?}");
            assert!(case.validate()[0].passed(), "{bodies:?}");
        }
    }
}
