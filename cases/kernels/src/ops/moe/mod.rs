//! The feed-forward half of a layer: router, shared expert, and the routed experts of two ranks, between
//! the hyper-connection mixes.
//!
//! Each rank routes its own tokens. A token's quantised row goes to the ranks that own its six experts,
//! and what they make of it comes back; see `windows` for what the ranks share. Waits hold a core, so a
//! rank needs two, see [`KernelInfo::min_cores`](crate::kernel::KernelInfo::min_cores).

#[cfg(test)]
mod boundary;
mod case;
mod combine;
mod dispatch;
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
mod windows;

use ring_runtime::{DType, Halted, Orchestrator, ScopeMode, Tensor};

pub use case::Moe;
pub(crate) use windows::{MoeWindows, moe_retire};

use crate::creates::{Created, Creates};
use crate::model::{CHOSEN, HIDDEN, LOCAL_EXPERTS, RANKS, STREAMS};
use crate::ops::expert_routed::{Received, expert_routed};
use crate::ops::expert_shared::expert_shared;
use crate::ops::gate::{GateOut, GateScratch, GateWeights, gate};
use crate::ops::hc_post::{HcPostArgs, hc_post};
use crate::ops::hc_pre::{HcPreOut, HcPreScratch, HcWeights, hc_pre};
use crate::ops::swiglu::ExpertWeights;
use crate::ops::tapped::Tapped;
use crate::scopes::BodyScopes;

/// Experts of all ranks.
pub(crate) const EXPERTS: usize = RANKS * LOCAL_EXPERTS;
/// Notices that a rank sends to each peer in a step: one per block.
const NOTICES: i32 = LOCAL_EXPERTS as i32;

/// What the number of tokens decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Tokens of a rank.
    tokens: usize,
}

impl Shape {
    /// Most rows that an expert can get: every token of every rank.
    fn most(self) -> usize {
        RANKS * self.tokens
    }
}

/// One call on one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MoeCall {
    /// The rank.
    pub(crate) rank: usize,
    /// Number of the call since the windows were zero, from 1.
    pub(crate) epoch: i32,
    /// Layer.
    pub(crate) layer_id: i32,
    /// Tokens in use, before clamping; the same on all ranks.
    pub(crate) num_tokens: i32,
}

impl MoeCall {
    /// Tokens in use.
    fn active(self, tokens: usize) -> usize {
        usize::try_from(self.num_tokens).unwrap_or(0).min(tokens)
    }
}

/// Everything that a layer's feed-forward half learnt, on one rank.
#[derive(Clone, Debug)]
pub(crate) struct MoeWeights {
    /// Hyper-connections.
    pub(crate) hc: HcWeights,
    /// Router, over the experts of all ranks.
    pub(crate) gate: GateWeights,
    /// The rank's experts, [48, …] or fewer: expert `e` has the weights of `e` modulo the number stored.
    pub(crate) routed: ExpertWeights,
    /// The shared expert.
    pub(crate) shared: ExpertWeights,
}

/// The tensors that the body creates.
#[derive(Debug)]
pub(crate) struct MoeScratch {
    x_mixed: Created,
    post: Created,
    comb: Created,
    hc_pre: HcPreScratch,
    x_norm_i8: Created,
    x_norm_scale: Created,
    indices: Created,
    weights: Created,
    gate: GateScratch,
    sh: Created,
    recv_x: Created,
    recv_scale: Created,
    recv_weight: Created,
    recv_route: Created,
    recv_count: Created,
    recv_meta: Created,
}

impl MoeScratch {
    pub(crate) fn declare(creates: &mut Creates, tokens: usize) -> Self {
        let most = Shape { tokens }.most();
        Self {
            x_mixed: creates.tensor("x_mixed", DType::Bf16, &[tokens, HIDDEN]),
            post: creates.tensor("post_ffn", DType::F32, &[tokens, STREAMS]),
            comb: creates.tensor("comb_ffn", DType::F32, &[tokens, STREAMS * STREAMS]),
            hc_pre: HcPreScratch::declare(creates, tokens),
            x_norm_i8: creates.tensor("x_norm_i8", DType::I8, &[tokens, HIDDEN]),
            x_norm_scale: creates.tensor("x_norm_scale", DType::F32, &[tokens, 1]),
            indices: creates.tensor("indices", DType::I32, &[tokens, CHOSEN]),
            weights: creates.tensor("weights", DType::F32, &[tokens, CHOSEN]),
            gate: GateScratch::declare(creates, tokens),
            sh: creates.tensor("sh", DType::Bf16, &[tokens, HIDDEN]),
            recv_x: creates.tensor("recv_x_out", DType::I8, &[LOCAL_EXPERTS, most, HIDDEN]),
            recv_scale: creates.tensor("recv_scale_out", DType::F32, &[LOCAL_EXPERTS, most]),
            recv_weight: creates.tensor("recv_w_out", DType::F32, &[LOCAL_EXPERTS, most]),
            recv_route: creates.tensor("recv_r_route_out", DType::I32, &[LOCAL_EXPERTS, most]),
            recv_count: creates.tensor("recv_count_out", DType::I32, &[LOCAL_EXPERTS, 1]),
            recv_meta: creates.tensor("recv_meta_local", DType::I32, &[RANKS, LOCAL_EXPERTS]),
        }
    }
}

