//! The standalone router.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{GateOut, GateScratch, GateWeights, Routing, gate};
use crate::compare::{Exact, GateIndices, GateWeights as WeightsRule, RatioAllclose, Tail, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Dist, Fixture, constant, poison};
use crate::golden;
use crate::golden::gate::GateInput;
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{CHOSEN, HIDDEN, ROUTE_SCALE, VOCAB};
use crate::ops::{DECODE_MODE, mode_tokens};
use crate::scopes::BodyScopes;

/// The standalone kernel.
#[derive(Clone, Copy, Debug)]
pub struct Gate;

static INFO: KernelInfo = KernelInfo {
    name: "gate",
    summary: "Expert router: int8 rows for the experts, six experts per token with weights",
    level: Level::L2,
    ranks: 1,
    params: &[
        DECODE_MODE,
        ParamSpec::choice(
            "experts",
            &["384", "96"],
            "Route to all experts or to those of two ranks",
        ),
        ParamSpec::int(
            "layer_id",
            0,
            60,
            10,
            "Layer: the first three route by token id, the others by score",
        ),
        ParamSpec::int(
            "num_tokens",
            -1,
            128,
            128,
            "Tokens in use; cut to the tokens that there are",
        ),
    ],
    outputs: &[
        OutputInfo {
            name: "x_norm_i8",
            dtype: DType::I8,
            shape: &[8, 7168],
            rule: "ratio_allclose(atol=1, rtol=0, ratio<=0.001), normalised rows",
        },
        OutputInfo {
            name: "x_norm_scale",
            dtype: DType::F32,
            shape: &[8, 1],
            rule: "ratio_allclose(atol=1e-3, rtol=1e-3, ratio<=0), tail zero",
        },
        OutputInfo {
            name: "indices",
            dtype: DType::I32,
            shape: &[8, 6],
            rule: "gate_indices(score_atol=1e-4, score_rtol=2e-5), tail zero; exact in hash layers",
        },
        OutputInfo {
            name: "weights",
            dtype: DType::F32,
            shape: &[8, 6],
            rule: "gate_weights(sum=2.5) at the chosen experts, tail zero",
        },
    ],
    gflop: Gflop {
        f32: 0.044_040_192,
        bf16: 0.0,
        int8: 0.0,
    },
    ring_bytes: Some([0, 526_336, 0, 0]),
};

impl GateWeights {
    /// A gain of ones, a projection of normal values over √7168, and this bias \[N\] and table of hash layers [129280, 6].
    pub(crate) fn draw(fixture: Fixture, name: &str, bias: Tensor, table: Tensor) -> Self {
        let deviation = 1.0 / (HIDDEN as f32).sqrt();
        let dims = [bias.dims()[0], HIDDEN];
        Self {
            norm: constant(DType::Bf16, &[HIDDEN], 1.0),
            projection: fixture.real(name, DType::F32, &dims, Dist::normal(deviation, 0.0)),
            bias,
            table,
        }
    }
}

impl GateOut {
    /// Host memory for `tokens` tokens.
    pub(crate) fn host(tokens: usize) -> Self {
        Self {
            x_i8: Tensor::zeros(DType::I8, &[tokens, HIDDEN]),
            x_scale: Tensor::zeros(DType::F32, &[tokens, 1]),
            indices: Tensor::zeros(DType::I32, &[tokens, CHOSEN]),
            weights: Tensor::zeros(DType::F32, &[tokens, CHOSEN]),
        }
    }
}

/// Uniform token ids, \[tokens\] i64.
pub(crate) fn token_ids(fixture: Fixture, name: &str, tokens: usize) -> Tensor {
    let stream = fixture.stream(name);
    let ids = (0..tokens as u64).map(|t| stream.below(t, VOCAB as u64) as i64);
    Tensor::from_vec(&[tokens], ids.collect())
}

