//! One decode step of a compressor: rows are stored and windows pooled by a single block, request after request.

use half::bf16;
use ring_runtime::{Halted, Orchestrator, Task, Tensor, Unit};

use super::pool::{Share, softmax_rows};
use super::{ABSENT, Online, with_weights};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::Form;
use crate::golden::compressor::CompressorIn;
use crate::model::{REQUESTS, STEP_TOKENS};
use crate::tile::math;

/// Positions, pools and tables of a step.
#[derive(Clone, Debug)]
pub(crate) struct StepArgs {
    pub(crate) form: Form,
    /// Normalised activations, [8, 7168] bf16 (or [4, 2, 7168]).
    pub(crate) x: Tensor,
    /// Rolling state, [pages, page, 2·out] f32, updated.
    pub(crate) state: Tensor,
    /// Its pages, [4, columns] i32.
    pub(crate) state_table: Tensor,
    /// State row of each token, 8 i64, −1 for none.
    pub(crate) state_slots: Tensor,
    /// Positions of the tokens, 8 i32.
    pub(crate) positions: Tensor,
    /// Pool row that each token completes, 8 i64, −1 for none.
    pub(crate) slots: Tensor,
    /// Cosines of each request, [4, 32] f32.
    pub(crate) cos: Tensor,
    /// Sines of each request, [4, 32] f32.
    pub(crate) sin: Tensor,
}

/// The token of the step (0 or 1) that completes the window of a request whose first new token is at `first`.
pub(crate) fn closing(form: &Form, first: i32) -> Option<usize> {
    let phase = first as usize % form.ratio;
    (phase + STEP_TOKENS >= form.ratio).then(|| form.ratio - 1 - phase)
}

/// Requests whose window closes: request, pool row (−1 for none) of the closing token.
pub(crate) fn closed<'a>(
    form: &'a Form,
    positions: &'a [i32],
    slots: &'a [i64],
) -> impl Iterator<Item = (usize, i64)> + 'a {
    (0..REQUESTS).filter_map(|b| closing(form, positions[b * STEP_TOKENS]).map(|s| (b, slots[b * STEP_TOKENS + s])))
}

