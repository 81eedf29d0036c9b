//! Scores of all keys that a request has, and the order of the best.

use ring_runtime::{Block, Halted, Orchestrator, Task, Tensor, Unit};

use super::{COLUMNS, DecodeIndexerArgs, DecodeIndexerScratch};
use crate::creates::Created;
use crate::fixture::compressor::INDEX;
use crate::model::{DECODE_TOKENS, INDEX_HEADS, INDEX_TOPK, PAGE, STEP_TOKENS};
use crate::ops::compressor::key_rows;
use crate::simd::vectorised;
use crate::tile::gemm::{Rhs, Store, gemm};

/// Blocks that share the tiles of a token, taking turns.
const LANES: usize = 4;
/// Score of a column that a token does not see.
pub(crate) const MASKED: f32 = f32::MIN;

pub(super) fn submit(
    o: &mut Orchestrator<'_>,
    args: &DecodeIndexerArgs,
    s: &DecodeIndexerScratch,
) -> Result<(), Halted> {
    score_mat(o, args, s)?;
    score_reduce(o, args, s)?;
    topk(o, args)
}

/// Metadata that decides what a token sees.
#[derive(Clone, Debug)]
struct Sight {
    kv_seq_lens: Tensor,
    positions: Tensor,
}

impl Sight {
    fn new(args: &DecodeIndexerArgs) -> Self {
        Self {
            kv_seq_lens: args.kv_seq_lens.clone(),
            positions: args.inner.step.positions.clone(),
        }
    }

    /// Keys of the request of token `t`.
    fn keys(&self, block: &Block<'_>, t: usize) -> usize {
        block.read::<i32>(&self.kv_seq_lens)[t / STEP_TOKENS] as usize / INDEX.ratio
    }

    /// Columns that token `t` sees.
    fn columns(&self, block: &Block<'_>, t: usize) -> usize {
        let complete = (block.read::<i32>(&self.positions)[t] as usize + 1) / INDEX.ratio;
        self.keys(block, t).min(complete).min(COLUMNS)
    }
}

/// Products of a token's queries with all keys on the pages of its request.
fn score_mat(o: &mut Orchestrator<'_>, args: &DecodeIndexerArgs, s: &DecodeIndexerScratch) -> Result<(), Halted> {
    let [query, target] = [&s.query, &s.score_acc].map(Created::tensor);
    let (cache, table) = (key_rows(&args.inner.cache), args.key_table.clone());
    let sight = Sight::new(args);
    let task = Task::new("score_mat", Unit::Matrix)
        .blocks(DECODE_TOKENS)
        .input(&args.inner.cache)
        .input(&table)
        .input(&args.kv_seq_lens)
        .input(&query)
        .write(&target)
        .run(move |block| {
            let t = block.index();
            let b = block.tile::<i8>(&query.rows(t * INDEX_HEADS..(t + 1) * INDEX_HEADS));
            let table = block.tile::<i32>(&table);
            for tile in 0..sight.keys(block, t).div_ceil(PAGE) {
                let page = table.tile().row(t / STEP_TOKENS)[tile] as usize;
                let a = block.tile::<i8>(&cache.rows(page * PAGE..(page + 1) * PAGE));
                let row0 = t * COLUMNS + tile * PAGE;
                let mut c = block.tile_mut::<i32>(&target.rows(row0..row0 + PAGE));
                gemm(a.tile(), Rhs::Nk(b.tile()), &mut c.tile_mut(), Store::Overwrite);
            }
        });
    o.submit(task)?;
    Ok(())
}

vectorised! {
    /// `Σ_h max(acc[h]·scale[h], 0)·weight[h]`, the upper half of the heads added to the lower until one is left.
    fn weigh(acc: &[i32; INDEX_HEADS], scale: &[f32; INDEX_HEADS], weight: &[f32; INDEX_HEADS]) -> f32 {
        let mut terms = [0f32; INDEX_HEADS];
        for h in 0..INDEX_HEADS {
            let value = acc[h] as f32 * scale[h];
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

fn score_reduce(o: &mut Orchestrator<'_>, args: &DecodeIndexerArgs, s: &DecodeIndexerScratch) -> Result<(), Halted> {
    let [source, query_scale, weights] = [&s.score_acc, &s.query_scale, &s.weights].map(Created::tensor);
    let (key_scale, table) = (key_rows(&args.inner.scale), args.key_table.clone());
    let target = args.score.reshape(&[DECODE_TOKENS, COLUMNS]);
    let sight = Sight::new(args);
    let task = Task::new("score_reduce", Unit::Vector)
        .blocks(DECODE_TOKENS * LANES)
        .input(&source)
        .input(&query_scale)
        .input(&weights)
        .input(&args.inner.scale)
        .input(&table)
        .input(&args.kv_seq_lens)
        .input(&args.inner.step.positions)
        .write(&args.score)
        .run(move |block| {
            let (t, lane) = (block.index() / LANES, block.index() % LANES);
            let visible = sight.columns(block, t);
            let scale = block.read::<f32>(&query_scale.rows(t * INDEX_HEADS..(t + 1) * INDEX_HEADS));
            let weight = block.read::<f32>(&weights.rows(t..t + 1));
            let scale: &[f32; INDEX_HEADS] = (&scale[..]).try_into().expect("a scale per head");
            let weight: &[f32; INDEX_HEADS] = (&weight[..]).try_into().expect("a weight per head");
            let table = block.tile::<i32>(&table);
            for tile in (lane..sight.keys(block, t).div_ceil(PAGE)).step_by(LANES) {
                let page = table.tile().row(t / STEP_TOKENS)[tile] as usize;
                let key_scale = block.read::<f32>(&key_scale.rows(page * PAGE..(page + 1) * PAGE));
                let (first, row0) = (tile * PAGE, t * COLUMNS + tile * PAGE);
                let acc = block.read::<i32>(&source.rows(row0..row0 + PAGE));
                let mut score = block.write::<f32>(&target.view(&[t, first], &[1, PAGE]));
                let (acc, _) = acc.as_chunks::<INDEX_HEADS>();
                for (j, score) in score.iter_mut().enumerate() {
                    *score = if first + j < visible {
                        weigh(&acc[j], scale, weight) * key_scale[j]
                    } else {
                        MASKED
                    };
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Columns of `scores` by descending score, those of equal ones ascending.
pub(crate) fn descending(scores: &[f32]) -> Vec<u32> {
    let mut columns: Vec<u32> = (0..scores.len() as u32).collect();
    let by_score = |a: &u32, b: &u32| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
    columns.sort_unstable_by(by_score);
    columns
}

fn topk(o: &mut Orchestrator<'_>, args: &DecodeIndexerArgs) -> Result<(), Halted> {
    let [score, target] = [&args.score, &args.topk].map(|t| t.reshape(&[DECODE_TOKENS, COLUMNS]));
    let (sight, offset) = (Sight::new(args), args.offset);
    let task = Task::new("topk", Unit::Vector)
        .blocks(DECODE_TOKENS)
        .input(&args.score)
        .input(&args.kv_seq_lens)
        .input(&args.inner.step.positions)
        .write(&args.topk)
        .run(move |block| {
            let t = block.index();
            let mut best = block.write::<i32>(&target.rows(t..t + 1));
            best.fill(-1);
            let visible = sight.columns(block, t);
            if visible == 0 {
                return;
            }
            let score = block.read::<f32>(&score.view(&[t, 0], &[1, visible]));
            for (best, column) in best.iter_mut().zip(descending(&score)).take(INDEX_TOPK) {
                *best = column as i32 + offset;
            }
        });
    o.submit(task)?;
    Ok(())
}
