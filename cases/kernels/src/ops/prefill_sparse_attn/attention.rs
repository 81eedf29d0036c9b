//! Gather, scores and values per block of keys, merge with the sink, inverse rotary.

use half::bf16;
use ring_runtime::{Block, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

use super::{KEY_BLOCKS, KEYS, SLOTS, SparseArgs, SparseScratch, TOKENS};
use crate::creates::Created;
use crate::model::{GROUP_HEADS, HEAD_DIM, HEADS, INDEX_TOPK, NOPE_DIM, PAGE, ROPE_DIM, WINDOW};
use crate::tile::gemm::{Rhs, Store, gemm};
use crate::tile::{cast, math};

/// Score of a slot that holds no row.
const MASK: f32 = -3.402_823_4e38;
/// Tokens of a gather block.
const GATHER_TOKENS: usize = 4;
/// Tokens of a bias block.
const BIAS_TOKENS: usize = 16;
/// Heads of a rotary block.
const ROPE_HEADS: usize = 4;

/// The tasks that complete the packed attention output: what the projection waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attended {
    pub(super) merge_norm: TaskId,
    pub(super) rope: TaskId,
}

pub(super) fn submit(o: &mut Orchestrator<'_>, args: &SparseArgs, scratch: &SparseScratch) -> Result<Attended, Halted> {
    let first = rope_cs(o, args, scratch)?;
    gather_kv(o, args, scratch, first)?;
    build_bias(o, args, scratch, first)?;
    qk_pv(o, args, scratch)?;
    let merge_norm = merge_norm(o, args, scratch)?;
    let rope = rope(o, args, scratch)?;
    Ok(Attended { merge_norm, rope })
}

/// Spreads the cosines and sines over the lanes, signed for the turn back.
fn rope_cs(o: &mut Orchestrator<'_>, args: &SparseArgs, scratch: &SparseScratch) -> Result<TaskId, Halted> {
    const BLOCKS: usize = 2;
    let (cos, sin) = (args.rope_cos.clone(), args.rope_sin.clone());
    let [cos_il, sin_signed] = [&scratch.cos_il, &scratch.sin_signed].map(Created::tensor);
    let task = Task::new("rope_cs", Unit::Vector)
        .blocks(BLOCKS)
        .input(&cos)
        .input(&sin)
        .write(&cos_il)
        .write(&sin_signed)
        .run(move |block| {
            let n = TOKENS / BLOCKS;
            let rows = block.index() * n..(block.index() + 1) * n;
            let (cos, sin) = (
                block.read::<bf16>(&cos.rows(rows.clone())),
                block.read::<bf16>(&sin.rows(rows.clone())),
            );
            let mut cos_il = block.write::<f32>(&cos_il.rows(rows.clone()));
            let mut sin_signed = block.write::<f32>(&sin_signed.rows(rows));
            for i in 0..n * ROPE_DIM {
                let (t, j) = (i / ROPE_DIM, i % ROPE_DIM);
                let pair = t * ROPE_DIM + j / 2;
                cos_il[i] = cos[pair].to_f32();
                sin_signed[i] = if j % 2 == 0 {
                    sin[pair].to_f32()
                } else {
                    -sin[pair].to_f32()
                };
            }
        });
    Ok(o.submit(task)?.id)
}

/// Where the row of a slot lies.
struct Indices<'a> {
    swa: &'a [i32],
    cmp: &'a [i32],
    table: &'a [i32],
}

impl Indices<'_> {
    /// Index of slot `k` of token `t` as it is given: a physical row of the window, or a logical compressed row.
    fn raw(&self, t: usize, k: usize) -> i32 {
        if k < WINDOW {
            self.swa[t * WINDOW + k]
        } else {
            self.cmp[t * INDEX_TOPK + k - WINDOW]
        }
    }

    /// Physical row of compressed row `c`.
    fn compressed(&self, c: usize) -> usize {
        self.table[c / PAGE] as usize * PAGE + c % PAGE
    }
}

