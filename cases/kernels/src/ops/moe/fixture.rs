//! Inputs of the standalone program, and the pieces of them that composed programs draw as well.

use ring_runtime::{DType, Tensor};

use super::{EXPERTS, MoeWeights};
use crate::fixture::Fixture;
use crate::golden::expert::Expert;
use crate::golden::gate::GateInput;
use crate::golden::moe::{HcInput, MoeInput};
use crate::model::{CHOSEN, HC_MIX, RANKS, VOCAB};
use crate::ops::gate::GateWeights;
use crate::ops::hc_pre::HcWeights;
use crate::ops::swiglu::ExpertWeights;

const HC_SCALE: [f32; 3] = [0.11334, 0.035_901, 0.058_183];
const HC_BASE: [f32; HC_MIX] = [
    2.4153, -2.0252, -2.0019, -2.1947, -1.5430, -3.0228, -6.8248, 0.5894, 2.1916, -7.2132, -3.0938, -2.1119, -3.0161,
    3.3293, -3.2224, -4.0226, -2.0428, -3.3478, 3.0893, -3.4166, -1.8144, -3.8147, -3.1307, 1.7862,
];
/// Experts that every token chooses in a layer that routes by score.
const FAVOURED: [usize; CHOSEN] = [0, 48, 1, 49, 2, 50];
/// What lifts them over all others.
const FAVOUR: f32 = 4.0;

/// Experts of each token id, [129280, 6] i32: six distinct ones drawn by lot.
pub(crate) fn random_table(fixture: Fixture, name: &str) -> Tensor {
    let stream = fixture.stream(name);
    let mut table = Vec::with_capacity(VOCAB * CHOSEN);
    let mut order: Vec<i32> = (0..EXPERTS as i32).collect();
    for row in 0..VOCAB {
        // The start of a shuffle; whatever order is left over is as good a start for the next row.
        for k in 0..CHOSEN {
            let other = k as u64 + stream.below((row * CHOSEN + k) as u64, (EXPERTS - k) as u64);
            order.swap(k, other as usize);
        }
        table.extend_from_slice(&order[..CHOSEN]);
    }
    Tensor::from_vec(&[VOCAB, CHOSEN], table)
}

/// The table of the layer and forward programs: experts in turn, `(6 · row + k + shift) mod 96`.
pub(crate) fn cyclic_table(shift: usize) -> Tensor {
    let experts = (0..VOCAB * CHOSEN).map(|i| ((i + shift) % EXPERTS) as i32);
    Tensor::from_vec(&[VOCAB, CHOSEN], experts.collect())
}

impl MoeWeights {
    /// The weights of every rank, with `stored` distinct routed experts each and this table. Ranks differ
    /// in their routed experts only; the rest is one copy.
    pub(crate) fn draw(fixture: Fixture, table: Tensor, stored: usize) -> [Self; RANKS] {
        let mut bias = vec![0f32; EXPERTS];
        FAVOURED.iter().for_each(|expert| bias[*expert] = FAVOUR);
        let bias = Tensor::from_vec(&[EXPERTS], bias);
        let hc = HcWeights::draw(fixture, "hc_ffn_fn", 0.0635, HC_SCALE, HC_BASE);
        let gate = GateWeights::draw(fixture, "gate_w", bias, table);
        let shared = ExpertWeights::draw_shared(fixture, "shared", [7.65e-3, 7.39e-3, 2.39e-2]);
        std::array::from_fn(|rank| Self {
            hc: hc.clone(),
            gate: gate.clone(),
            routed: ExpertWeights::draw_routed(fixture, &format!("routed.{rank}"), stored, [1.08e-2, 1.10e-2, 2.54e-2]),
            shared: shared.clone(),
        })
    }

    /// Hands the weights to `work` as the reference takes them, with what one rank brings.
    pub(crate) fn with_golden<R>(&self, rank: RankInput<'_>, work: impl FnOnce(MoeInput<'_>) -> R) -> R {
        let (weight, scale, base) = (
            self.hc.weight.read::<f32>(),
            self.hc.scale.read::<f32>(),
            self.hc.base.read::<f32>(),
        );
        let g = &self.gate;
        let (norm, projection) = (g.norm.read(), g.projection.read::<f32>());
        let (bias, table) = (g.bias.read::<f32>(), g.table.read::<i32>());
        self.routed.with_golden(|routed: &Expert<'_>| {
            self.shared.with_golden(|shared: &Expert<'_>| {
                work(MoeInput {
                    x: rank.x,
                    hc: HcInput {
                        weight: &weight,
                        scale: &scale,
                        base: &base,
                    },
                    gate: GateInput {
                        x: &[],
                        norm: &norm,
                        projection: &projection,
                        bias: &bias,
                        table: &table,
                        input_ids: rank.input_ids,
                        layer_id: rank.layer_id,
                        num_tokens: rank.num_tokens,
                    },
                    routed: *routed,
                    shared: *shared,
                })
            })
        })
    }
}

/// What one rank brings to a call of the reference, beside its weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankInput<'a> {
    /// Streams, T × 4 × 7168.
    pub(crate) x: &'a [f32],
    /// Token ids, T.
    pub(crate) input_ids: &'a [i64],
    /// Layer.
    pub(crate) layer_id: i32,
    /// Tokens in use, before clamping.
    pub(crate) num_tokens: i32,
}

/// The reference of a call on both ranks: `x_next` of each, T × 4 × 7168.
pub(crate) fn reference(weights: [&MoeWeights; RANKS], ranks: [RankInput<'_>; RANKS]) -> [Vec<f32>; RANKS] {
    weights[0]
        .with_golden(ranks[0], |first| {
            weights[1].with_golden(ranks[1], |second| crate::golden::moe::moe(&[first, second]))
        })
        .try_into()
        .expect("a result per rank")
}

/// Token ids of the balanced setting: those of all ranks follow each other.
pub(crate) fn consecutive_ids(tokens: usize, first: usize) -> Tensor {
    let ids = (first..first + tokens).map(|id| id as i64);
    Tensor::from_vec(&[tokens], ids.collect())
}

/// Streams of one rank, [T, 4, 7168] f32.
pub(crate) fn streams(fixture: Fixture, name: &str, tokens: usize) -> Tensor {
    use crate::fixture::Dist;
    use crate::model::{HIDDEN, STREAMS};
    fixture.real(name, DType::F32, &[tokens, STREAMS, HIDDEN], Dist::normal(1.0, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_six_distinct_experts_a_row() {
        for table in [random_table(Fixture::new(3), "tid2eid"), cyclic_table(12)] {
            let mut used = [0usize; EXPERTS];
            for row in table.read::<i32>().chunks(CHOSEN) {
                let mut row: Vec<usize> = row.iter().map(|e| *e as usize).collect();
                row.iter().for_each(|e| used[*e] += 1);
                row.sort_unstable();
                row.dedup();
                assert_eq!(row.len(), CHOSEN);
            }
            // 8080 each on average.
            assert!(used.iter().all(|n| (7500..8700).contains(n)), "{used:?}");
        }
    }
}
