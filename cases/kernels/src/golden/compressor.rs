//! Reference of the compressors: one softmax over all entries of a window, exponentials and sums in f64.

use half::bf16;
use rayon::prelude::*;

use super::{
    CodedRows, Direction, Matrix, code_rows, inv_rms, product, product_on, rotate, softmax_rows, through_bf16, widen,
};
use crate::fixture::compressor::Form;
use crate::model::{HIDDEN, RMS_EPS, ROPE_DIM};

/// Weights, as in the spec.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a> {
    /// out × 7168.
    pub wkv: &'a [bf16],
    /// out × 7168.
    pub wgate: &'a [bf16],
    /// ratio × out.
    pub ape: &'a [f32],
    /// head.
    pub norm: &'a [bf16],
}

/// A compressor over rows of normalised activations.
#[derive(Clone, Copy, Debug)]
pub struct CompressorIn<'a> {
    /// Which compressor.
    pub form: Form,
    /// Its weights.
    pub weights: Weights<'a>,
    /// T × 7168.
    pub x: &'a [bf16],
    /// Position of each token.
    pub positions: &'a [i32],
    /// State row of each token, −1 for none.
    pub state_slots: &'a [i64],
}

/// Key-value and score of one position: `out` lanes each.
type Entry = (Vec<f32>, Vec<f32>);

impl CompressorIn<'_> {
    /// Projections of all tokens; the scores carry the bias of their position.
    fn entries(&self) -> Vec<Entry> {
        let (out, tokens) = (self.form.out(), self.x.len() / HIDDEN);
        let project = |w| {
            product(
                tokens,
                out,
                HIDDEN,
                Matrix::rows(self.x, HIDDEN),
                Matrix::transposed(w, HIDDEN),
            )
        };
        let (kv, score) = (project(self.weights.wkv), project(self.weights.wgate));
        let entry = |t: usize| {
            let row = |values: &[f64]| values[t * out..][..out].iter().map(|v| *v as f32).collect::<Vec<f32>>();
            let bias = &self.weights.ape[self.positions[t] as usize % self.form.ratio * out..][..out];
            let score = row(&score).iter().zip(bias).map(|(s, b)| s + b).collect();
            (row(&kv), score)
        };
        (0..tokens).map(entry).collect()
    }

    fn store(&self, state: &mut [f32], slot: i64, entry: &Entry) {
        if let Ok(slot) = usize::try_from(slot) {
            let row = &mut state[slot * self.form.state_width()..][..self.form.state_width()];
            row[..self.form.out()].copy_from_slice(&entry.0);
            row[self.form.out()..].copy_from_slice(&entry.1);
        }
    }

    /// The state row of a position, if its page is there.
    fn stored(&self, state: &[f32], table: &[i32], position: i64) -> Option<Entry> {
        let position = usize::try_from(position).ok()?;
        let page = usize::try_from(table[position / self.form.page]).ok()?;
        let row = page * self.form.page + position % self.form.page;
        let row = &state[row * self.form.state_width()..][..self.form.state_width()];
        Some((row[..self.form.out()].to_vec(), row[self.form.out()..].to_vec()))
    }

    /// Pools the window that ends at position `last`. An entry that is missing has no weight; where windows don't overlap in
    /// prefill it counts as zeros instead (`absent_is_zero`).
    fn pool(&self, last: i64, entry: impl Fn(i64) -> Option<Entry>, absent_is_zero: bool) -> Vec<f32> {
        let (head, ratio) = (self.form.head, self.form.ratio as i64);
        let first = last + 1 - self.form.history() as i64;
        let mut rows = Vec::new();
        for position in first..=last {
            let half = if self.form.overlap && position > last - ratio {
                head
            } else {
                0
            };
            match entry(position) {
                Some((kv, score)) => rows.push((kv[half..][..head].to_vec(), score[half..][..head].to_vec())),
                None if absent_is_zero => rows.push((vec![0.0; head], vec![0.0; head])),
                None => {}
            }
        }
        let pooled = |c: usize| {
            let mut weights: Vec<f32> = rows.iter().map(|(_, score)| score[c]).collect();
            softmax_rows(&mut weights, rows.len());
            let terms = rows.iter().zip(&weights);
            terms.map(|((kv, _), w)| f64::from(kv[c]) * f64::from(*w)).sum::<f64>() as f32
        };
        (0..head).into_par_iter().map(pooled).collect()
    }

    /// RMSNorm with gain, then the last 64 lanes are turned; all in f32.
    fn finish(&self, pooled: &[f32], cos: impl Fn(usize) -> f32, sin: impl Fn(usize) -> f32) -> Vec<f32> {
        let inv = inv_rms(pooled, 64, RMS_EPS);
        let gain = widen(self.weights.norm);
        let mut row: Vec<f32> = pooled.iter().zip(&gain).map(|(v, g)| (v * inv) * g).collect();
        rotate(&mut row[self.form.head - ROPE_DIM..], cos, sin, Direction::Forward);
        row
    }

    /// A decode step: updates `state` and gives each request's row, if its window closed, with the token that closed it.
    ///
    /// Requests take turns: pools are shared, and a later request may pool what an earlier one has just written.
    /// `table` is [requests, columns], `cos` and `sin` are [requests, 32].
    pub fn decode(
        &self,
        state: &mut [f32],
        table: &[i32],
        (cos, sin): (&[f32], &[f32]),
    ) -> Vec<Option<(usize, Vec<f32>)>> {
        let requests = cos.len() / (ROPE_DIM / 2);
        let (step, columns) = (self.positions.len() / requests, table.len() / requests);
        let entries = self.entries();
        let mut rows = Vec::new();
        for b in 0..requests {
            let tokens = b * step..(b + 1) * step;
            for t in tokens.clone() {
                self.store(state, self.state_slots[t], &entries[t]);
            }
            let closes = |t: &usize| (self.positions[*t] as usize + 1).is_multiple_of(self.form.ratio);
            rows.push(tokens.rev().find(closes).map(|t| {
                let table = &table[b * columns..][..columns];
                let pooled = self.pool(i64::from(self.positions[t]), |p| self.stored(state, table, p), false);
                let angle = |values: &[f32], i: usize| values[b * ROPE_DIM / 2 + i];
                (t, self.finish(&pooled, |i| angle(cos, i), |i| angle(sin, i)))
            }));
        }
        rows
    }

    /// A prefill tile of `num_tokens` live tokens: pools the state as it was with the tile's own rows in place of it, then
    /// stores those. Gives (destination, row) for every destination in `cmp_slots`, in token order.
    pub fn prefill(
        &self,
        state: &mut [f32],
        table: &[i32],
        (freqs_cos, freqs_sin): (&[bf16], &[bf16]),
        cmp_slots: &[i64],
        num_tokens: usize,
    ) -> Vec<(usize, Vec<f32>)> {
        let entries = self.entries();
        let entry = |position: i64| {
            let own = (0..num_tokens).find(|&t| i64::from(self.positions[t]) == position);
            own.map(|t| entries[t].clone())
                .or_else(|| self.stored(state, table, position))
        };
        let mut rows = Vec::new();
        for (t, slot) in cmp_slots.iter().enumerate().take(num_tokens) {
            let Ok(slot) = usize::try_from(*slot) else {
                continue;
            };
            let last = i64::from(self.positions[t]);
            let pooled = self.pool(last, entry, !self.form.overlap);
            let start = (last + 1) as usize - self.form.ratio;
            let angle = |table: &[bf16], i: usize| table[start * ROPE_DIM + i].to_f32();
            rows.push((
                slot,
                self.finish(&pooled, |i| angle(freqs_cos, i), |i| angle(freqs_sin, i)),
            ));
        }
        for (entry, slot) in entries.iter().zip(self.state_slots).take(num_tokens) {
            self.store(state, *slot, entry);
        }
        rows
    }
}

