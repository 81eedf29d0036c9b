//! The reference: the components' references one after the other.
//!
//! The original compares nothing here. Streams and pools are compared with the chain of all layers. What follows the
//! streams is compared with the reference of the program's own values, which is as sharp as for the parts alone.

use half::bf16;
use ring_runtime::Tensor;

use super::Rank;
use crate::golden;
use crate::golden::lm_head::{self, LmHeadInput};
use crate::model::{DECODE_TOKENS, RANKS};
use crate::ops::layers::Schedule;
use crate::ops::moe::fixture::{RankInput, reference};

/// What the layers should leave behind.
pub(super) struct Golden {
    /// [2, 8, 4, 7168] f32.
    pub(super) pre_hc: Vec<f32>,
    /// Pools of each layer, per rank.
    pub(super) pools: Vec<[Vec<Tensor>; RANKS]>,
}

/// The reference; `initial` has the pools of the first layer of each kind, per rank, as they were before the step.
pub(super) fn golden(schedule: Schedule, ranks: &[Rank; RANKS], initial: &super::case::InitialPools) -> Golden {
    let ids = ranks.each_ref().map(|r| r.input_ids.read::<i64>());
    let mut x: [Vec<f32>; RANKS] =
        std::array::from_fn(|rank| golden::input_pack::input_pack(&ids[rank], &ranks[rank].embed.read::<bf16>()));
    let mut pools = Vec::new();
    for layer in schedule.layers() {
        let attended: [_; RANKS] = std::array::from_fn(|rank| {
            let r = &ranks[rank];
            let x = Tensor::from_vec(r.pre_hc.dims(), x[rank].clone());
            let args = r.attention[layer.id].between(&x, &r.pre_hc);
            args.reference(r.attention_weights(layer), initial.of(rank, layer.kind()))
        });
        let streams = attended.each_ref().map(|(x, _)| x.read::<f32>());
        let inputs = std::array::from_fn(|rank| RankInput {
            x: &streams[rank],
            input_ids: &ids[rank],
            layer_id: layer.id as i32,
            num_tokens: DECODE_TOKENS as i32,
        });
        x = reference(ranks.each_ref().map(|r| &r.experts[layer.id]), inputs);
        drop(streams);
        pools.push(attended.map(|(_, pools)| pools));
    }
    Golden {
        pre_hc: x.concat(),
        pools,
    }
}

/// The hidden rows of all ranks, given the streams that the program made.
pub(super) fn hidden(ranks: &[Rank; RANKS]) -> Vec<bf16> {
    ranks
        .iter()
        .flat_map(|r| r.head.reference(&r.pre_hc.read::<f32>()))
        .collect()
}

/// The logits of all ranks, given the hidden rows that the program made.
pub(super) fn logits(ranks: &[Rank; RANKS]) -> Vec<f32> {
    let guards = ranks.each_ref().map(|r| {
        let a = &r.lm_head;
        (a.hidden.read::<bf16>(), a.rows.read::<i32>(), a.weight.read::<bf16>())
    });
    let inputs = guards
        .each_ref()
        .map(|(hidden, rows, weight)| LmHeadInput { hidden, rows, weight });
    lm_head::lm_head(&inputs)
}
