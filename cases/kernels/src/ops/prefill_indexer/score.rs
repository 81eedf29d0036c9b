//! Scores of the keys that each token sees, and their order.

use ring_runtime::{Block, Halted, Orchestrator, Task, TaskId, Tensor, TileMut, Unit};

use super::{PrefillIndexerArgs, PrefillIndexerScratch, SCORE_CAP, SORT_WIDTH};
use crate::creates::Created;
use crate::fixture::compressor::INDEX;
use crate::model::{INDEX_HEADS, INDEX_TOPK, MATRIX_ROWS, PAGE, PREFILL_TOKENS};
use crate::ops::compressor::key_rows;
use crate::ops::decode_indexer::{MASKED, descending};
use crate::scopes::BodyScopes;
use crate::simd::vectorised;
use crate::tile::gemm::{Rhs, Store, gemm};

/// Keys that are scored at a time.
const KEYS: usize = 32;
/// Tokens of a block that sorts or copies.
const TOKENS: usize = 16;

pub(super) fn submit(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    args: &PrefillIndexerArgs,
    completion: TaskId,
    s: &PrefillIndexerScratch,
) -> Result<(), Halted> {
    for first in (0..PREFILL_TOKENS).step_by(MATRIX_ROWS) {
        let rows = s.score_wide.rows(first..first + MATRIX_ROWS);
        bodies.body(o, |o| {
            let task = Task::new("prefill_idx_score_init", Unit::Vector)
                .write(&rows)
                .run(move |block| block.write::<f32>(&rows).fill(MASKED));
            o.submit(task).map(|_| ())
        })?;
    }
    score(o, args, completion, s)?;
    score_out(o, args, &s.score_wide)?;
    topk(o, args, &s.score_wide)
}

/// Columns that a token at `position` sees.
fn visible(position: i32) -> usize {
    ((position as usize + 1) / INDEX.ratio).min(SCORE_CAP)
}

vectorised! {
    /// `Σ_h relu((acc[h]·key)·scale[h])·weight[h]`, the upper half of the heads added to the lower until one is left.
    fn weigh(acc: &[i32; INDEX_HEADS], key: f32, scale: &[f32; INDEX_HEADS], weight: &[f32; INDEX_HEADS]) -> f32 {
        let mut terms = [0f32; INDEX_HEADS];
        for h in 0..INDEX_HEADS {
            let value = (acc[h] as f32 * key) * scale[h];
            // A NaN stays one.
            terms[h] = (if value < 0.0 { 0.0 } else { value }) * weight[h];
        }
        let mut half = INDEX_HEADS / 2;
        while half > 0 {
            for h in 0..half {
                terms[h] += terms[h + half];
            }
            half /= 2;
        }
        terms[0]
    }
}

/// Tensors of the scoring block.
struct Scorer {
    positions: Tensor,
    table: Tensor,
    cache: Tensor,
    key_scale: Tensor,
    query: Tensor,
    query_scale: Tensor,
    weights: Tensor,
    target: Tensor,
    num_tokens: usize,
}

impl Scorer {
    /// Scores keys `col0..` of all live tokens.
    fn keys(&self, block: &Block<'_>, col0: usize, acc: &mut [i32]) {
        // A page is a whole number of key blocks.
        let page = block.read::<i32>(&self.table)[col0 / PAGE] as usize;
        let row0 = page * PAGE + col0 % PAGE;
        let keys = block.tile::<i8>(&self.cache.rows(row0..row0 + KEYS));
        let key_scale = block.read::<f32>(&self.key_scale.rows(row0..row0 + KEYS));
        let width = self.num_tokens * INDEX_HEADS;
        let query = block.tile::<i8>(&self.query.rows(0..width));
        let acc = &mut acc[..KEYS * width];
        gemm(
            keys.tile(),
            Rhs::Nk(query.tile()),
            &mut TileMut::new(acc, KEYS, width),
            Store::Overwrite,
        );
        let (scale, weight) = (block.read::<f32>(&self.query_scale), block.read::<f32>(&self.weights));
        let [scale, weight] = [&scale, &weight].map(|v| v.as_chunks::<INDEX_HEADS>().0);
        let acc = acc.as_chunks::<INDEX_HEADS>().0;
        let positions = block.read::<i32>(&self.positions);
        for t in 0..self.num_tokens {
            let visible = visible(positions[t]);
            let mut row = block.write::<f32>(&self.target.view(&[t, col0], &[1, KEYS]));
            for (j, score) in row.iter_mut().enumerate() {
                *score = if col0 + j < visible {
                    weigh(&acc[j * self.num_tokens + t], key_scale[j], &scale[t], &weight[t])
                } else {
                    MASKED
                };
            }
        }
    }
}