fn gather_kv(
    o: &mut Orchestrator<'_>,
    args: &SparseArgs,
    scratch: &SparseScratch,
    first: TaskId,
) -> Result<(), Halted> {
    let a = args.clone();
    let target = scratch.kv.tensor();
    let pool_rows = |pool: &Tensor| pool.reshape(&[pool.len() / HEAD_DIM, HEAD_DIM]);
    let (ori, cmp) = (pool_rows(&a.ori_kv), pool_rows(&a.cmp_kv));
    let task = Task::new("gather_kv", Unit::Vector)
        .blocks(TOKENS / GATHER_TOKENS * KEY_BLOCKS)
        .input(&a.swa_indices)
        .input(&a.cmp_indices)
        .input(&a.cmp_block_table)
        .input(&a.ori_kv)
        .input(&a.cmp_kv)
        .write(&target)
        .after(first)
        .run(move |block| {
            let (token0, key_block) = (block.index() / KEY_BLOCKS * GATHER_TOKENS, block.index() % KEY_BLOCKS);
            let (swa, cmp_indices) = (block.read::<i32>(&a.swa_indices), block.read::<i32>(&a.cmp_indices));
            let table = block.read::<i32>(&a.cmp_block_table);
            let indices = Indices {
                swa: &swa,
                cmp: &cmp_indices,
                table: &table,
            };
            let (ori, cmp) = (block.tile::<bf16>(&ori), block.tile::<bf16>(&cmp));
            for t in token0..token0 + GATHER_TOKENS {
                let first = t * SLOTS + key_block * KEYS;
                let mut rows = block.tile_mut::<bf16>(&target.rows(first..first + KEYS));
                let mut rows = rows.tile_mut();
                for k in 0..KEYS {
                    let raw = if t < a.num_tokens {
                        indices.raw(t, key_block * KEYS + k)
                    } else {
                        -1
                    };
                    let row = rows.row_mut(k);
                    match usize::try_from(raw) {
                        Err(_) => row.fill(bf16::ZERO),
                        Ok(r) if key_block == 0 => row.copy_from_slice(ori.tile().row(r)),
                        Ok(c) => row.copy_from_slice(cmp.tile().row(indices.compressed(c))),
                    }
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

fn build_bias(
    o: &mut Orchestrator<'_>,
    args: &SparseArgs,
    scratch: &SparseScratch,
    first: TaskId,
) -> Result<(), Halted> {
    let (swa, cmp, target) = (
        args.swa_indices.clone(),
        args.cmp_indices.clone(),
        scratch.bias.tensor(),
    );
    let task = Task::new("build_bias", Unit::Vector)
        .blocks(TOKENS / BIAS_TOKENS)
        .input(&swa)
        .input(&cmp)
        .write(&target)
        .after(first)
        .run(move |block| {
            let rows = block.index() * BIAS_TOKENS..(block.index() + 1) * BIAS_TOKENS;
            let (swa, cmp) = (block.read::<i32>(&swa), block.read::<i32>(&cmp));
            let indices = Indices {
                swa: &swa,
                cmp: &cmp,
                table: &[],
            };
            let mut bias = block.write::<f32>(&target.rows(rows.clone()));
            for (t, bias) in rows.zip(bias.chunks_mut(SLOTS)) {
                for (k, bias) in bias.iter_mut().enumerate() {
                    *bias = if indices.raw(t, k) >= 0 { 0.0 } else { MASK };
                }
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Per token and block of keys: largest score, sum of the weights, and weighted values, of every head.
fn qk_pv(o: &mut Orchestrator<'_>, args: &SparseArgs, scratch: &SparseScratch) -> Result<(), Halted> {
    let [kv, bias, mi, li, oi] = [
        &scratch.kv,
        &scratch.bias,
        &scratch.blk_mi,
        &scratch.blk_li,
        &scratch.blk_oi,
    ]
    .map(Created::tensor);
    let (q, num_tokens) = (args.q.reshape(&[TOKENS * HEADS, HEAD_DIM]), args.num_tokens);
    let task = Task::new("qk_pv", Unit::Mixed)
        .blocks(TOKENS)
        .input(&args.q)
        .input(&kv)
        .input(&bias)
        .write(&mi)
        .write(&li)
        .write(&oi)
        .run(move |block| {
            let t = block.index();
            if t >= num_tokens {
                return;
            }
            let scale = (HEAD_DIM as f32).sqrt().recip();
            let q = block.tile::<bf16>(&q.rows(t * HEADS..(t + 1) * HEADS));
            let bias = block.read::<f32>(&bias.rows(t..t + 1));
            let (mut scores, mut weights) = (vec![0f32; HEADS * KEYS], vec![bf16::ZERO; HEADS * KEYS]);
            for key_block in 0..KEY_BLOCKS {
                let first = t * SLOTS + key_block * KEYS;
                let keys = block.tile::<bf16>(&kv.rows(first..first + KEYS));
                let rows = (t * KEY_BLOCKS + key_block) * HEADS..(t * KEY_BLOCKS + key_block + 1) * HEADS;
                let mut mi = block.write::<f32>(&mi.rows(rows.clone()));
                let mut li = block.write::<f32>(&li.rows(rows.clone()));
                let mut oi = block.tile_mut::<f32>(&oi.rows(rows));
                let mut tile = ring_runtime::TileMut::new(&mut scores, HEADS, KEYS);
                gemm(q.tile(), Rhs::Nk(keys.tile()), &mut tile, Store::Overwrite);
                let bias = &bias[key_block * KEYS..(key_block + 1) * KEYS];
                for h in 0..HEADS {
                    let row = &mut scores[h * KEYS..(h + 1) * KEYS];
                    math::scale_bias(row, scale, bias);
                    let parts = math::softmax_parts(row);
                    (mi[h], li[h]) = (parts.max, parts.sum);
                    cast::narrow(row, &mut weights[h * KEYS..(h + 1) * KEYS]);
                }
                let weights = ring_runtime::Tile::new(&weights, HEADS, KEYS);
                gemm(weights, Rhs::Kn(keys.tile()), &mut oi.tile_mut(), Store::Overwrite);
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Window of the packed output for head `h`: rows of group h / 8, columns of the head's `lanes`.
fn packed(o_packed: &Tensor, tokens: std::ops::Range<usize>, h: usize, lanes: std::ops::Range<usize>) -> Tensor {
    let row = h / GROUP_HEADS * TOKENS + tokens.start;
    let column = h % GROUP_HEADS * HEAD_DIM + lanes.start;
    o_packed.view(&[row, column], &[tokens.len(), lanes.len()])
}

fn merge_norm(o: &mut Orchestrator<'_>, args: &SparseArgs, scratch: &SparseScratch) -> Result<TaskId, Halted> {
    let [mi, li, oi, stage, out] = [
        &scratch.blk_mi,
        &scratch.blk_li,
        &scratch.blk_oi,
        &scratch.rope_stage,
        &scratch.o_packed,
    ]
    .map(Created::tensor);
    let (sink, num_tokens) = (args.attn_sink.clone(), args.num_tokens);
    let task = Task::new("merge_norm", Unit::Vector)
        .blocks(TOKENS)
        .input(&mi)
        .input(&li)
        .input(&oi)
        .input(&sink)
        .write(&stage)
        .write(&out)
        .run(move |block| {
            let t = block.index();
            let mut stage = block.tile_mut::<f32>(&stage.rows(t * HEADS..(t + 1) * HEADS));
            let mut row = vec![0f32; HEAD_DIM];
            let rows = t * KEY_BLOCKS * HEADS..(t + 1) * KEY_BLOCKS * HEADS;
            let live = (t < num_tokens).then(|| {
                let blocks = block.tile::<f32>(&oi.rows(rows.clone()));
                (
                    block.read::<f32>(&mi.rows(rows.clone())),
                    block.read::<f32>(&li.rows(rows)),
                    blocks,
                )
            });
            let sink = block.read::<f32>(&sink);
            for h in 0..HEADS {
                if let Some((mi, li, oi)) = &live {
                    merge(h, mi, li, |b| oi.tile().row(b * HEADS + h), sink[h], &mut row);
                }
                store(block, &out, t, h, &row);
                stage.tile_mut().row_mut(h).copy_from_slice(&row[NOPE_DIM..]);
            }
        });
    Ok(o.submit(task)?.id)
}

/// Joins the key blocks of head `h`, ascending, and divides by the sum with the sink.
fn merge<'a>(h: usize, mi: &[f32], li: &[f32], oi: impl Fn(usize) -> &'a [f32], sink: f32, row: &mut [f32]) {
    let (mut m, mut l) = (mi[h], li[h]);
    row.copy_from_slice(oi(0));
    for b in 1..KEY_BLOCKS {
        let (m_b, l_b) = (mi[b * HEADS + h], li[b * HEADS + h]);
        let top = if m_b > m { m_b } else { m };
        let (alpha, beta) = (math::exp(m - top), math::exp(m_b - top));
        l = alpha * l + beta * l_b;
        math::blend(row, alpha, oi(b), beta);
        m = top;
    }
    math::divide(row, l + math::exp(sink - m));
}

/// The lanes that are not rotated.
fn store(block: &Block<'_>, out: &Tensor, t: usize, h: usize, row: &[f32]) {
    let mut out = block.write::<bf16>(&packed(out, t..t + 1, h, 0..NOPE_DIM));
    cast::narrow(&row[..NOPE_DIM], &mut out);
}

fn rope(o: &mut Orchestrator<'_>, args: &SparseArgs, scratch: &SparseScratch) -> Result<TaskId, Halted> {
    const HALVES: usize = 2;
    let [stage, cos_il, sin_signed, out] = [
        &scratch.rope_stage,
        &scratch.cos_il,
        &scratch.sin_signed,
        &scratch.o_packed,
    ]
    .map(Created::tensor);
    let num_tokens = args.num_tokens;
    let task = Task::new("rope", Unit::Vector)
        .blocks(HEADS / ROPE_HEADS * HALVES)
        .input(&stage)
        .input(&cos_il)
        .input(&sin_signed)
        .write(&out)
        .run(move |block| {
            let n = TOKENS / HALVES;
            let (head0, first) = (block.index() / HALVES * ROPE_HEADS, block.index() % HALVES * n);
            let stage = block.tile::<f32>(&stage);
            let tables = [&cos_il, &sin_signed].map(|table| block.tile::<f32>(&table.rows(first..first + n)));
            let mut turned = [0f32; ROPE_DIM];
            for h in head0..head0 + ROPE_HEADS {
                let mut out = block.tile_mut::<bf16>(&packed(&out, first..first + n, h, NOPE_DIM..HEAD_DIM));
                for t in 0..n {
                    let lanes = stage.tile().row((first + t) * HEADS + h);
                    let [cos, sin] = [0, 1].map(|i| tables[i].tile().row(t));
                    for j in 0..ROPE_DIM {
                        // The angles of tokens that do not attend may be anything, and zero times NaN is not zero.
                        let value = lanes[j] * cos[j] + lanes[j ^ 1] * sin[j];
                        turned[j] = if first + t < num_tokens { value } else { 0.0 };
                    }
                    cast::narrow(&turned, out.tile_mut().row_mut(t));
                }
            }
        });
    Ok(o.submit(task)?.id)
}
