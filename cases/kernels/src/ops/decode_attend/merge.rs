//! Merge of the blocks of a token with the sink, and the turn back of the rotary lanes.

use half::bf16;
use ring_runtime::{Block, DType, Halted, Orchestrator, Task, TaskBuilder, TaskId, Tensor, Unit};

use super::attend::StatTensors;
use super::{DecodeArgs, HEAD_TILE, HEAD_TILES, TOKENS, matrix};
use crate::creates::{Created, Creates};
use crate::model::{GROUP_DIM, GROUP_HEADS, HEAD_DIM, NOPE_DIM, O_GROUPS, ROPE_DIM};
use crate::tile::{cast, math};

/// Rotary lanes of a head tile.
const TILE_LANES: usize = HEAD_TILE * ROPE_DIM;

/// Cosines and sines spread over the lanes, signed for the turn back, and each lane's partner.
#[derive(Debug)]
pub(crate) struct RopeLanes {
    cos_il: Created,
    sin_signed: Created,
    /// Partners of the lanes of a head tile; the variant without it swaps neighbours directly.
    swap_idx: Option<Created>,
}

impl RopeLanes {
    /// Declares the tables, with an index of partners if it has a name and dimensions.
    pub(crate) fn declare(creates: &mut Creates, swap_idx: Option<(&'static str, [usize; 2])>) -> Self {
        Self {
            cos_il: matrix(creates, "rope_cos_il", DType::F32, TOKENS, ROPE_DIM),
            sin_signed: matrix(creates, "rope_sin_signed", DType::F32, TOKENS, ROPE_DIM),
            swap_idx: swap_idx.map(|(name, dims)| creates.tensor(name, DType::I32, &dims)),
        }
    }

    fn tensors(&self) -> RopeTensors {
        RopeTensors {
            cos_il: self.cos_il.tensor(),
            sin_signed: self.sin_signed.tensor(),
            swap_idx: self.swap_idx.as_ref().map(Created::tensor),
        }
    }
}

#[derive(Clone, Debug)]
struct RopeTensors {
    cos_il: Tensor,
    sin_signed: Tensor,
    swap_idx: Option<Tensor>,
}

/// Fills the tables, in `blocks` blocks of tokens; the index belongs to the first.
pub(crate) fn rope_cs(
    o: &mut Orchestrator<'_>,
    args: &DecodeArgs,
    lanes: &RopeLanes,
    blocks: usize,
) -> Result<TaskId, Halted> {
    let (cos, sin, lanes) = (args.rope_cos.clone(), args.rope_sin.clone(), lanes.tensors());
    let task = Task::new("rope_cs", Unit::Vector)
        .blocks(blocks)
        .input(&cos)
        .input(&sin)
        .write(&lanes.cos_il)
        .write(&lanes.sin_signed);
    let task = lanes.swap_idx.iter().fold(task, TaskBuilder::write);
    let task = task.run(move |block| {
        let n = TOKENS / blocks;
        let rows = block.index() * n..(block.index() + 1) * n;
        let (cos, sin) = (
            block.read::<bf16>(&cos.rows(rows.clone())),
            block.read::<bf16>(&sin.rows(rows.clone())),
        );
        let mut cos_il = block.write::<f32>(&lanes.cos_il.rows(rows.clone()));
        let mut sin_signed = block.write::<f32>(&lanes.sin_signed.rows(rows));
        for i in 0..n * ROPE_DIM {
            let (t, j) = (i / ROPE_DIM, i % ROPE_DIM);
            let pair = t * ROPE_DIM + j / 2;
            let sign = if j % 2 == 0 { 1.0 } else { -1.0 };
            cos_il[i] = cos[pair].to_f32();
            sin_signed[i] = sign * sin[pair].to_f32();
        }
        if let (0, Some(swap)) = (block.index(), &lanes.swap_idx) {
            for (i, partner) in block.write::<i32>(swap).iter_mut().enumerate() {
                *partner = (i ^ 1) as i32;
            }
        }
    });
    Ok(o.submit(task)?.id)
}

/// What a merging block works on.
#[derive(Clone, Debug)]
struct Merge {
    stats: StatTensors,
    sink: Tensor,
    lanes: RopeTensors,
    /// [128, 4096] bf16: head `8g + hh` of token `t` in row `g · 8 + t`, from column `hh · 512`.
    out: Tensor,
}

impl Merge {
    fn new(args: &DecodeArgs, stats: &StatTensors, lanes: &RopeLanes, packed: &Tensor) -> Self {
        Self {
            stats: stats.clone(),
            sink: args.attn_sink.clone(),
            lanes: lanes.tensors(),
            out: packed.reshape(&[O_GROUPS * TOKENS, GROUP_DIM]),
        }
    }

    fn task(&self, blocks: usize) -> TaskBuilder {
        let task = self.stats.read_by(Task::new("merge_norm", Unit::Vector).blocks(blocks));
        let task = task
            .input(&self.sink)
            .input(&self.lanes.cos_il)
            .input(&self.lanes.sin_signed);
        self.lanes.swap_idx.iter().fold(task, TaskBuilder::input)
    }