/// A key of the indexer.
#[derive(Clone, Debug)]
pub struct IndexKey {
    /// The rotated row before its roundings.
    pub rotated: Vec<f32>,
    /// Its codes and the scale that gives the values back.
    pub coded: CodedRows,
}

/// Rotates the bf16 row by `hadamard` [n, n], rounds to bf16 and quantises.
pub fn index_key(row: &[f32], hadamard: &[bf16]) -> IndexKey {
    let n = row.len();
    let row: Vec<bf16> = row.iter().map(|v| bf16::from_f32(*v)).collect();
    let rotated = product_on(1, n, n, Matrix::rows(&row, n), Matrix::rows(hadamard, n));
    let rotated: Vec<f32> = rotated.into_iter().map(|v| v as f32).collect();
    let rounded: Vec<f32> = rotated.iter().map(|v| through_bf16(*v)).collect();
    IndexKey {
        coded: code_rows(&rounded, n),
        rotated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::compressor::{INDEX, RATIO_128};

    fn with_form<R>(form: Form, work: impl FnOnce(CompressorIn<'_>) -> R) -> R {
        let norm = vec![bf16::ONE; form.head];
        work(CompressorIn {
            form,
            weights: Weights {
                wkv: &[],
                wgate: &[],
                ape: &[],
                norm: &norm,
            },
            x: &[],
            positions: &[],
            state_slots: &[],
        })
    }

    #[test]
    fn the_window_before_gives_its_front_half() {
        with_form(INDEX, |c| {
            // The score picks one position: its key-values are its own number, negative in the back half.
            let entry = |chosen: i64, chosen_half: usize| {
                move |p: i64| {
                    let halves = |front: f32, back: f32| [vec![front; 128], vec![back; 128]].concat();
                    let score = |half| {
                        if p == chosen && half == chosen_half {
                            100.0
                        } else {
                            -100.0
                        }
                    };
                    (p >= 0).then(|| (halves(p as f32, -p as f32), halves(score(0), score(1))))
                }
            };
            assert_eq!(c.pool(7, entry(1, 0), false), [1.0; 128]);
            assert_eq!(c.pool(7, entry(5, 1), false), [-5.0; 128]);
            // The first window has nothing before it: position 2 can't be seen from its front.
            assert_eq!(c.pool(3, entry(3, 1), false), [-3.0; 128]);
        });
    }

    #[test]
    fn absent_pages_weigh_only_where_the_prefill_says_so() {
        with_form(RATIO_128, |c| {
            let half = |p: i64| (p >= 64).then(|| (vec![2.0; 512], vec![0.0; 512]));
            assert_eq!(c.pool(127, half, false), [2.0; 512]);
            assert_eq!(c.pool(127, half, true), [1.0; 512]);
        });
    }
}
