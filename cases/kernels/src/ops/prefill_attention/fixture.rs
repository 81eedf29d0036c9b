//! Inputs and reference that the prefill attention blocks share.

use half::bf16;
use ring_runtime::{DType, Tensor};

use super::{BlockArgs, BlockWeights, TOKENS};
use crate::compare::{FiniteRule, MappedPool, RatioReldiff, Tail, TensorVerdict};
use crate::fixture::prefill::Tile;
use crate::fixture::{Dist, Fixture, Profile, RopeTables, Rounding, constant, paging, poison};
use crate::golden::{self, CodedRows};
use crate::model::{HC_DIM, HC_MIX, HEAD_DIM, HEADS, HIDDEN, INDEX_TOPK, ORI_PAGES, PAGE, STREAMS, WINDOW};
use crate::ops::hc_pre::HcWeights;
use crate::ops::prefill_sparse_attn::OutWeights;
use crate::ops::qkv_proj_rope::{QkvDist, QkvWeights};

/// Hyper-connection of a kind of block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HcSetting {
    /// Standard deviation of the projection.
    pub(crate) deviation: f32,
    pub(crate) scale: [f32; 3],
    pub(crate) base: [f32; HC_MIX],
}

impl BlockWeights {
    /// The specs' weights; kinds differ in their hyper-connection alone.
    pub(crate) fn draw(fixture: Fixture, hc: HcSetting) -> Self {
        Self {
            hc: HcWeights::draw(fixture, "hc_attn_fn", hc.deviation, hc.scale, hc.base),
            norm: constant(DType::Bf16, &[HIDDEN], 1.0),
            qkv: QkvWeights::draw(fixture, QkvDist::attention(Rounding::HalfEven)),
            attn_sink: constant(DType::F32, &[HEADS], 0.0),
            out: OutWeights::draw(fixture, Rounding::HalfEven),
        }
    }
}

/// Streams of a tile, [128, 4, 7168] f32: uniform in [−1, 1), zero from `num_tokens` on.
pub(crate) fn draw_streams(fixture: Fixture, num_tokens: usize) -> Tensor {
    let x = fixture.real("x_hc", DType::F32, &[TOKENS, STREAMS, HIDDEN], Dist::uniform(-1.0, 1.0));
    x.write::<f32>()[num_tokens * HC_DIM..].fill(0.0);
    x
}

/// A pool [128, 128, 1, 512] bf16 of zeros, but `(U − 0.5) · 0.1` at the up to 128 positions before `start` (pages in order).
pub(crate) fn draw_window_pool(fixture: Fixture, start: usize) -> Tensor {
    let pool = Tensor::zeros(DType::Bf16, &[ORI_PAGES, PAGE, 1, HEAD_DIM]);
    let rows = pool
        .reshape(&[ORI_PAGES * PAGE, HEAD_DIM])
        .rows(start.saturating_sub(WINDOW)..start);
    fixture.refill("kv_cache", &rows, Dist::centred(0.1));
    pool
}

/// Positions of the live tokens; those of the others count from zero.
pub(crate) fn tile_positions(tile: Tile) -> Vec<i32> {
    (0..TOKENS)
        .map(|t| if t < tile.num_tokens { tile.start + t } else { t } as i32)
        .collect()
}

/// A table of pages for request `request` in a pool that holds `pages` for each.
pub(crate) fn of_request(table: Vec<i32>, request: usize, pages: usize) -> Vec<i32> {
    let shift = (request * pages) as i32;
    table.into_iter().map(|p| if p < 0 { p } else { p + shift }).collect()
}

impl BlockArgs {
    /// Arguments of `tile` by itself, pages in order.
    pub(crate) fn draw(fixture: Fixture, tile: Tile, profile: Profile) -> Self {
        let streams = [
            draw_streams(fixture, tile.num_tokens),
            Tensor::zeros(DType::F32, &[TOKENS, STREAMS, HIDDEN]),
        ];
        Self::over(&draw_window_pool(fixture, tile.start), 0, tile, profile, streams)
    }

    /// Arguments of `tile` of a request in a pool that holds 128 pages for each, from and to these streams.
    pub(crate) fn over(
        kv_cache: &Tensor,
        request: usize,
        tile: Tile,
        profile: Profile,
        [x_hc, x_out]: [Tensor; 2],
    ) -> Self {
        let table = of_request(paging::identity_table(ORI_PAGES), request, ORI_PAGES);
        let slots = tile.slots(&table, PAGE);
        Self {
            x_hc,
            rope: RopeTables::of(profile),
            kv_cache: kv_cache.clone(),
            block_table: Tensor::from_vec(&[ORI_PAGES], table),
            ori_slot_mapping: Tensor::from_vec(&[TOKENS], slots),
            position_ids: Tensor::from_vec(&[TOKENS], tile_positions(tile)),
            x_out: (&x_out).into(),
            num_tokens: tile.num_tokens,
        }
    }
}

/// Pools that a block updates, each with what it held before.
#[derive(Debug)]
pub(crate) struct Pools<const N: usize> {
    pools: [Tensor; N],
    kept: [Tensor; N],
}

impl<const N: usize> Pools<N> {
    /// Keeps copies of `pools` as they are now.
    pub(crate) fn keep(pools: [&Tensor; N]) -> Self {
        Self {
            pools: pools.map(Tensor::clone),
            kept: pools.map(Tensor::snapshot),
        }
    }

    /// The copies, in the order in which they were given: nothing may write them.
    pub(crate) fn kept(&self) -> &[Tensor; N] {
        &self.kept
    }

