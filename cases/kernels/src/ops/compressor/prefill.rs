//! One prefill tile of a compressor: which windows it completes, pooling over state and tile, and the state's update.

use half::bf16;
use ring_runtime::{Block, Halted, Orchestrator, Task, TaskId, Tensor, Unit};

use super::pool::{Share, softmax_rows};
use super::{ABSENT, Online, normalise, with_weights};
use crate::creates::Created;
use crate::fixture::compressor::Form;
use crate::fixture::{CompressorWeights, Profile, RopeTables, prefill};
use crate::golden::compressor::CompressorIn;
use crate::model::{PREFILL_TOKENS, ROPE_DIM};
use crate::tile::math;
use crate::tile::rotary::{Turn, rotate};

/// Positions, pools and tables of a tile of one request.
#[derive(Clone, Debug)]
pub(crate) struct TileArgs {
    pub(crate) form: Form,
    /// Normalised activations, [128, 7168] bf16.
    pub(crate) x: Tensor,
    /// Rolling state, [pages, page, 2·out] f32, updated.
    pub(crate) state: Tensor,
    /// Its pages, \[columns\] i32.
    pub(crate) state_table: Tensor,
    /// State row of each token, \[128\] i64, −1 for none.
    pub(crate) state_slots: Tensor,
    /// Position of each token, \[128\] i32.
    pub(crate) positions: Tensor,
    /// Pool row that each token completes, \[128\] i64, −1 for none.
    pub(crate) slots: Tensor,
    /// Cosines of all positions, [16384, 64] bf16.
    pub(crate) freqs_cos: Tensor,
    /// Sines of all positions, [16384, 64] bf16.
    pub(crate) freqs_sin: Tensor,
    /// Tokens that are live.
    pub(crate) num_tokens: usize,
}

impl TileArgs {
    /// Arguments of `tile`, with the rotary tables of its form.
    pub(crate) fn new(
        form: Form,
        tile: prefill::Tile,
        x: Tensor,
        state: Tensor,
        state_table: Vec<i32>,
        state_slots: Tensor,
        slots: Tensor,
    ) -> Self {
        let freqs = RopeTables::of(Profile::Compressed);
        Self {
            form,
            x,
            state,
            state_table: Tensor::from_vec(&[state_table.len()], state_table),
            state_slots,
            positions: tile.position_ids(),
            slots,
            freqs_cos: freqs.cos,
            freqs_sin: freqs.sin,
            num_tokens: tile.num_tokens,
        }
    }

    /// The state as rows.
    fn state_rows(&self) -> Tensor {
        let width = self.form.state_width();
        self.state.reshape(&[self.state.len() / width, width])
    }
}

/// Positions at which windows are completed and the rows that they go to, in token order: [1, n] i32 each.
#[derive(Debug)]
pub(crate) struct WriteMap {
    pub(crate) positions: Created,
    pub(crate) rows: Created,
}

/// Submits the scan of the live tokens; entries beyond what it finds are position 0 and row −1.
pub(crate) fn write_map(
    o: &mut Orchestrator<'_>,
    name: &'static str,
    args: &TileArgs,
    map: &WriteMap,
) -> Result<(), Halted> {
    let (slots, positions, num_tokens) = (args.slots.clone(), args.positions.clone(), args.num_tokens);
    let (to_positions, to_rows) = (map.positions.tensor(), map.rows.tensor());
    let task = Task::new(name, Unit::Scalar)
        .input(&slots)
        .input(&positions)
        .write(&to_positions)
        .write(&to_rows)
        .run(move |block| {
            let (slots, positions) = (block.read::<i64>(&slots), block.read::<i32>(&positions));
            let (mut to_positions, mut to_rows) = (block.write::<i32>(&to_positions), block.write::<i32>(&to_rows));
            to_positions.fill(0);
            to_rows.fill(-1);
            let found = (0..num_tokens).filter(|&t| slots[t] >= 0);
            for (i, t) in found.enumerate().take(to_rows.len()) {
                to_positions[i] = positions[t];
                to_rows[i] = slots[t] as i32;
            }
        });
    o.submit(task)?;
    Ok(())
}

