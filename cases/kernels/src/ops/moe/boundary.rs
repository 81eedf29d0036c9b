//! Tests with few live tokens: what a rounding boundary costs there, and that nothing but rounding differs.
//!
//! The mixed row of a token is rounded to bf16, and its largest element sets the scale of all of the token's codes.
//! Where two sums of the same terms differ in their last bit and round that element to different neighbours, all codes
//! of the token are rounded anew, and everything that the experts make of it moves by the noise of the quantisation. The
//! rule allows 5 % of the values to be off: a share that one token is below among many, but not among few.

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, ScopeMode, Tensor};

use super::fixture::{RankInput, random_table, reference, streams};
use super::{MoeCall, MoeScratch, MoeWeights, MoeWindows, moe};
use crate::check::{AMPLE, PATIENT, config, fresh_seed};
use crate::compare::{RatioReldiff, TensorVerdict};
use crate::creates::Creates;
use crate::dispatch::Session;
use crate::fixture::{Fixture, poison};
use crate::golden::hc_pre::hc_pre;
use crate::kernel::Instance;
use crate::model::{DECODE_TOKENS, HC_DIM, HIDDEN, RANKS, STREAMS};
use crate::ops::gate::case::token_ids;
use crate::scopes::BodyScopes;

const TOKENS: usize = DECODE_TOKENS;
const LAYER: i32 = 30;

/// One call whose streams and token ids are set from outside.
struct Call {
    active: i32,
    x: [Tensor; RANKS],
    x_next: [Tensor; RANKS],
    ids: [Tensor; RANKS],
    weights: [MoeWeights; RANKS],
    windows: MoeWindows,
}

impl Call {
    /// The weights that six equal experts of a rank share, so that what one is off by adds up.
    fn new(seed: u64, active: i32) -> Self {
        let fixture = Fixture::new(seed);
        let streams = || std::array::from_fn(|_| Tensor::zeros(DType::F32, &[TOKENS, STREAMS, HIDDEN]));
        let call = Self {
            active,
            x: streams(),
            x_next: streams(),
            ids: std::array::from_fn(|_| Tensor::zeros(DType::I64, &[TOKENS])),
            weights: MoeWeights::draw(fixture, random_table(fixture, "tid2eid"), 1),
            windows: MoeWindows::new(TOKENS),
        };
        call.refill(seed);
        call
    }

    fn refill(&self, seed: u64) {
        let fixture = Fixture::new(seed);
        for rank in 0..RANKS {
            self.x[rank].copy_from(&streams(fixture, &format!("x.{rank}"), TOKENS));
            self.ids[rank].copy_from(&token_ids(fixture, &format!("ids.{rank}"), TOKENS));
        }
    }

    /// The reference on both ranks, of streams `x` of rank 0.
    fn reference(&self, x: &[f32], active: i32) -> [Vec<f32>; RANKS] {
        let other = self.x[1].read::<f32>();
        let ids = self.ids.each_ref().map(Tensor::read::<i64>);
        let inputs = [x, &other[..]];
        let inputs = std::array::from_fn(|rank| RankInput {
            x: inputs[rank],
            input_ids: &ids[rank],
            layer_id: LAYER,
            num_tokens: active,
        });
        reference(self.weights.each_ref(), inputs)
    }

    /// Bits of the largest element of a token's mixed row.
    fn largest(&self, row: &[f32]) -> u16 {
        let hc = &self.weights[0].hc;
        let (weight, scale, base) = (hc.weight.read::<f32>(), hc.scale.read::<f32>(), hc.base.read::<f32>());
        let mixed = hc_pre(row, &weight, &scale, &base).x_mixed;
        let largest = mixed.iter().map(|v| bf16::from_bits(v.to_bits() & 0x7fff));
        largest.max_by(bf16::total_cmp).expect("a row has elements").to_bits()
    }
}

/// By the rule of the program, over both ranks as there.
fn compare(actual: &[Vec<f32>; RANKS], expected: &[Vec<f32>; RANKS], active: usize) -> TensorVerdict {
    let [actual, expected] =
        [actual, expected].map(|x| Tensor::from_vec(&[RANKS, TOKENS, STREAMS, HIDDEN], x.concat()));
    let rule = RatioReldiff::new(5e-3, 0.05).abs_cap(0.25);
    rule.compare_partition("x_next", &actual, &expected, active, 1)
}

