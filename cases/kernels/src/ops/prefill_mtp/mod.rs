//! The multi-token-prediction block over a prefill tile, on two ranks: projection, attention with the sliding window,
//! mixture of experts, head and norm.

mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

pub use case::PrefillMtp;

use super::hc_head::HcHeadScratch;
use super::layers::FinalHead;
use super::moe::{MoeCall, MoeScratch, MoeWeights, MoeWindows, moe, moe_retire};
use super::mtp_projection::{MtpArgs, MtpScratch, MtpWeights, mtp_projection};
use super::prefill_attention::{BlockArgs, BlockWeights, TOKENS};
use super::prefill_attention_swa::{SwaScratch, prefill_attention_swa};
use crate::creates::Creates;
use crate::model::{HIDDEN, STREAMS};
use crate::scopes::BodyScopes;

/// Layer that the mixture of experts takes the block for: one that routes by score.
const LAYER: i32 = 61;

/// What one rank has.
struct Rank {
    /// Embedding rows, [128, 7168] bf16.
    hidden: Tensor,
    /// Streams of the main model before its head, [128, 4, 7168] f32.
    previous: Tensor,
    projection: Box<MtpWeights>,
    attention: BlockArgs,
    attention_weights: Box<BlockWeights>,
    input_ids: Tensor,
    experts: MoeWeights,
    head: FinalHead,
    /// Streams before the head, [128, 4, 7168] f32, written.
    pre_hc: Tensor,
    /// Hidden rows, [128, 7168] bf16, written.
    hidden_out: Tensor,
}

/// Submits the block on `rank`: one body, so that ring 1 holds all of its buffers until the end.
///
/// The credits are retired behind the last result of the mixture of experts, so that the windows serve the next dispatch.
fn prefill_mtp(o: &mut Orchestrator<'_>, rank: usize, args: &Rank, windows: &MoeWindows) -> Result<(), Halted> {
    let bodies = BodyScopes::Automatic;
    let mut creates = Creates::new();
    let streams = [TOKENS, STREAMS, HIDDEN];
    let projected = creates.tensor("projected", DType::F32, &streams);
    let projection_scratch = MtpScratch::declare(&mut creates, TOKENS);
    let x_attn = creates.tensor("x_attn", DType::F32, &streams);
    let attention_scratch = SwaScratch::declare(&mut creates);
    let experts_scratch = MoeScratch::declare(&mut creates, TOKENS);
    let x_head = creates.tensor("x_head", DType::Bf16, &[TOKENS, HIDDEN]);
    let head_scratch = HcHeadScratch::declare(&mut creates);
    creates.alloc(o)?;

    let projection = MtpArgs {
        hidden: args.hidden.clone(),
        previous: args.previous.clone(),
        out: projected.tensor(),
    };
    mtp_projection(o, bodies, &projection, &args.projection, &projection_scratch)?;
    let attention = args.attention.between(&projected, &x_attn);
    prefill_attention_swa(o, bodies, &attention, &args.attention_weights, &attention_scratch)?;
    let call = MoeCall {
        rank,
        epoch: 1,
        layer_id: LAYER,
        num_tokens: args.attention.num_tokens as i32,
    };
    moe(
        o,
        bodies,
        call,
        &x_attn,
        &args.input_ids,
        &args.experts,
        &args.pre_hc,
        windows,
        &experts_scratch,
    )?;
    moe_retire(o, rank, 1, &args.pre_hc, windows)?;
    let (pre_hc, out) = (&args.pre_hc, &args.hidden_out);
    args.head.submit(o, bodies, pre_hc, &x_head, out, &head_scratch)
}

impl Rank {
    /// The reference of the projection.
    fn projected(&self) -> Tensor {
        let rows = self
            .projection
            .reference(&self.hidden.read::<bf16>(), &self.previous.read::<f32>());
        Tensor::from_vec(self.previous.dims(), rows)
    }
}