impl Kernel for Gate {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let experts = params.count("experts");
        let fixture = Fixture::new(seed);
        let bias = fixture.real("gate_bias", DType::F32, &[experts], Dist::normal(0.1, 0.0));
        let table = fixture.integers("tid2eid", &[VOCAB, CHOSEN], experts);
        Ok(Box::new(Case {
            x: fixture.real("x_mixed", DType::Bf16, &[tokens, HIDDEN], Dist::normal(1.0, 0.0)),
            input_ids: token_ids(fixture, "input_ids", tokens),
            weights: GateWeights::draw(fixture, "gate_w", bias, table),
            layer_id: params.int("layer_id") as i32,
            num_tokens: params.int("num_tokens") as i32,
            out: GateOut::host(tokens),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    x: Tensor,
    input_ids: Tensor,
    weights: GateWeights,
    layer_id: i32,
    num_tokens: i32,
    out: GateOut,
    golden: OnceLock<golden::gate::Gate>,
}

impl Case {
    fn reference(&self) -> &golden::gate::Gate {
        self.golden.get_or_init(|| {
            let w = &self.weights;
            golden::gate::gate(&GateInput {
                x: &self.x.read::<bf16>(),
                norm: &w.norm.read::<bf16>(),
                projection: &w.projection.read::<f32>(),
                bias: &w.bias.read::<f32>(),
                table: &w.table.read::<i32>(),
                input_ids: &self.input_ids.read::<i64>(),
                layer_id: self.layer_id,
                num_tokens: self.num_tokens,
            })
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        for output in [&self.out.x_i8, &self.out.x_scale, &self.out.indices, &self.out.weights] {
            poison(output);
        }
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = GateScratch::declare(&mut creates, self.x.dims()[0]);
            creates.alloc(o)?;
            gate(
                o,
                BodyScopes::Automatic,
                &self.x,
                &self.input_ids,
                &self.weights,
                self.layer_id,
                self.num_tokens,
                &self.out,
                &scratch,
            )
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        let g = self.reference();
        let experts = self.weights.bias.dims()[0];
        let codes = Tensor::from_vec(self.out.x_i8.dims(), g.x_i8.clone());
        let scales = Tensor::from_vec(self.out.x_scale.dims(), g.x_scale.clone());
        let indices = &self.out.indices;
        let chosen = match Routing::of_layer(self.layer_id) {
            Routing::Hash => Exact.compare("indices", indices, &Tensor::from_vec(indices.dims(), g.indices.clone())),
            Routing::Score => GateIndices {
                score: &g.score,
                biased: &g.biased,
                experts,
                active: g.active,
            }
            .compare("indices", indices),
        };
        let weights = WeightsRule {
            score: &g.score,
            experts,
            active: g.active,
            sum: f64::from(ROUTE_SCALE),
        };
        vec![
            RatioAllclose::new(1.0, 0.0, 0.001)
                .valid_rows(g.rows, 0, Tail::Free)
                .compare("x_norm_i8", &self.out.x_i8, &codes),
            RatioAllclose::new(1e-3, 1e-3, 0.0)
                .valid_rows(g.active, 0, Tail::Zero)
                .compare("x_norm_scale", &self.out.x_scale, &scales),
            chosen,
            weights.compare("weights", &self.out.weights, indices),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::{AMPLE, fresh_seed, session};
    use crate::compare::Outcome;

    /// Outcomes of a run whose arguments `change` altered after the reference was computed.
    fn outcomes(layer_id: &str, change: impl FnOnce(&Case)) -> Vec<Outcome> {
        let mut session = session("gate", &[("layer_id", layer_id)], fresh_seed(), AMPLE);
        session.instance().golden();
        change(
            session
                .instance()
                .as_any()
                .downcast_ref::<Case>()
                .expect("this kernel's case"),
        );
        assert!(session.dispatch(Duration::ZERO).passed());
        session.instance().validate().iter().map(|v| v.outcome).collect()
    }

    #[test]
    fn a_wrong_bias_changes_the_choice_but_not_the_weights() {
        let found = outcomes("10", |case| case.weights.bias.write::<f32>()[7] += 4.0);
        assert_eq!(found, [Outcome::Pass, Outcome::Pass, Outcome::Mismatch, Outcome::Pass]);
    }

    #[test]
    fn a_wrong_norm_is_seen_in_every_output() {
        let found = outcomes("1", |case| {
            for gain in case.weights.norm.write::<bf16>().iter_mut().step_by(2) {
                *gain = bf16::from_f32(1.5);
            }
        });
        let [codes, scales, indices, weights] = found[..] else {
            panic!("four outputs")
        };
        assert_eq!([codes, scales, weights], [Outcome::Mismatch; 3]);
        assert_eq!(indices, Outcome::Pass, "the table knows no norm");
    }
}