    /// Merges the heads of a tile of token `t`.
    fn run(&self, block: &Block<'_>, t: usize, tile: usize) {
        let blocks = self.stats.blocks;
        let first = self.stats.first_row(t, tile, 0);
        let rows = first..first + blocks * HEAD_TILE;
        let max = block.read::<f32>(&self.stats.max.rows(rows.clone()));
        let sum = block.read::<f32>(&self.stats.sum.rows(rows.clone()));
        let parts = block.tile::<f32>(&self.stats.out.rows(rows));
        let sink = block.read::<f32>(&self.sink);
        let mut row = [0f32; HEAD_DIM];
        let mut rotary = [0f32; TILE_LANES];
        for i in 0..HEAD_TILE {
            let (mut m, mut l) = (max[i], sum[i]);
            row.copy_from_slice(parts.tile().row(i));
            for b in (i + HEAD_TILE..blocks * HEAD_TILE).step_by(HEAD_TILE) {
                let top = if max[b] > m { max[b] } else { m };
                let (alpha, beta) = (math::exp(m - top), math::exp(max[b] - top));
                l = alpha * l + beta * sum[b];
                math::blend(&mut row, alpha, parts.tile().row(b), beta);
                m = top;
            }
            let h = tile * HEAD_TILE + i;
            math::divide(&mut row, l + math::exp(sink[h] - m));
            let mut out = block.write::<bf16>(&self.lanes_of(t, h, 0..NOPE_DIM));
            cast::narrow(&row[..NOPE_DIM], &mut out);
            rotary[i * ROPE_DIM..][..ROPE_DIM].copy_from_slice(&row[NOPE_DIM..]);
        }
        let turned = self.turn_back(block, t, &rotary);
        for (i, turned) in turned.chunks(ROPE_DIM).enumerate() {
            let mut out = block.write::<bf16>(&self.lanes_of(t, tile * HEAD_TILE + i, NOPE_DIM..HEAD_DIM));
            cast::narrow(turned, &mut out);
        }
    }

    fn lanes_of(&self, t: usize, h: usize, lanes: std::ops::Range<usize>) -> Tensor {
        let (row, column) = (h / GROUP_HEADS * TOKENS + t, h % GROUP_HEADS * HEAD_DIM + lanes.start);
        self.out.view(&[row, column], &[1, lanes.len()])
    }

    fn turn_back(&self, block: &Block<'_>, t: usize, lanes: &[f32; TILE_LANES]) -> [f32; TILE_LANES] {
        let [cos, sin] =
            [&self.lanes.cos_il, &self.lanes.sin_signed].map(|table| block.read::<f32>(&table.rows(t..t + 1)));
        let mut turned = [0f32; TILE_LANES];
        let mut turn = |partner: &dyn Fn(usize) -> usize| {
            for (i, turned) in turned.iter_mut().enumerate() {
                let j = i % ROPE_DIM;
                *turned = lanes[i] * cos[j] + lanes[partner(i)] * sin[j];
            }
        };
        match &self.lanes.swap_idx {
            Some(swap) => {
                let swap = block.read::<i32>(swap);
                turn(&|i| swap[i] as usize);
            }
            None => turn(&|i| i ^ 1),
        }
        turned
    }
}

/// Submits one launch over all tokens and head tiles; `after` is waited for.
///
/// `packed` is [128, 4096] bf16, or the same as [1024, 512] head rows.
pub(crate) fn merge_all(
    o: &mut Orchestrator<'_>,
    args: &DecodeArgs,
    stats: &StatTensors,
    lanes: &RopeLanes,
    packed: &Tensor,
    after: &[TaskId],
) -> Result<TaskId, Halted> {
    let merge = Merge::new(args, stats, lanes, packed);
    let task = merge.task(TOKENS * HEAD_TILES).write(packed);
    let task = after.iter().fold(task, |task, id| task.after(*id));
    let task = task.run(move |block| merge.run(block, block.index() / HEAD_TILES, block.index() % HEAD_TILES));
    Ok(o.submit(task)?.id)
}

/// Submits the launch of one head tile, one block per token. `packed` is [128, 4096] bf16; rows `16 · tile..` are written.
pub(crate) fn merge_tile(
    o: &mut Orchestrator<'_>,
    args: &DecodeArgs,
    stats: &StatTensors,
    lanes: &RopeLanes,
    packed: &Tensor,
    tile: usize,
) -> Result<TaskId, Halted> {
    const ROWS: usize = HEAD_TILE / GROUP_HEADS * TOKENS;
    let merge = Merge::new(args, stats, lanes, packed);
    let task = merge.task(TOKENS).write(&packed.rows(tile * ROWS..(tile + 1) * ROWS));
    let task = task.run(move |block| merge.run(block, block.index(), tile));
    Ok(o.submit(task)?.id)
}
