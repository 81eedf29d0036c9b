//! The multi-token-prediction block in a decode step, on two ranks: projection, attention with the sliding window,
//! mixture of experts, head and norm.

mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

pub use case::DecodeMtp;

use super::decode_attention::BlockWeights;
use super::decode_attention_swa::{SwaBlockArgs, SwaBlockScratch, decode_attention_swa};
use super::hc_head::HcHeadScratch;
use super::layers::FinalHead;
use super::moe::{MoeCall, MoeScratch, MoeWeights, MoeWindows, moe, moe_retire};
use super::mtp_projection::{MtpArgs, MtpScratch, MtpWeights, mtp_projection};
use crate::creates::Creates;
use crate::model::{DECODE_TOKENS, HIDDEN, STREAMS};
use crate::scopes::BodyScopes;

/// Layer that the mixture of experts takes the block for: one that routes by score.
const LAYER: i32 = 61;

/// What one rank has.
struct Rank {
    /// Embedding rows, [8, 7168] bf16.
    hidden: Tensor,
    /// Streams of the main model before its head, [8, 4, 7168] f32.
    previous: Tensor,
    projection: MtpWeights,
    attention: Box<SwaBlockArgs>,
    attention_weights: Box<BlockWeights>,
    input_ids: Tensor,
    experts: Box<MoeWeights>,
    head: FinalHead,
    /// Streams before the head, [8, 4, 7168] f32, written.
    next_pre_hc: Tensor,
    /// Hidden rows, [8, 7168] bf16, written.
    hidden_out: Tensor,
}

/// Submits the block on `rank`: one body, so that ring 1 holds all of its buffers until the end.
///
/// The credits are retired behind the last result of the mixture of experts, so that the windows serve the next dispatch.
fn decode_mtp(
    o: &mut Orchestrator<'_>,
    rank: usize,
    num_tokens: i32,
    args: &Rank,
    windows: &MoeWindows,
) -> Result<(), Halted> {
    let bodies = BodyScopes::Automatic;
    let mut creates = Creates::new();
    let streams = [DECODE_TOKENS, STREAMS, HIDDEN];
    let projected = creates.tensor("projected", DType::F32, &streams);
    let projection_scratch = MtpScratch::declare(&mut creates, DECODE_TOKENS);
    let x_attn = creates.tensor("x_attn", DType::F32, &streams);
    let attention_scratch = SwaBlockScratch::declare(&mut creates);
    let experts_scratch = MoeScratch::declare(&mut creates, DECODE_TOKENS);
    let x_head = creates.tensor("x_head", DType::Bf16, &[DECODE_TOKENS, HIDDEN]);
    let head_scratch = HcHeadScratch::declare(&mut creates);
    creates.alloc(o)?;

    let projection = MtpArgs {
        hidden: args.hidden.clone(),
        previous: args.previous.clone(),
        out: projected.tensor(),
    };
    mtp_projection(o, bodies, &projection, &args.projection, &projection_scratch)?;
    let attention = args.attention_between(&projected, &x_attn);
    decode_attention_swa(o, &attention, &args.attention_weights, &attention_scratch)?;
    let call = MoeCall {
        rank,
        epoch: 1,
        layer_id: LAYER,
        num_tokens,
    };
    moe(
        o,
        bodies,
        call,
        &x_attn,
        &args.input_ids,
        &args.experts,
        &args.next_pre_hc,
        windows,
        &experts_scratch,
    )?;
    moe_retire(o, rank, 1, &args.next_pre_hc, windows)?;
    let (pre_hc, out) = (&args.next_pre_hc, &args.hidden_out);
    args.head.submit(o, bodies, pre_hc, &x_head, out, &head_scratch)
}

impl Rank {
    /// The attention's arguments from `x` to `x_out`.
    fn attention_between(&self, x: &Tensor, x_out: &Tensor) -> SwaBlockArgs {
        let mut args = SwaBlockArgs::clone(&self.attention);
        (args.block.x_hc, args.block.x_out) = (x.clone(), x_out.into());
        args
    }

    /// The reference of the projection.
    fn projected(&self) -> Tensor {
        let rows = self
            .projection
            .reference(&self.hidden.read::<bf16>(), &self.previous.read::<f32>());
        Tensor::from_vec(self.previous.dims(), rows)
    }
}
