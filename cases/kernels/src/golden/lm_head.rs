//! Reference of `lm_head`.

use half::bf16;

use super::{Matrix, product};
use crate::model::HIDDEN;

/// What one rank brings.
#[derive(Clone, Copy, Debug)]
pub struct LmHeadInput<'a> {
    /// Hidden rows, 7168 each.
    pub hidden: &'a [bf16],
    /// Row of each logit row; −1 for none.
    pub rows: &'a [i32],
    /// The rank's shard of the vocabulary, tokens × 7168.
    pub weight: &'a [bf16],
}

/// Logits of the selected rows of every rank, rank after rank, over the shards of all ranks in their order.
///
/// A logit row without a hidden row is zero.
pub fn lm_head(ranks: &[LmHeadInput<'_>]) -> Vec<f32> {
    let mut selected = Vec::new();
    for rank in ranks {
        let last = rank.hidden.len() / HIDDEN - 1;
        for row in rank.rows {
            match usize::try_from(*row) {
                Ok(row) => selected.extend_from_slice(&rank.hidden[row.min(last) * HIDDEN..][..HIDDEN]),
                Err(_) => selected.resize(selected.len() + HIDDEN, bf16::ZERO),
            }
        }
    }
    let rows = selected.len() / HIDDEN;
    let vocabulary: usize = ranks.iter().map(|rank| rank.weight.len() / HIDDEN).sum();
    let mut logits = vec![0f32; rows * vocabulary];
    let mut first = 0;
    for rank in ranks {
        let width = rank.weight.len() / HIDDEN;
        let part = product(
            rows,
            width,
            HIDDEN,
            Matrix::rows(&selected, HIDDEN),
            Matrix::transposed(rank.weight, HIDDEN),
        );
        for (row, part) in logits.chunks_mut(vocabulary).zip(part.chunks(width)) {
            row[first..first + width]
                .iter_mut()
                .zip(part)
                .for_each(|(l, p)| *l = *p as f32);
        }
        first += width;
    }
    logits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_meet_the_shards_of_all_ranks() {
        let unit = |lane: usize| {
            let mut row = vec![bf16::ZERO; HIDDEN];
            row[lane] = bf16::ONE;
            row
        };
        let hidden = [unit(3), unit(5)].concat();
        let weight = [unit(5), unit(3)].map(|row| [row, unit(9)].concat());
        let input = |rank: usize, rows| LmHeadInput {
            hidden: &hidden,
            rows,
            weight: &weight[rank],
        };
        // Row 7 is cut to the last one.
        let logits = lm_head(&[input(0, &[0, -1]), input(1, &[7, 1])]);
        let want = [[0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]];
        assert_eq!(
            logits,
            want.as_flattened().iter().map(|v| *v as f32).collect::<Vec<_>>()
        );
    }
}
