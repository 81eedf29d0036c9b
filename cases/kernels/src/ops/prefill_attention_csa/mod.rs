//! Prefill attention block of the CSA layers: the sliding window, and the rows of four positions that the indexer selects.

pub(crate) mod case;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

pub use case::PrefillAttentionCsa;

use super::compressor::prefill::TileArgs;
use super::decode_indexer::IndexerWeights;
use super::prefill_attention::{
    Attended, BackScratch, BlockArgs, BlockWeights, FrontScratch, TOKENS, WindowList, back, front,
};
use super::prefill_compressor::{PrefillCompressorArgs, Ratio4Scratch, prefill_compressor_ratio4};
use super::prefill_indexer::{PrefillIndexerArgs, PrefillIndexerScratch, SCORE_CAP, prefill_indexer};
use super::prefill_indexer_compressor::PrefillIndexerCompressorArgs;
use crate::creates::{Created, Creates};
use crate::fixture::CompressorWeights;
use crate::fixture::compressor::{Form, INDEX, RATIO_4};
use crate::model::{INDEX_TOPK, ROPE_DIM, WINDOW};
use crate::scopes::BodyScopes;

/// Compressed rows that a request may have, at most.
const COLUMNS: i32 = 4096;
/// Tokens of a block that lists rows.
const LIST_TOKENS: usize = 2;
/// Lanes of a rotary row that count.
const HALF: usize = ROPE_DIM / 2;

/// Weights of the block.
#[derive(Clone, Debug)]
pub(crate) struct CsaWeights {
    pub(crate) block: BlockWeights,
    pub(crate) compressor: CompressorWeights,
    pub(crate) indexer: IndexerWeights,
    /// Rotation of the indexer's queries and keys, [128, 128] bf16.
    pub(crate) hadamard: Tensor,
}

/// Rolling state of a compressor, and where the tile's rows go.
#[derive(Clone, Debug)]
pub(crate) struct StateArgs {
    /// [pages, 4, width] f32, updated.
    pub(crate) state: Tensor,
    /// Its pages, \[4096\] i32.
    pub(crate) table: Tensor,
    /// State row of each token, \[128\] i64, −1 for none.
    pub(crate) slots: Tensor,
}

/// Activations, pools and tables of one tile.
#[derive(Clone, Debug)]
pub(crate) struct CsaArgs {
    pub(crate) block: BlockArgs,
    /// Of the main compressor, rows of 2048.
    pub(crate) main: StateArgs,
    /// Of the indexer's compressor, rows of 512.
    pub(crate) inner: StateArgs,
    /// Compressed pool, [pages, 128, 1, 512] bf16, updated.
    pub(crate) cmp_kv: Tensor,
    /// Its pages, \[32\] i32.
    pub(crate) cmp_table: Tensor,
    /// Compressed row that each token completes, \[128\] i64, −1 for none.
    pub(crate) cmp_slots: Tensor,
    /// Keys of the indexer, [pages, 128, 1, 128] i8, updated.
    pub(crate) keys: Tensor,
    /// Their scales, [pages, 128, 1, 1] f32, updated.
    pub(crate) key_scales: Tensor,
    /// Their pages, \[64\] i32.
    pub(crate) key_table: Tensor,
    /// Key that each token completes, \[128\] i64, −1 for none.
    pub(crate) key_slots: Tensor,
}

/// What the indexer gets from the block.
#[derive(Clone, Debug)]
struct IndexerInput {
    /// Normalised activations, [128, 7168] bf16.
    x: Tensor,
    /// Low-rank query codes, [128, 1536] i8.
    qr: Tensor,
    /// [128, 1] f32.
    qr_scale: Tensor,
    /// [128, 32] f32.
    cos: Tensor,
    /// [128, 32] f32.
    sin: Tensor,
    /// [128, 256] f32.
    score: Tensor,
    /// [128, 1024] i32.
    topk: Tensor,
}

impl CsaArgs {
    fn tile(&self, form: Form, x: &Tensor, state: &StateArgs, slots: &Tensor) -> TileArgs {
        TileArgs {
            form,
            x: x.clone(),
            state: state.state.clone(),
            state_table: state.table.clone(),
            state_slots: state.slots.clone(),
            positions: self.block.position_ids.clone(),
            slots: slots.clone(),
            freqs_cos: self.block.rope.cos.clone(),
            freqs_sin: self.block.rope.sin.clone(),
            num_tokens: self.block.num_tokens,
        }
    }

    /// Arguments of the main compressor over the activations `x`.
    fn compressor(&self, x: &Tensor) -> TileArgs {
        self.tile(RATIO_4, x, &self.main, &self.cmp_slots)
    }

    fn indexer(&self, hadamard: &Tensor, input: IndexerInput) -> PrefillIndexerArgs {
        PrefillIndexerArgs {
            inner: PrefillIndexerCompressorArgs {
                tile: self.tile(INDEX, &input.x, &self.inner, &self.key_slots),
                hadamard: hadamard.clone(),
                cache: self.keys.clone(),
                scale: self.key_scales.clone(),
            },
            qr: input.qr,
            qr_scale: input.qr_scale,
            cos: input.cos,
            sin: input.sin,
            key_table: self.key_table.clone(),
            score: input.score,
            topk: input.topk,
        }
    }
}

/// The tensors that the body creates, in source order.
#[derive(Debug)]
pub(crate) struct CsaScratch {
    front: FrontScratch,
    compressor: Ratio4Scratch,
    idx_cos: Created,
    idx_sin: Created,
    topk: Created,
    score: Created,
    indexer: PrefillIndexerScratch,
    swa_indices: Created,
    cmp_indices: Created,
    back: BackScratch,
}

