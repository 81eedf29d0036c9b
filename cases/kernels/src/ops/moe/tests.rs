//! Calls that follow each other on the same windows, as in the layer and forward programs.

use std::any::Any;
use std::num::NonZeroUsize;
use std::time::Duration;

use ring_runtime::{DType, Halted, Orchestrator, RingLimits, RuntimeConfig, ScopeMode, Tensor};

use super::fixture::{RankInput, cyclic_table, reference, streams};
use super::{MoeCall, MoeScratch, MoeWeights, MoeWindows, moe, moe_retire};
use crate::check::fresh_seed;
use crate::compare::{RatioReldiff, TensorVerdict};
use crate::creates::Creates;
use crate::dispatch::Session;
use crate::fixture::{Fixture, poison};
use crate::kernel::Instance;
use crate::model::{DECODE_TOKENS, HIDDEN, RANKS, STREAMS};
use crate::ops::gate::case::token_ids;
use crate::scopes::BodyScopes;

const TOKENS: usize = DECODE_TOKENS;
const ACTIVE: i32 = 5;
/// One layer that routes by token id, one that routes by score.
const LAYERS: [i32; 2] = [2, 3];

/// Two layers, each in a stage scope; then the credits are retired.
struct Layers {
    bodies: BodyScopes,
    x: [Tensor; RANKS],
    middle: [Tensor; RANKS],
    x_next: [Tensor; RANKS],
    ids: [Tensor; RANKS],
    weights: [MoeWeights; RANKS],
    windows: MoeWindows,
}

impl Layers {
    fn new(bodies: BodyScopes, seed: u64) -> Self {
        let fixture = Fixture::new(seed);
        let empty = || std::array::from_fn(|_| Tensor::zeros(DType::F32, &[TOKENS, STREAMS, HIDDEN]));
        Self {
            bodies,
            x: std::array::from_fn(|rank| streams(fixture, &format!("x.{rank}"), TOKENS)),
            middle: empty(),
            x_next: empty(),
            ids: std::array::from_fn(|rank| token_ids(fixture, &format!("ids.{rank}"), TOKENS)),
            weights: MoeWeights::draw(fixture, cyclic_table(0), 1),
            windows: MoeWindows::new(TOKENS),
        }
    }

    fn golden_of(&self, weights: [&MoeWeights; RANKS], x: &[Vec<f32>; RANKS], layer_id: i32) -> [Vec<f32>; RANKS] {
        let ids = self.ids.each_ref().map(Tensor::read::<i64>);
        let ranks = std::array::from_fn(|rank| RankInput {
            x: &x[rank],
            input_ids: &ids[rank],
            layer_id,
            num_tokens: ACTIVE,
        });
        reference(weights, ranks)
    }

    /// Compares what each layer made with what it makes of these weights.
    fn compare(&self, weights: [&MoeWeights; RANKS]) -> Vec<TensorVerdict> {
        let x = self.x.each_ref().map(|x| x.read::<f32>().to_vec());
        let first = self.golden_of(weights, &x, LAYERS[0]);
        let second = self.golden_of(weights, &first, LAYERS[1]);
        let rule = RatioReldiff::new(1e-2, 0.08).abs_cap(0.25);
        let compare = |(actual, expected): (&Tensor, Vec<f32>)| {
            let expected = Tensor::from_vec(actual.dims(), expected);
            rule.compare_partition("x_next", actual, &expected, ACTIVE as usize, 0)
        };
        let layers = self.middle.iter().zip(first).chain(self.x_next.iter().zip(second));
        layers.map(compare).collect()
    }
}

impl Instance for Layers {
    fn ranks(&self) -> usize {
        RANKS
    }

    fn reset(&self) {
        self.middle.iter().chain(&self.x_next).for_each(poison);
        assert!(self.windows.at_rest(), "the credits of the last dispatch were retired");
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        let stages = [
            (&self.x[rank], &self.middle[rank]),
            (&self.middle[rank], &self.x_next[rank]),
        ];
        for (i, (x, x_next)) in stages.into_iter().enumerate() {
            o.scope(ScopeMode::Auto, |o| {
                let mut creates = Creates::new();
                let scratch = MoeScratch::declare(&mut creates, TOKENS);
                creates.alloc(o)?;
                let call = MoeCall {
                    rank,
                    epoch: i as i32 + 1,
                    layer_id: LAYERS[i],
                    num_tokens: ACTIVE,
                };
                let (ids, weights) = (&self.ids[rank], &self.weights[rank]);
                moe(o, self.bodies, call, x, ids, weights, x_next, &self.windows, &scratch)
            })?;
        }
        moe_retire(o, rank, LAYERS.len() as i32, &self.x_next[rank], &self.windows)
    }

    fn golden(&self) {}

    fn validate(&self) -> Vec<TensorVerdict> {
        self.compare(self.weights.each_ref())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Runs both layers twice and compares.
fn check(bodies: BodyScopes) {
    let seed = fresh_seed();
    // Room for both layers at once: the second one's allocations must not depend on how fast the first one ends.
    let rings = [1, 16, 32, 128].map(|mib| {
        RingLimits::new(mib << 20, RingLimits::DEFAULT_TASK_WINDOW, RingLimits::DEFAULT_DEP_POOL).expect("valid heaps")
    });
    let config = RuntimeConfig::new(rings, NonZeroUsize::new(2).expect("not zero"));
    let mut session = Session::new(Box::new(Layers::new(bodies, seed)), &config).expect("a valid config");
    for round in 0..2 {
        let dispatch = session.dispatch(Duration::ZERO);
        assert!(
            dispatch.passed(),
            "seed {seed}, round {round}: {:#?}",
            dispatch.failure()
        );
    }
    for verdict in session.instance().validate() {
        assert!(verdict.passed(), "seed {seed}: {verdict:#?}");
    }
    let layers = session.instance().as_any().downcast_ref::<Layers>();
    let layers = layers.expect("what was put in");
    assert!(layers.windows.at_rest(), "seed {seed}");
    // Rows that went to the other rank's experts would be seen.
    let [first, second] = &layers.weights;
    for verdict in layers.compare([second, first]) {
        assert!(!verdict.passed(), "seed {seed}: {verdict:#?}");
    }
}

#[test]
fn calls_follow_each_other_under_automatic_scopes() {
    check(BodyScopes::Automatic);
}

#[test]
fn calls_follow_each_other_under_explicit_scopes() {
    check(BodyScopes::ExplicitOnly);
}
