//! A whole forward pass of the main model on two ranks: embedding, every layer, head and norm, and the language-model
//! head with its sampling. A decode step and a prefill tile differ in their attention and in where their scopes end.

mod case;
mod check;
#[cfg(all(test, feature = "long"))]
mod tests;

use ring_runtime::{DType, Halted, Orchestrator, ScopeMode, Tensor};

pub(crate) use case::{Case, Initial, Setup, output};
pub(crate) use check::TOKEN_RULES;

use super::hc_head::HcHeadScratch;
use super::input_pack::input_pack;
use super::layers::{FinalHead, Kind, Layer, Schedule};
use super::lm_head::{LmHeadArgs, LmHeadScratch, LmHeadWindows, lm_head};
use super::moe::{MoeCall, MoeScratch, MoeWeights, MoeWindows, moe, moe_retire};
use super::tapped::Tapped;
use crate::compare::TensorVerdict;
use crate::creates::{Created, Creates};
use crate::kernel::entry_scope;
use crate::model::{HIDDEN, STREAMS};
use crate::scopes::BodyScopes;

/// Automatic scopes are off in the entry.
const BODIES: BodyScopes = BodyScopes::ExplicitOnly;

/// The attention half of a layer, of any kind, on one rank.
pub(crate) trait Attention: Clone + Send + Sync + 'static {
    /// Weights of a kind.
    type Weights: Clone + Send + Sync;
    /// What a block should leave behind.
    type Reference;

    /// The same from `x` to `x_out`, [T, 4, 7168] f32 each.
    fn between(&self, x: &Tensor, x_out: impl Into<Tapped>) -> Self;

    /// What it updates beside the streams, in the order of the kind.
    fn pools(&self) -> Vec<&Tensor>;

    /// Allocates in the current scope, and submits the block.
    fn submit(&self, o: &mut Orchestrator<'_>, bodies: BodyScopes, weights: &Self::Weights) -> Result<(), Halted>;

    /// The reference, from pools as they were before.
    fn reference(&self, weights: &Self::Weights, before: &[Tensor]) -> Self::Reference;

    /// Compares streams and pools with their reference by the rules of the block's own program.
    fn compare(&self, reference: &Self::Reference) -> Vec<TensorVerdict>;

    /// What it is given beside streams, pools and weights, where both ranks may have been given the same: then one
    /// reference serves both.
    fn metadata(&self) -> Option<Vec<&Tensor>> {
        None
    }
}

/// How the head stands to the language-model head behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Both in one scope.
    Together,
    /// The original runs the language-model head in a dispatch of its own. Here it is the second entry of one dispatch:
    /// it allocates what it would there, in the ring that it would, and starts once `hidden_out` is there.
    Apart,
}

/// What one rank has.
pub(crate) struct Rank<A: Attention> {
    input_ids: Tensor,
    /// Embedding, [129280, 7168] bf16.
    embed: Tensor,
    /// Pools and metadata of each layer.
    attention: Vec<A>,
    /// Weights of all HCA layers, and of all CSA layers.
    hca: A::Weights,
    csa: A::Weights,
    /// Weights of each layer, which differ in the experts of a token id.
    experts: Vec<MoeWeights>,
    /// Tokens that are live.
    num_tokens: usize,
    head: FinalHead,
    /// Arguments of the language-model head, on `hidden_out`.
    lm_head: LmHeadArgs,
    /// Streams before the head, [T, 4, 7168] f32, written.
    pre_hc: Tensor,
}

impl<A: Attention> Rank<A> {
    fn attention_weights(&self, layer: Layer) -> &A::Weights {
        match layer.kind() {
            Kind::Hca => &self.hca,
            Kind::Csa => &self.csa,
        }
    }
}

/// Copies of the streams between the stages of a rank, [T, 4, 7168] f32 each.
pub(crate) struct Taps {
    packed: Tensor,
    /// Behind the attention of each layer.
    attended: Vec<Tensor>,
    /// Behind each layer but the last, whose streams are an output of the program.
    next: Vec<Tensor>,
}

