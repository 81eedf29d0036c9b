//! One layer of the main model in a decode step, on two ranks: attention over each rank's own requests, then the
//! mixture of experts over both.

pub(crate) mod attention;
mod case;

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

pub use case::DecodeLayer;
pub(crate) use case::START_POS;

use self::attention::{AttentionArgs, AttentionWeights};
use super::forward::Attention;
use super::layers::Layer;
use super::moe::{MoeCall, MoeScratch, MoeWeights, MoeWindows, moe};
use super::tapped::Tapped;
use crate::creates::Creates;
use crate::kernel::Purpose;
use crate::model::{DECODE_TOKENS, HIDDEN, STREAMS};
use crate::scopes::BodyScopes;

/// What one rank has.
struct Rank {
    attention: AttentionArgs,
    attention_weights: AttentionWeights,
    input_ids: Tensor,
    experts: MoeWeights,
    /// Streams between the halves of the last dispatch that was to be validated, [8, 4, 7168] f32.
    x_attn: Tensor,
    /// Streams after the layer, [8, 4, 7168] f32, written.
    x_next: Tensor,
}

/// Submits the layer on `rank`.
///
/// The kind is chosen by nested branches, whose bodies are scopes: the attention's buffers are in ring 2 in the two
/// leading layers and in ring 3 elsewhere. Only the streams between the halves live in ring 1, beside the buffers of
/// the mixture of experts, and they are the only edge between the halves.
fn decode_layer(
    o: &mut Orchestrator<'_>,
    rank: usize,
    layer: Layer,
    args: &Rank,
    windows: &MoeWindows,
    purpose: Purpose,
) -> Result<(), Halted> {
    let mut creates = Creates::new();
    let x_attn = creates.tensor("x_attn", DType::F32, &[DECODE_TOKENS, STREAMS, HIDDEN]);
    let scratch = MoeScratch::declare(&mut creates, DECODE_TOKENS);
    creates.alloc(o)?;
    let bodies = BodyScopes::Automatic;
    let attended = match purpose {
        Purpose::Validation => Tapped::into_copy(&x_attn, &args.x_attn),
        Purpose::Measurement => (&x_attn).into(),
    };
    let attention = args.attention.between(&args.attention.block().x_hc, attended);
    let attend = |o: &mut Orchestrator<'_>| attention.submit(o, bodies, &args.attention_weights);
    if layer.id < 2 {
        bodies.body(o, attend)?;
    } else {
        bodies.body(o, |o| bodies.body(o, attend))?;
    }
    let call = MoeCall {
        rank,
        epoch: 1,
        layer_id: layer.id as i32,
        num_tokens: DECODE_TOKENS as i32,
    };
    moe(
        o,
        bodies,
        call,
        &x_attn,
        &args.input_ids,
        &args.experts,
        &args.x_next,
        windows,
        &scratch,
    )
}
