//! From scores to six experts and their weights.

use ring_runtime::{Block, Halted, Orchestrator, Task, Tensor, Unit};

use super::{GateOut, GateScratch, SCORE_PAD, TOKENS};
use crate::creates::Created;
use crate::model::{CHOSEN, ROUTE_SCALE};

/// Where a route launch writes: the rows of the tokens in use.
struct Target {
    indices: Tensor,
    weights: Tensor,
}

impl Target {
    fn of(out: &GateOut, active: usize) -> Self {
        Self {
            indices: out.indices.rows(0..active),
            weights: out.weights.rows(0..active),
        }
    }

    /// Writes the choice of token `t`: the weights are the chosen experts' shares of their common score.
    fn put(&self, block: &Block<'_>, t: usize, chosen: [i32; CHOSEN], scores: &[f32]) {
        let score = chosen.map(|expert| scores[expert as usize]);
        let sum = score.iter().fold(0.0, |sum, s| sum + s);
        block
            .write::<i32>(&self.indices.rows(t..t + 1))
            .copy_from_slice(&chosen);
        block
            .write::<f32>(&self.weights.rows(t..t + 1))
            .copy_from_slice(&score.map(|s| (s / sum) * ROUTE_SCALE));
    }
}

/// Tokens of a route block that are in use.
fn tokens(block: &Block<'_>, active: usize) -> std::ops::Range<usize> {
    let first = block.index() * TOKENS;
    first..active.min(first + TOKENS)
}

/// The experts that the table has for each token's id.
///
/// Ids of tokens that are not in use may be anything: they are not looked up.
pub(super) fn hash(
    o: &mut Orchestrator<'_>,
    active: usize,
    input_ids: &Tensor,
    table: &Tensor,
    out: &GateOut,
    scratch: &GateScratch,
) -> Result<(), Halted> {
    let target = Target::of(out, active);
    let (ids, table, scores) = (input_ids.clone(), table.clone(), scratch.route_scores.tensor());
    let task = Task::new("route_hash", Unit::Mixed)
        .blocks(active.div_ceil(TOKENS))
        .input(&scores)
        .input(&ids)
        .input(&table)
        .write(&target.indices)
        .write(&target.weights)
        .run(move |block| {
            for t in tokens(block, active) {
                let id = block.read::<i64>(&ids.rows(t..t + 1))[0];
                let id = usize::try_from(id).expect("tokens in use have an id");
                let row = block.read::<i32>(&table.rows(id..id + 1));
                let chosen = std::array::from_fn(|k| row[k]);
                target.put(block, t, chosen, &block.read::<f32>(&scores.rows(t..t + 1)));
            }
        });
    o.submit(task)?;
    Ok(())
}

/// The six largest, in order; of equal ones the first comes first.
pub(super) fn largest(row: &[f32]) -> [i32; CHOSEN] {
    let (mut best, mut ids) = ([f32::NEG_INFINITY; CHOSEN], [0i32; CHOSEN]);
    for (id, &value) in row.iter().enumerate() {
        if value > best[CHOSEN - 1] {
            let place = best.iter().position(|b| value > *b).expect("it is above the last one");
            best.copy_within(place..CHOSEN - 1, place + 1);
            ids.copy_within(place..CHOSEN - 1, place + 1);
            (best[place], ids[place]) = (value, id as i32);
        }
    }
    ids
}

/// The experts with the largest biased scores.
pub(super) fn sort(
    o: &mut Orchestrator<'_>,
    active: usize,
    experts: usize,
    out: &GateOut,
    scratch: &GateScratch,
) -> Result<(), Halted> {
    debug_assert!((CHOSEN..=SCORE_PAD).contains(&experts), "the padding is never chosen");
    let target = Target::of(out, active);
    let [scores, biased] = [&scratch.route_scores, &scratch.biased_scores].map(Created::tensor);
    let task = Task::new("route_sort", Unit::Vector)
        .blocks(active.div_ceil(TOKENS))
        .input(&scores)
        .input(&biased)
        .write(&target.indices)
        .write(&target.weights)
        .run(move |block| {
            for t in tokens(block, active) {
                let chosen = largest(&block.read::<f32>(&biased.rows(t..t + 1)));
                target.put(block, t, chosen, &block.read::<f32>(&scores.rows(t..t + 1)));
            }
        });
    o.submit(task)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_keep_their_order() {
        assert_eq!(largest(&[1.0, 3.0, 3.0, 2.0, 1.0, 1.0, 3.0, 0.0]), [1, 2, 6, 3, 0, 4]);
        assert_eq!(largest(&[-5.0, -4.0, -3.0, -2.0, -1.0, -6.0]), [4, 3, 2, 1, 0, 5]);
    }
}