/// Two references whose inputs differ in the last bit, of a token whose largest element stands between two bf16 values.
#[test]
fn a_token_at_a_boundary_is_too_much_for_the_rule_of_one() {
    let seed = fresh_seed();
    let call = Call::new(seed, 1);
    let x = call.x[0].read::<f32>().to_vec();
    // The mix does not depend on the length of the row, so that the row can be stretched up to the boundary.
    let stretched = |factor: f32| -> Vec<f32> {
        let mut x = x.clone();
        x[..HC_DIM].iter_mut().for_each(|v| *v *= factor);
        x
    };
    let largest = |factor| call.largest(&stretched(factor)[..HC_DIM]);
    let (mut below, mut above) = (1f32, 1.0 + 1.0 / 64.0);
    let start = largest(below);
    assert_ne!(start, largest(above), "seed {seed}: one step of bf16 is at most 1/128");
    while below.to_bits() + 1 < above.to_bits() {
        let middle = f32::from_bits(below.to_bits().midpoint(above.to_bits()));
        if largest(middle) == start {
            below = middle;
        } else {
            above = middle;
        }
    }
    for (active, passes) in [(1, false), (TOKENS as i32, true)] {
        let [low, high] = [below, above].map(|factor| call.reference(&stretched(factor), active));
        let verdict = compare(&low, &high, active as usize);
        assert_eq!(verdict.passed(), passes, "seed {seed}, {active} live: {verdict:#?}");
    }
}

/// The call in a session, while the test sets its inputs.
struct Shared(Arc<Call>);

impl Instance for Shared {
    fn ranks(&self) -> usize {
        RANKS
    }

    fn reset(&self) {
        self.0.x_next.iter().for_each(poison);
        self.0.windows.clear();
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        let args = &self.0;
        o.scope(ScopeMode::Auto, |o| {
            let mut creates = Creates::new();
            let scratch = MoeScratch::declare(&mut creates, TOKENS);
            creates.alloc(o)?;
            let call = MoeCall {
                rank,
                epoch: 1,
                layer_id: LAYER,
                num_tokens: args.active,
            };
            let (x, ids, x_next) = (&args.x[rank], &args.ids[rank], &args.x_next[rank]);
            let bodies = BodyScopes::Automatic;
            moe(
                o,
                bodies,
                call,
                x,
                ids,
                &args.weights[rank],
                x_next,
                &args.windows,
                &scratch,
            )
        })
    }

    fn golden(&self) {}

    fn validate(&self) -> Vec<TensorVerdict> {
        Vec::new()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Whatever the cores take first: a wrong order between tasks or ranks would show in some run, rounding in none.
#[test]
fn the_same_inputs_give_the_same_bits_each_time() {
    let seed = fresh_seed();
    let call = Arc::new(Call::new(seed, 1));
    // More cores than the machine may have, so that blocks are interrupted.
    let mut config = config(AMPLE, PATIENT);
    config.cores = NonZeroUsize::new(4).expect("not zero");
    let mut session = Session::new(Box::new(Shared(Arc::clone(&call))), &config).expect("a valid config");
    for inputs in 0..INPUTS {
        call.refill(seed.wrapping_add(inputs));
        let mut first = None;
        for run in 0..RUNS {
            let dispatch = session.dispatch(Duration::ZERO);
            assert!(dispatch.passed(), "seed {seed}: {:#?}", dispatch.failure());
            let bits = call.x_next.each_ref().map(|x| {
                let x = x.read::<f32>();
                x.iter().map(|v| v.to_bits()).collect::<Vec<u32>>()
            });
            let first = first.get_or_insert_with(|| bits.clone());
            assert!(
                *first == bits,
                "seed {seed}, inputs {inputs}, run {run}: other bits than in the first run"
            );
        }
    }
}

const INPUTS: u64 = 4;
const RUNS: usize = 25;