/// Stores the projections of each request and pools its window if that closed: `pooled` row `b` is written then only.
///
/// A single block, since pools are shared: a request may pool rows that an earlier one has stored in this very step.
pub(crate) fn scatter_softmax_pool(
    o: &mut Orchestrator<'_>,
    args: &StepArgs,
    ape: &Tensor,
    (kv, score): (&Tensor, &Tensor),
    pooled: &Tensor,
) -> Result<(), Halted> {
    let (form, args_in, ape_in) = (args.form, args.clone(), ape.clone());
    let [kv_in, score_in, target] = [kv, score, pooled].map(Tensor::clone);
    let task = Task::new("scatter_softmax_pool", Unit::Vector)
        .input(kv)
        .input(score)
        .input(ape)
        .input(&args.state_slots)
        .input(&args.positions)
        .input(&args.state_table)
        .inout(&args.state)
        .write(pooled)
        .run(move |block| {
            let [kv, score] = [&kv_in, &score_in].map(|t| block.tile::<f32>(t));
            let ape = block.tile::<f32>(&ape_in);
            let (slots, positions) = (
                block.read::<i64>(&args_in.state_slots),
                block.read::<i32>(&args_in.positions),
            );
            let table = block.tile::<i32>(&args_in.state_table);
            let mut state = block.write::<f32>(&args_in.state);
            let mut pooled = block.tile_mut::<f32>(&target);
            for b in 0..REQUESTS {
                for t in b * STEP_TOKENS..(b + 1) * STEP_TOKENS {
                    if let Ok(row) = usize::try_from(slots[t]) {
                        let row = &mut state[row * form.state_width()..][..form.state_width()];
                        let (to_kv, to_score) = row.split_at_mut(form.out());
                        to_kv.copy_from_slice(kv.tile().row(t));
                        to_score.copy_from_slice(score.tile().row(t));
                        math::add(to_score, ape.tile().row(positions[t] as usize % form.ratio));
                    }
                }
                let first = positions[b * STEP_TOKENS];
                if closing(&form, first).is_some() {
                    let window = Window {
                        form,
                        state: &state,
                        table: table.tile().row(b),
                    };
                    let mut pooled = pooled.tile_mut();
                    let pooled = pooled.row_mut(b);
                    if form.overlap {
                        window.overlapping(first as usize, pooled);
                    } else {
                        window.whole(first as usize, pooled);
                    }
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// The state as one request sees it.
struct Window<'a> {
    form: Form,
    state: &'a [f32],
    table: &'a [i32],
}

impl Window<'_> {
    /// Key-values and scores of a position in its front (0) or back (1) half.
    fn entry(&self, position: usize, half: usize) -> (&[f32], &[f32]) {
        let Form { head, page, .. } = self.form;
        let row = self.table[position / page] as usize * page + position % page;
        let row = &self.state[row * self.form.state_width()..][..self.form.state_width()];
        let (kv, score) = row.split_at(self.form.out());
        (&kv[half * head..][..head], &score[half * head..][..head])
    }

    /// The window around `first` in its back halves, and the one before in its front halves.
    ///
    /// The closing row comes first: it has just been stored, so its score is finite whatever stale rows hold.
    fn overlapping(&self, first: usize, pooled: &mut [f32]) {
        let Form { ratio, head, .. } = self.form;
        let start = first - first % ratio;
        let (kv, score) = self.entry(start + ratio - 1, 1);
        let mut online = Online::start(kv, score);
        let (zero, absent) = (vec![0f32; head], vec![ABSENT; head]);
        for i in 0..ratio {
            let (kv, score) = if first >= ratio {
                self.entry(start - ratio + i, 0)
            } else {
                (&zero[..], &absent[..])
            };
            online.add(kv, score);
        }
        for i in 0..ratio - 1 {
            let (kv, score) = self.entry(start + i, 1);
            online.add(kv, score);
        }
        online.finish(pooled);
    }

    /// All rows of the window around `first`; a page that is not there has no weight.
    fn whole(&self, first: usize, pooled: &mut [f32]) {
        const TILE: usize = 128;
        let Form { ratio, page, .. } = self.form;
        let start = first - first % ratio;
        let (mut kv, mut score) = (vec![0f32; ratio * TILE], vec![0f32; ratio * TILE]);
        for (tile, pooled) in pooled.chunks_mut(TILE).enumerate() {
            let columns = tile * TILE..(tile + 1) * TILE;
            for (i, (kv, score)) in kv.chunks_mut(TILE).zip(score.chunks_mut(TILE)).enumerate() {
                if self.table[(start + i) / page] < 0 {
                    kv.fill(0.0);
                    score.fill(ABSENT);
                } else {
                    let entry = self.entry(start + i, 0);
                    kv.copy_from_slice(&entry.0[columns.clone()]);
                    score.copy_from_slice(&entry.1[columns.clone()]);
                }
            }
            softmax_rows(&kv, &mut score, pooled, Share::Reciprocal);
        }
    }
}

/// The reference: updates `state` (as it was before the step) and gives each request's completed row with the token that completed it.
pub(crate) fn reference(
    args: &StepArgs,
    weights: &CompressorWeights,
    state: &Tensor,
) -> Vec<Option<(usize, Vec<f32>)>> {
    with_weights(weights, |weights| {
        CompressorIn {
            form: args.form,
            weights,
            x: &args.x.read::<bf16>(),
            positions: &args.positions.read::<i32>(),
            state_slots: &args.state_slots.read::<i64>(),
        }
        .decode(
            &mut state.write::<f32>(),
            &args.state_table.read::<i32>(),
            (&args.cos.read::<f32>(), &args.sin.read::<f32>()),
        )
    })
}
