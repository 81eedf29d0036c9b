//! A whole prefill pass of the main model over one tile, on two ranks: embedding, every layer, head and norm, and the
//! language-model head with its sampling.

mod case;
mod golden;

use ring_runtime::{Halted, Orchestrator, ScopeMode, Tensor};

pub use case::PrefillFwd;

use super::hc_head::HcHeadScratch;
use super::input_pack::input_pack;
use super::layers::{FinalHead, Kind, Layer, Schedule, Stages, forward};
use super::lm_head::{LmHeadArgs, LmHeadScratch, LmHeadWindows, lm_head};
use super::moe::{MoeCall, MoeScratch, MoeWeights, MoeWindows, moe, moe_retire};
use super::prefill_attention::TOKENS;
use super::prefill_layer::attention::{AttentionArgs, AttentionWeights};
use crate::creates::Creates;
use crate::kernel::entry_scope;
use crate::scopes::BodyScopes;

/// Automatic scopes are off in the entry.
const BODIES: BodyScopes = BodyScopes::ExplicitOnly;

/// What one rank has.
struct Rank {
    input_ids: Tensor,
    /// Embedding, [129280, 7168] bf16.
    embed: Tensor,
    /// Pools and metadata of each layer.
    attention: Vec<AttentionArgs>,
    /// Weights of all HCA layers, and of all CSA layers.
    hca: AttentionWeights,
    csa: AttentionWeights,
    /// Weights of each layer, which differ in the experts of a token id.
    experts: Vec<MoeWeights>,
    num_tokens: usize,
    head: FinalHead,
    /// Arguments of the language-model head, on `hidden_out`.
    lm_head: LmHeadArgs,
    /// Streams before the head, [128, 4, 7168] f32, written.
    pre_hc: Tensor,
}

impl Rank {
    fn attention_weights(&self, layer: Layer) -> &AttentionWeights {
        match layer.kind() {
            Kind::Hca => &self.hca,
            Kind::Csa => &self.csa,
        }
    }
}

/// The stages of the pass on one rank.
struct Pass<'a> {
    rank: usize,
    args: &'a Rank,
    windows: &'a MoeWindows,
}

impl Stages for Pass<'_> {
    fn pack(&self, o: &mut Orchestrator<'_>, x: &Tensor) -> Result<(), Halted> {
        input_pack(o, &self.args.input_ids, &self.args.embed, x)
    }

    fn attention(&self, o: &mut Orchestrator<'_>, layer: Layer, x: &Tensor, x_out: &Tensor) -> Result<(), Halted> {
        let args = self.args.attention[layer.id].between(x, x_out);
        args.submit(o, BODIES, self.args.attention_weights(layer))
    }

    fn experts(&self, o: &mut Orchestrator<'_>, layer: Layer, x: &Tensor, x_next: &Tensor) -> Result<(), Halted> {
        let mut creates = Creates::new();
        let scratch = MoeScratch::declare(&mut creates, TOKENS);
        creates.alloc(o)?;
        let call = MoeCall {
            rank: self.rank,
            epoch: layer.epoch(),
            layer_id: layer.id as i32,
            num_tokens: self.args.num_tokens as i32,
        };
        let (ids, weights) = (&self.args.input_ids, &self.args.experts[layer.id]);
        moe(o, BODIES, call, x, ids, weights, x_next, self.windows, &scratch)
    }
}

/// Submits the pass on `rank`, in the root scope, and the program of the language-model head behind it.
///
/// The original runs the head's program in a dispatch of its own. Here it is the second entry of one dispatch: it
/// allocates what it would there, in the ring that it would, and starts once `hidden_out` is there.
fn prefill_fwd(
    o: &mut Orchestrator<'_>,
    rank: usize,
    schedule: Schedule,
    args: &Rank,
    windows: &MoeWindows,
    lm_windows: &LmHeadWindows,
) -> Result<(), Halted> {
    let pass = Pass { rank, args, windows };
    let x_head = forward(o, schedule, &pass, &args.pre_hc)?;
    moe_retire(o, rank, schedule.len() as i32, &args.pre_hc, windows)?;
    o.scope(ScopeMode::Auto, |o| {
        let mut creates = Creates::new();
        let scratch = HcHeadScratch::declare(&mut creates);
        creates.alloc(o)?;
        let hidden = &args.lm_head.hidden;
        args.head.submit(o, BODIES, &args.pre_hc, &x_head, hidden, &scratch)
    })?;
    entry_scope(o, |o| {
        let mut creates = Creates::new();
        let scratch = LmHeadScratch::declare(&mut creates);
        creates.alloc(o)?;
        lm_head(o, rank, 1, &args.lm_head, lm_windows, &scratch)
    })
}