/// What came in, once allocated. The order of the untracked ones rides on `x` and `count`, which the same tasks write.
#[derive(Debug)]
struct Incoming {
    x: Tensor,
    scale: Tensor,
    weight: Tensor,
    route: Tensor,
    count: Created,
    meta: Tensor,
}

impl Incoming {
    fn of(s: &MoeScratch) -> Self {
        let untracked = |t: &Created| t.tensor().untracked();
        Self {
            x: s.recv_x.tensor(),
            scale: untracked(&s.recv_scale),
            weight: untracked(&s.recv_weight),
            route: untracked(&s.recv_route),
            count: s.recv_count.clone(),
            meta: untracked(&s.recv_meta),
        }
    }
}

/// Submits one call: `x_next` from `x` (both [T, 4, 7168] f32) of the tokens `input_ids` \[T\] i64.
///
/// Opens one explicit scope, around the routed experts and what follows them; `bodies` says whether loops
/// and branches are scopes as well. All ranks have to make their calls in the same order, with the same epochs.
#[expect(clippy::too_many_arguments, reason = "the arguments of the program")]
pub(crate) fn moe(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    call: MoeCall,
    x: &Tensor,
    input_ids: &Tensor,
    weights: &MoeWeights,
    x_next: impl Into<Tapped>,
    windows: &MoeWindows,
    scratch: &MoeScratch,
) -> Result<(), Halted> {
    let tokens = windows.shape.tokens;
    let (incoming, x_next) = (Incoming::of(scratch), x_next.into());
    let mixed = HcPreOut {
        x_mixed: scratch.x_mixed.tensor(),
        post: if call.active(tokens) > 0 {
            // Its order rides on `x_mixed`, which everything that the post-mix waits for is made of.
            scratch.post.tensor().untracked()
        } else {
            // Nothing is made of `x_mixed` then.
            scratch.post.tensor()
        },
        comb: scratch.comb.tensor(),
    };
    hc_pre(o, x, &weights.hc, &mixed, &scratch.hc_pre)?;
    let gated = GateOut {
        x_i8: scratch.x_norm_i8.tensor(),
        x_scale: scratch.x_norm_scale.tensor(),
        indices: scratch.indices.tensor(),
        weights: scratch.weights.tensor(),
    };
    gate(
        o,
        bodies,
        &mixed.x_mixed,
        input_ids,
        &weights.gate,
        call.layer_id,
        call.num_tokens,
        &gated,
        &scratch.gate,
    )?;
    expert_shared(o, bodies, &gated.x_i8, &gated.x_scale, &weights.shared, &scratch.sh)?;
    let reusable = dispatch::reuse_wait(o, call, &gated.indices, windows)?;
    let counted = dispatch::meta(o, call, reusable, &gated, windows, &incoming)?;
    let pushed = dispatch::push(o, call, reusable, &gated, windows)?;
    let arrived = dispatch::wait(o, call, counted, windows)?;
    dispatch::gather(o, call, [arrived, pushed], windows, &incoming)?;
    o.scope(ScopeMode::Auto, |o| {
        let mut creates = Creates::new();
        let recv_y = creates.tensor("recv_y", DType::Bf16, scratch.recv_x.dims());
        let ffn_out = creates.tensor("ffn_out", DType::Bf16, &[tokens, HIDDEN]);
        creates.alloc(o)?;
        let rows = Received {
            x: incoming.x.clone(),
            scale: incoming.scale.clone(),
            weights: incoming.weight.clone(),
            count: incoming.count.tensor(),
        };
        expert_routed(o, bodies, &rows, &weights.routed, &recv_y)?;
        let combined = combine::combine(o, call, &recv_y, windows, &incoming)?;
        let arrived = combine::wait(o, call, combined, windows)?;
        let reduced = combine::shared_routed(o, call, arrived, &scratch.sh, windows, &ffn_out)?;
        combine::consumed(o, call, reduced, windows)?;
        let args = HcPostArgs {
            x: ffn_out.tensor(),
            residual: x.clone(),
            post: mixed.post.clone(),
            comb: mixed.comb.clone(),
            y: x_next,
        };
        hc_post(o, &args)
    })
}