/// Submits the store of the live tokens' projections, `splits` blocks a token.
///
/// A task that pools the state before this one goes in `after`: readers are not waited for by themselves.
pub(crate) fn store_state(
    o: &mut Orchestrator<'_>,
    (name, splits): (&'static str, usize),
    args: &TileArgs,
    ape: &Tensor,
    (kv, score): (&Tensor, &Tensor),
    after: Option<TaskId>,
) -> Result<TaskId, Halted> {
    let (form, num_tokens, state) = (args.form, args.num_tokens, args.state_rows());
    let [kv_in, score_in, ape_in, slots, positions] =
        [kv, score, ape, &args.state_slots, &args.positions].map(Tensor::clone);
    let columns = form.out() / splits;
    let mut task = Task::new(name, Unit::Vector)
        .blocks(PREFILL_TOKENS * splits)
        .input(kv)
        .input(score)
        .input(ape)
        .input(&slots)
        .input(&positions)
        .inout(&args.state);
    if let Some(after) = after {
        task = task.after(after);
    }
    let task = task.run(move |block| {
        let (t, col0) = (block.index() / splits, block.index() % splits * columns);
        if t >= num_tokens {
            return;
        }
        let (slots, positions) = (block.read::<i64>(&slots), block.read::<i32>(&positions));
        let Ok(row) = usize::try_from(slots[t]) else {
            return;
        };
        let part = |tensor: &Tensor, row: usize, col: usize| tensor.view(&[row, col], &[1, columns]);
        block
            .write::<f32>(&part(&state, row, col0))
            .copy_from_slice(&block.read::<f32>(&part(&kv_in, t, col0)));
        let mut score = block.write::<f32>(&part(&state, row, form.out() + col0));
        score.copy_from_slice(&block.read::<f32>(&part(&score_in, t, col0)));
        let bias = positions[t] as usize % form.ratio;
        math::add(&mut score, &block.read::<f32>(&part(&ape_in, bias, col0)));
    });
    Ok(o.submit(task)?.id)
}

/// The tensors that pooling overlapping windows reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Pooling<'a> {
    pub(crate) ape: &'a Tensor,
    /// Projections of the tile, [128, out] f32.
    pub(crate) kv: &'a Tensor,
    pub(crate) score: &'a Tensor,
    pub(crate) map: &'a WriteMap,
    /// [32, head] f32, a row per completed window.
    pub(crate) pooled: &'a Tensor,
    /// Columns of a block.
    pub(crate) columns: usize,
}

/// Submits the pooling of overlapping windows over the state as it was, with the tile's own rows in place of it.
///
/// One block per possible window and column block; rows beyond what the live tokens can complete are not written.
pub(crate) fn pool_overlapping(
    o: &mut Orchestrator<'_>,
    name: &'static str,
    args: &TileArgs,
    p: &Pooling<'_>,
) -> Result<TaskId, Halted> {
    let Form { ratio, head, .. } = args.form;
    let source = Source {
        args: args.clone(),
        state: args.state_rows(),
        ape: p.ape.clone(),
        kv: p.kv.clone(),
        score: p.score.clone(),
    };
    let (ends, rows) = (p.map.positions.tensor(), p.map.rows.tensor());
    let (target, columns) = (p.pooled.clone(), p.columns);
    let splits = head / columns;
    let task = Task::new(name, Unit::Vector)
        .blocks(args.num_tokens.div_ceil(ratio) * splits)
        .input(&args.state)
        .input(&args.state_table)
        .input(&args.positions)
        .input(p.kv)
        .input(p.score)
        .input(p.ape)
        .input(&ends)
        .input(&rows)
        .write(p.pooled)
        .run(move |block| {
            let (i, col0) = (block.index() / splits, block.index() % splits * columns);
            let mut pooled = block.write::<f32>(&target.view(&[i, col0], &[1, columns]));
            if block.read::<i32>(&rows)[i] < 0 {
                pooled.fill(0.0);
                return;
            }
            let first = block.read::<i32>(&ends)[i] - (2 * ratio as i32 - 1);
            let slot = |s: usize| {
                let half = s / ratio * head;
                source.slot(block, first + s as i32, half + col0, columns)
            };
            let (kv, score) = slot(2 * ratio - 1);
            let mut online = Online::start(&kv, &score);
            // The first window of a sequence has none before it.
            let from = if first < 0 { ratio } else { 0 };
            for s in from..2 * ratio - 1 {
                let (kv, score) = slot(s);
                online.add(&kv, &score);
            }
            online.finish(&mut pooled);
        });
    Ok(o.submit(task)?.id)
}

/// Where the entries of a window come from.
struct Source {
    args: TileArgs,
    state: Tensor,
    ape: Tensor,
    kv: Tensor,
    score: Tensor,
}

impl Source {
    /// Key-values and scores of `columns` lanes of a position: the tile's own, else the state's, else none of weight.
    fn slot(&self, block: &Block<'_>, position: i32, col: usize, columns: usize) -> (Vec<f32>, Vec<f32>) {
        let TileArgs { form, num_tokens, .. } = self.args;
        let part = |tensor: &Tensor, row: usize, col: usize| {
            block.read::<f32>(&tensor.view(&[row, col], &[1, columns])).to_vec()
        };
        let positions = block.read::<i32>(&self.args.positions);
        if let Some(t) = positions[..num_tokens].iter().position(|p| *p == position) {
            let mut score = part(&self.score, t, col);
            math::add(&mut score, &part(&self.ape, position as usize % form.ratio, col));
            return (part(&self.kv, t, col), score);
        }
        let page = block.read::<i32>(&self.args.state_table)[position as usize / form.page];
        match usize::try_from(page) {
            Ok(page) => {
                let row = page * form.page + position as usize % form.page;
                (part(&self.state, row, col), part(&self.state, row, form.out() + col))
            }
            Err(_) => (vec![0.0; columns], vec![ABSENT; columns]),
        }
    }
}