/// One block: it walks all keys that the last live token sees.
fn score(
    o: &mut Orchestrator<'_>,
    args: &PrefillIndexerArgs,
    completion: TaskId,
    s: &PrefillIndexerScratch,
) -> Result<(), Halted> {
    let [query, query_scale, weights, target] =
        [&s.query, &s.query_scale, &s.weights, &s.score_wide].map(Created::tensor);
    let scorer = Scorer {
        positions: args.inner.tile.positions.clone(),
        table: args.key_table.clone(),
        cache: key_rows(&args.inner.cache),
        key_scale: key_rows(&args.inner.scale),
        query,
        query_scale,
        weights,
        target,
        num_tokens: args.inner.tile.num_tokens,
    };
    let task = Task::new("prefill_idx_score", Unit::Mixed)
        .input(&scorer.positions)
        .input(&scorer.table)
        .input(&args.inner.cache)
        .input(&args.inner.scale)
        .input(&scorer.query)
        .input(&scorer.query_scale)
        .input(&scorer.weights)
        .inout(&scorer.target)
        .after(completion)
        .run(move |block| {
            let last = block.read::<i32>(&scorer.positions)[scorer.num_tokens - 1];
            let mut acc = vec![0i32; KEYS * scorer.num_tokens * INDEX_HEADS];
            for col0 in (0..visible(last)).step_by(KEYS) {
                scorer.keys(block, col0, &mut acc);
            }
        });
    o.submit(task)?;
    Ok(())
}

fn score_out(o: &mut Orchestrator<'_>, args: &PrefillIndexerArgs, wide: &Tensor) -> Result<(), Halted> {
    let (source, target) = (wide.view(&[0, 0], &[PREFILL_TOKENS, SCORE_CAP]), args.score.clone());
    let task = Task::new("prefill_idx_score_out", Unit::Vector)
        .input(wide)
        .write(&target)
        .run(move |block| {
            let source = block.tile::<f32>(&source);
            let mut target = block.tile_mut::<f32>(&target);
            for t in 0..PREFILL_TOKENS {
                target.tile_mut().row_mut(t).copy_from_slice(source.tile().row(t));
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Sorts whole rows: columns that a token does not see come last, since they are masked.
fn topk(o: &mut Orchestrator<'_>, args: &PrefillIndexerArgs, wide: &Tensor) -> Result<(), Halted> {
    let (source, target) = (wide.clone(), args.topk.clone());
    let (positions, num_tokens) = (args.inner.tile.positions.clone(), args.inner.tile.num_tokens);
    let task = Task::new("prefill_idx_topk", Unit::Vector)
        .blocks(PREFILL_TOKENS / TOKENS)
        .input(wide)
        .input(&positions)
        .write(&target)
        .run(move |block| {
            let positions = block.read::<i32>(&positions);
            for t in block.index() * TOKENS..(block.index() + 1) * TOKENS {
                let mut best = block.write::<i32>(&target.rows(t..t + 1));
                best.fill(-1);
                if t >= num_tokens {
                    continue;
                }
                let scores = block.read::<f32>(&source.view(&[t, 0], &[1, SORT_WIDTH]));
                let order = descending(&scores).into_iter().take(visible(positions[t]));
                for (best, column) in best.iter_mut().zip(order).take(INDEX_TOPK) {
                    *best = column as i32;
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Submits the copy of the first 256 columns of `topk` [128, 1024] i32 to `target` [128, 256].
pub(crate) fn topk_copy(o: &mut Orchestrator<'_>, topk: &Tensor, target: &Tensor) -> Result<(), Halted> {
    let (source, to) = (topk.clone(), target.clone());
    let task = Task::new("prefill_idx_topk_copy", Unit::Vector)
        .blocks(PREFILL_TOKENS / TOKENS)
        .input(topk)
        .write(target)
        .run(move |block| {
            let first = block.index() * TOKENS;
            let source = block.tile::<i32>(&source.view(&[first, 0], &[TOKENS, SCORE_CAP]));
            let mut to = block.tile_mut::<i32>(&to.rows(first..first + TOKENS));
            for t in 0..TOKENS {
                to.tile_mut().row_mut(t).copy_from_slice(source.tile().row(t));
            }
        });
    o.submit(task)?;
    Ok(())
}
