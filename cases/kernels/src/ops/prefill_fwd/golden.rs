//! The reference: the components' references one after the other.

use half::bf16;
use ring_runtime::Tensor;

use super::Rank;
use crate::golden;
use crate::golden::lm_head::LmHeadInput;
use crate::model::RANKS;
use crate::ops::layers::{Kind, Schedule};
use crate::ops::moe::fixture::{RankInput, reference};
use crate::ops::prefill_layer::attention::LayerPools;

/// What a pass should leave behind.
pub(super) struct Golden {
    /// [2, 128, 4, 7168] f32.
    pub(super) pre_hc: Vec<f32>,
    /// [2, 128, 7168] bf16.
    pub(super) hidden: Vec<bf16>,
    /// [2, 8, 129280] f32.
    pub(super) logits: Vec<f32>,
    /// Pools of each layer, per rank.
    pub(super) pools: Vec<[LayerPools; RANKS]>,
}

/// The reference; `initial` gives the pools of a kind as they were before the pass.
pub(super) fn golden(schedule: Schedule, ranks: &[Rank; RANKS], initial: impl Fn(Kind) -> LayerPools) -> Golden {
    let ids = ranks.each_ref().map(|r| r.input_ids.read::<i64>());
    let mut x: [Vec<f32>; RANKS] =
        std::array::from_fn(|rank| golden::input_pack::input_pack(&ids[rank], &ranks[rank].embed.read::<bf16>()));
    let mut pools = Vec::new();
    for layer in schedule.layers() {
        let before = initial(layer.kind());
        let attended: [_; RANKS] = std::array::from_fn(|rank| {
            let r = &ranks[rank];
            let x = Tensor::from_vec(r.pre_hc.dims(), x[rank].clone());
            let args = r.attention[layer.id].between(&x, &r.pre_hc);
            args.reference(r.attention_weights(layer), &before)
        });
        let streams = attended.each_ref().map(|(x, _)| x.read::<f32>());
        let inputs = std::array::from_fn(|rank| RankInput {
            x: &streams[rank],
            input_ids: &ids[rank],
            layer_id: layer.id as i32,
            num_tokens: ranks[rank].num_tokens as i32,
        });
        x = reference(ranks.each_ref().map(|r| &r.experts[layer.id]), inputs);
        drop(streams);
        pools.push(attended.map(|(_, pools)| pools));
    }
    let hidden: [Vec<bf16>; RANKS] = std::array::from_fn(|rank| ranks[rank].head.reference(&x[rank]));
    let guards = ranks
        .each_ref()
        .map(|r| (r.lm_head.rows.read::<i32>(), r.lm_head.weight.read::<bf16>()));
    let inputs: [_; RANKS] = std::array::from_fn(|rank| LmHeadInput {
        hidden: &hidden[rank],
        rows: &guards[rank].0,
        weight: &guards[rank].1,
    });
    Golden {
        logits: golden::lm_head::lm_head(&inputs),
        pre_hc: x.concat(),
        hidden: hidden.concat(),
        pools,
    }
}