/// Submits the pooling of one whole window over the state, which holds the tile's rows already, `columns` of its lanes a block.
///
/// `pooled` is inout: without a completed window its first row stays as it is.
pub(crate) fn pool_whole(
    o: &mut Orchestrator<'_>,
    name: &'static str,
    args: &TileArgs,
    map: &WriteMap,
    pooled: &Tensor,
    columns: usize,
) -> Result<(), Halted> {
    let (form, state, table) = (args.form, args.state_rows(), args.state_table.clone());
    let (ends, rows, target) = (map.positions.tensor(), map.rows.tensor(), pooled.clone());
    let task = Task::new(name, Unit::Vector)
        .blocks(form.head / columns)
        .input(&args.state)
        .input(&table)
        .input(&ends)
        .input(&rows)
        .inout(pooled)
        .run(move |block| {
            if block.read::<i32>(&rows)[0] < 0 {
                return;
            }
            let col0 = block.index() * columns;
            let first = block.read::<i32>(&ends)[0] as usize + 1 - form.ratio;
            let table = block.read::<i32>(&table);
            let (mut kv, mut score) = (vec![0f32; form.ratio * columns], vec![0f32; form.ratio * columns]);
            for i in 0..form.ratio {
                // A page that is not there counts as zeros.
                let Ok(page) = usize::try_from(table[(first + i) / form.page]) else {
                    continue;
                };
                let row = page * form.page + (first + i) % form.page;
                for (part, col) in [(&mut kv, col0), (&mut score, form.out() + col0)] {
                    part[i * columns..][..columns]
                        .copy_from_slice(&block.read::<f32>(&state.view(&[row, col], &[1, columns])));
                }
            }
            let mut pooled = block.write::<f32>(&target.view(&[0, col0], &[1, columns]));
            softmax_rows(&kv, &mut score, &mut pooled, Share::Quotient);
        });
    o.submit(task)?;
    Ok(())
}

/// RMSNorm of pooled rows with their gain, and the turn of their last lanes at the start of their windows.
#[derive(Clone, Debug)]
pub(crate) struct NormRope {
    form: Form,
    gain: Tensor,
    tables: [Tensor; 2],
}

impl NormRope {
    pub(crate) fn new(args: &TileArgs, gain: &Tensor) -> Self {
        Self {
            form: args.form,
            gain: gain.clone(),
            tables: [args.freqs_cos.clone(), args.freqs_sin.clone()],
        }
    }

    /// What a task that calls [`NormRope::apply`] reads.
    pub(crate) fn declare(&self, task: ring_runtime::TaskBuilder) -> ring_runtime::TaskBuilder {
        task.input(&self.gain).input(&self.tables[0]).input(&self.tables[1])
    }

    /// Works in place on the row of the window that ends at `end`; a row that belongs to none (`slot` < 0) is not turned.
    pub(crate) fn apply(&self, block: &Block<'_>, row: &mut [f32], end: i32, slot: i32) {
        normalise(row, &block.read::<bf16>(&self.gain));
        if slot < 0 {
            return;
        }
        let start = end as usize + 1 - self.form.ratio;
        let angles = [0, 1].map(|i| {
            let row = block.read::<bf16>(&self.tables[i].view(&[start, 0], &[1, ROPE_DIM / 2]));
            row.iter().map(|v| v.to_f32()).collect::<Vec<f32>>()
        });
        rotate(
            &mut row[self.form.head - ROPE_DIM..],
            &angles[0],
            &angles[1],
            Turn::Forward,
        );
    }
}

/// The reference: updates `state` (as it was before the tile) and gives the completed rows with where they go.
pub(crate) fn reference(args: &TileArgs, weights: &CompressorWeights, state: &Tensor) -> Vec<(usize, Vec<f32>)> {
    with_weights(weights, |weights| {
        CompressorIn {
            form: args.form,
            weights,
            x: &args.x.read::<bf16>(),
            positions: &args.positions.read::<i32>(),
            state_slots: &args.state_slots.read::<i64>(),
        }
        .prefill(
            &mut state.write::<f32>(),
            &args.state_table.read::<i32>(),
            (&args.freqs_cos.read::<bf16>(), &args.freqs_sin.read::<bf16>()),
            &args.slots.read::<i64>(),
            args.num_tokens,
        )
    })
}