impl CsaScratch {
    pub(crate) fn declare(creates: &mut Creates) -> Self {
        // Fields are evaluated as they are written: that is the order of the allocation batches.
        Self {
            front: FrontScratch::declare(creates),
            compressor: Ratio4Scratch::declare(creates),
            idx_cos: creates.tensor("idx_cos", DType::F32, &[TOKENS, HALF]),
            idx_sin: creates.tensor("idx_sin", DType::F32, &[TOKENS, HALF]),
            topk: creates.tensor("cmp_topk_indices", DType::I32, &[TOKENS, INDEX_TOPK]),
            score: creates.tensor("idx_score_unused", DType::F32, &[TOKENS, SCORE_CAP]),
            indexer: PrefillIndexerScratch::declare(creates),
            swa_indices: creates.tensor("swa_indices", DType::I32, &[TOKENS, WINDOW]),
            cmp_indices: creates.tensor("cmp_indices", DType::I32, &[TOKENS, INDEX_TOPK]),
            back: BackScratch::declare(creates),
        }
    }
}

/// Submits the block: 52 launches and barriers here, 304 tasks in a manual scope, and nine tasks in loop and `if` bodies.
pub(crate) fn prefill_attention_csa(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    args: &CsaArgs,
    weights: &CsaWeights,
    s: &CsaScratch,
) -> Result<(), Halted> {
    let done = front(o, "prefill_csa_cache_write", &args.block, &weights.block, &s.front)?;
    let compressor = PrefillCompressorArgs {
        tile: args.compressor(&done.qkv.x),
        cmp_kv: args.cmp_kv.clone(),
    };
    let compressed = prefill_compressor_ratio4(o, &compressor, &weights.compressor, &s.compressor)?;
    half_rope(o, &args.block, compressed, [&s.idx_cos, &s.idx_sin])?;
    let input = IndexerInput {
        x: done.qkv.x.clone(),
        qr: done.qkv.qr.clone(),
        qr_scale: done.qkv.qr_scale.clone(),
        cos: s.idx_cos.tensor(),
        sin: s.idx_sin.tensor(),
        score: s.score.tensor(),
        topk: s.topk.tensor(),
    };
    let indexer = args.indexer(&weights.hadamard, input);
    prefill_indexer(o, bodies, &indexer, &weights.indexer, &s.indexer)?;
    sparse_indices(o, &args.block, &s.topk, &s.swa_indices, &s.cmp_indices)?;
    let attended = Attended {
        swa_indices: s.swa_indices.tensor(),
        cmp_kv: args.cmp_kv.clone(),
        cmp_block_table: args.cmp_table.clone(),
        cmp_indices: s.cmp_indices.tensor(),
    };
    back(o, bodies, &args.block, &weights.block, done, attended, &s.back)
}

/// Widens the first halves of the rotary rows of all 128 tokens, live or not.
///
/// It waits for the main compressor: by what it writes the indexer's queries come after that.
fn half_rope(
    o: &mut Orchestrator<'_>,
    args: &BlockArgs,
    compressed: TaskId,
    targets: [&Created; 2],
) -> Result<(), Halted> {
    let tables = [args.rope.cos.clone(), args.rope.sin.clone()];
    let (positions, targets) = (args.position_ids.clone(), targets.map(Created::tensor));
    let task = Task::new("prefill_csa_idx_halfrope", Unit::Vector)
        .input(&tables[0])
        .input(&tables[1])
        .input(&positions)
        .write(&targets[0])
        .write(&targets[1])
        .after(compressed)
        .run(move |block| {
            let positions = block.read::<i32>(&positions);
            for (table, target) in tables.iter().zip(&targets) {
                let mut target = block.write::<f32>(target);
                for (row, position) in target.chunks_mut(HALF).zip(positions.iter()) {
                    let source = block.read::<bf16>(&table.view(&[*position as usize, 0], &[1, HALF]));
                    row.iter_mut().zip(source.iter()).for_each(|(t, v)| *t = v.to_f32());
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Lists window rows, and the selected compressed rows that are complete at each token.
fn sparse_indices(
    o: &mut Orchestrator<'_>,
    args: &BlockArgs,
    topk: &Tensor,
    swa: &Tensor,
    cmp: &Tensor,
) -> Result<(), Halted> {
    let (list, source, target, num_tokens) = (WindowList::of(args, swa), topk.clone(), cmp.clone(), args.num_tokens);
    let task = Task::new("prefill_csa_sparse_idx_tile", Unit::Scalar)
        .blocks(TOKENS / LIST_TOKENS)
        .input(topk)
        .input(&list.positions)
        .input(&list.table)
        .write(swa)
        .write(cmp)
        .run(move |block| {
            let tokens = block.index() * LIST_TOKENS..(block.index() + 1) * LIST_TOKENS;
            list.fill(block, tokens.clone());
            let positions = block.read::<i32>(&list.positions);
            for t in tokens {
                let mut row = block.write::<i32>(&target.rows(t..t + 1));
                row.fill(-1);
                if t >= num_tokens {
                    continue;
                }
                let chosen = block.read::<i32>(&source.rows(t..t + 1));
                let complete = (positions[t] as usize + 1) / RATIO_4.ratio;
                for (row, chosen) in row.iter_mut().zip(chosen.iter()).take(complete) {
                    if (0..COLUMNS).contains(chosen) {
                        *row = *chosen;
                    }
                }
            }
        });
    o.submit(task)?;
    Ok(())
}