impl Taps {
    fn new(schedule: Schedule, tokens: usize) -> Self {
        let streams = || Tensor::zeros(DType::F32, &[tokens, STREAMS, HIDDEN]);
        Self {
            packed: streams(),
            attended: schedule.layers().map(|_| streams()).collect(),
            next: schedule.layers().skip(1).map(|_| streams()).collect(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Tensor> {
        self.next.iter().chain(&self.attended).chain([&self.packed])
    }

    /// What `layer` was given.
    fn before(&self, layer: Layer) -> &Tensor {
        match layer.id {
            0 => &self.packed,
            id => &self.next[id - 1],
        }
    }
}

/// A pass on one rank.
struct Pass<'a, A: Attention> {
    rank: usize,
    schedule: Schedule,
    args: &'a Rank<A>,
    windows: &'a MoeWindows,
    lm_windows: &'a LmHeadWindows,
    tail: Tail,
    /// Where copies of the streams go, if they are wanted.
    taps: Option<&'a Taps>,
}

impl<A: Attention> Pass<'_, A> {
    /// `tensor`, with the copy that `choose` names.
    fn tapped(&self, tensor: &Tensor, choose: impl Fn(&Taps) -> Option<&Tensor>) -> Tapped {
        match self.taps.and_then(choose) {
            Some(copy) => Tapped::into_copy(tensor, copy),
            None => tensor.into(),
        }
    }

    /// Submits the pass in the root scope, where automatic scopes are off: only the stages are scopes.
    ///
    /// The streams between layers are in ring 0 until the end, three more of them for each pair. `hidden` is written again
    /// and again. No explicit dependency is needed for that: all readers of its last value come before the attention's
    /// result, which the next writer waits for. The last layer writes `pre_hc`.
    fn submit(&self, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        let tokens = self.args.pre_hc.dims()[0];
        let streams = |creates: &mut Creates, name| creates.tensor(name, DType::F32, &[tokens, STREAMS, HIDDEN]);
        let mut creates = Creates::new();
        let [x_hc, x_attn0, x_attn1, hidden, x_attn_last] =
            ["x_hc", "x_attn0", "x_attn1", "hidden", "x_attn_last"].map(|name| streams(&mut creates, name));
        let x_head = creates.tensor("x_head", DType::Bf16, &[tokens, HIDDEN]);
        creates.alloc(o)?;
        let packed = self.tapped(&x_hc, |taps| Some(&taps.packed));
        input_pack(o, &self.args.input_ids, &self.args.embed, packed)?;
        self.layer(o, 0, &x_hc, &x_attn0, &hidden)?;
        self.layer(o, 1, &hidden, &x_attn1, &hidden)?;
        for pair in 0..self.schedule.pairs() {
            let mut creates = Creates::new();
            let [x_attn_csa, x_attn_hca, hidden_mid] =
                ["x_attn_csa", "x_attn_hca", "hidden_mid"].map(|name| streams(&mut creates, name));
            creates.alloc(o)?;
            self.layer(o, 2 * pair + 2, &hidden, &x_attn_csa, &hidden_mid)?;
            self.layer(o, 2 * pair + 3, &hidden_mid, &x_attn_hca, &hidden)?;
        }
        let (layers, pre_hc) = (self.schedule.len(), &self.args.pre_hc);
        self.layer(o, layers - 1, &hidden, &x_attn_last, pre_hc)?;
        moe_retire(o, self.rank, layers as i32, pre_hc, self.windows)?;
        match self.tail {
            Tail::Together => o.scope(ScopeMode::Auto, |o| {
                let mut creates = Creates::new();
                let head = HcHeadScratch::declare(&mut creates);
                let lm = LmHeadScratch::declare(&mut creates);
                creates.alloc(o)?;
                self.head(o, &x_head, &head)?;
                self.lm_head(o, &lm)
            }),
            Tail::Apart => {
                o.scope(ScopeMode::Auto, |o| {
                    let mut creates = Creates::new();
                    let scratch = HcHeadScratch::declare(&mut creates);
                    creates.alloc(o)?;
                    self.head(o, &x_head, &scratch)
                })?;
                entry_scope(o, |o| {
                    let mut creates = Creates::new();
                    let scratch = LmHeadScratch::declare(&mut creates);
                    creates.alloc(o)?;
                    self.lm_head(o, &scratch)
                })
            }
        }
    }

    fn head(&self, o: &mut Orchestrator<'_>, x_head: &Created, scratch: &HcHeadScratch) -> Result<(), Halted> {
        let (pre_hc, hidden) = (&self.args.pre_hc, &self.args.lm_head.hidden);
        self.args.head.submit(o, BODIES, pre_hc, x_head, hidden, scratch)
    }

    fn lm_head(&self, o: &mut Orchestrator<'_>, scratch: &LmHeadScratch) -> Result<(), Halted> {
        lm_head(o, self.rank, 1, &self.args.lm_head, self.lm_windows, scratch)
    }

    /// Submits layer `id`: its two halves, each a stage with a scope of its own.
    fn layer(
        &self,
        o: &mut Orchestrator<'_>,
        id: usize,
        x: &Tensor,
        x_attn: &Tensor,
        x_next: &Tensor,
    ) -> Result<(), Halted> {
        let layer = Layer { id };
        let attended = self.tapped(x_attn, |taps| Some(&taps.attended[id]));
        let next = self.tapped(x_next, |taps| taps.next.get(id));
        let attention = self.args.attention[id].between(x, attended);
        o.scope(ScopeMode::Auto, |o| {
            attention.submit(o, BODIES, self.args.attention_weights(layer))
        })?;
        o.scope(ScopeMode::Auto, |o| {
            let mut creates = Creates::new();
            let scratch = MoeScratch::declare(&mut creates, x.dims()[0]);
            creates.alloc(o)?;
            let call = MoeCall {
                rank: self.rank,
                epoch: layer.epoch(),
                layer_id: id as i32,
                num_tokens: self.args.num_tokens as i32,
            };
            let (ids, weights) = (&self.args.input_ids, &self.args.experts[id]);
            moe(o, BODIES, call, x_attn, ids, weights, next, self.windows, &scratch)
        })
    }
}