    /// Puts the pools back and poisons the output.
    pub(crate) fn reset(&self, output: &Tensor) {
        poison(output);
        self.pools
            .iter()
            .zip(&self.kept)
            .for_each(|(pool, kept)| pool.copy_from(kept));
    }
}

/// What a block should leave behind in every kind.
#[derive(Debug)]
pub(crate) struct BlockReference {
    pub(crate) x_out: Tensor,
    pub(crate) kv_cache: Tensor,
}

/// Compressed rows as the reference of a kind has them.
pub(crate) struct CompressedRows {
    /// Pool after the block, [pages, 128, 1, 512] bf16.
    pub(crate) pool: Tensor,
    /// Its pages, 32.
    pub(crate) table: Vec<i32>,
    /// Logical rows of each token, [128, 1024], −1 for none.
    pub(crate) indices: Vec<i32>,
}

/// The reference: the components' references one after the other, over a pool as it was before the block.
///
/// `compress` makes the compressed rows of the normalised activations [128, 7168] and the low-rank queries.
pub(crate) fn reference(
    args: &BlockArgs,
    weights: &BlockWeights,
    initial_cache: &Tensor,
    compress: impl FnOnce(&Tensor, CodedRows) -> CompressedRows,
) -> BlockReference {
    let x_hc = args.x_hc.read::<f32>();
    let mixed = weights.hc.reference(&x_hc);
    let normed = golden::rmsnorm::rms_norm(&mixed.x_mixed, &weights.norm.read::<bf16>());
    let positions = args.position_ids.read::<i32>();
    let (rope_cos, rope_sin) = args.rope.rows(&positions);
    let angles = (&*rope_cos.read::<bf16>(), &*rope_sin.read::<bf16>());
    let (q, kv, qr) = weights.qkv.with_reference(&normed, angles, |input| {
        let qr = input.qr();
        (input.q(&qr), input.kv(), qr)
    });

    let kv_cache = initial_cache.snapshot();
    let mapping = args.ori_slot_mapping.read::<i64>();
    for (t, slot) in mapping
        .iter()
        .enumerate()
        .take(args.num_tokens)
        .filter(|(_, slot)| **slot >= 0)
    {
        kv_cache.write::<bf16>()[*slot as usize * HEAD_DIM..][..HEAD_DIM]
            .copy_from_slice(&kv[t * HEAD_DIM..][..HEAD_DIM]);
    }
    let table = args.block_table.read::<i32>();
    let windows: Vec<i32> = (0..TOKENS)
        .flat_map(|t| {
            if t < args.num_tokens {
                paging::window_rows(&table, PAGE, WINDOW, positions[t] as usize)
            } else {
                vec![-1; WINDOW]
            }
        })
        .collect();
    let compressed = compress(&Tensor::from_vec(&[TOKENS, HIDDEN], normed), qr);
    let attended = golden::sparse_attn::SparseIn {
        q: &q,
        ori_kv: &kv_cache.read::<bf16>(),
        swa_indices: &windows,
        cmp_kv: &compressed.pool.read::<bf16>(),
        cmp_block_table: &compressed.table,
        cmp_indices: &compressed.indices,
        attn_sink: &weights.attn_sink.read::<f32>(),
        rope_cos: angles.0,
        rope_sin: angles.1,
        wo_a: &weights.out.wo_a.read::<bf16>(),
        wo_b: &weights.out.wo_b.codes.read::<i8>(),
        wo_b_scale: &weights.out.wo_b.scales.read::<f32>(),
        num_tokens: args.num_tokens,
    }
    .output();
    let x_out = golden::hc_post::hc_post(&attended, &x_hc, &mixed.post, &mixed.comb, args.num_tokens);
    BlockReference {
        x_out: Tensor::from_vec(args.x_out.dims(), x_out),
        kv_cache,
    }
}

/// Compressed columns of each token where every complete row of `ratio` tokens is seen, [128, 1024].
pub(crate) fn all_complete(args: &BlockArgs, ratio: usize) -> Vec<i32> {
    let positions = args.position_ids.read::<i32>();
    let row = |t: usize| {
        let complete = if t < args.num_tokens {
            (positions[t] as usize + 1) / ratio
        } else {
            0
        };
        (0..INDEX_TOPK).map(move |c| if c < complete { c as i32 } else { -1 })
    };
    (0..TOKENS).flat_map(row).collect()
}

/// Relative difference of the streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamsRule {
    pub(crate) diff_thd: f64,
    pub(crate) hard: f64,
}

impl BlockReference {
    /// Compares streams (live rows; the tail is zero) and window pool.
    pub(crate) fn compare(&self, args: &BlockArgs, streams: StreamsRule, kv_rtol: f64) -> Vec<TensorVerdict> {
        let rule = RatioReldiff::new(streams.diff_thd, 0.005)
            .hard_limit(streams.hard)
            .valid_rows(args.num_tokens, 0, Tail::Zero);
        vec![
            rule.compare("x_out", &args.x_out, &self.x_out),
            pool_rule(1e-4, kv_rtol, 0.005, args.num_tokens).compare(
                "kv_cache",
                &args.kv_cache,
                &self.kv_cache,
                &[&args.ori_slot_mapping.read::<i64>()],
            ),
        ]
    }
}

/// Rule of a pool: tolerance on the mapped rows, finite everywhere, and nothing mapped beyond the live tokens.
pub(crate) fn pool_rule(atol: f64, rtol: f64, ratio: f64, live: usize) -> MappedPool {
    MappedPool::allclose(atol, rtol, ratio, FiniteRule::Everywhere).active(live)
}
