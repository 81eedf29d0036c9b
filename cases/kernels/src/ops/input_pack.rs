//! Token embedding: the row of each token's id, widened and copied to the four residual streams.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use super::{DECODE_MODE, mode_tokens};
use crate::compare::{Allclose, TensorVerdict};
use crate::fixture::{Dist, Fixture, poison};
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, Params, SetupError, entry_scope};
use crate::model::{HIDDEN, STREAMS};
use crate::ops::tapped::Tapped;
use crate::tile::cast;

/// Columns of a work item.
const CHUNK: usize = 512;
/// Work items of a token.
const CHUNKS: usize = HIDDEN / CHUNK;
/// Blocks that take turns at the work items.
const BLOCKS: usize = 48;

/// Submits the launch: `x_hc` [T, 4, 7168] f32 from `input_ids` \[T\] i64 and `embed` [vocab, 7168] bf16; ids beyond the vocabulary are clamped into it.
pub(crate) fn input_pack(
    o: &mut Orchestrator<'_>,
    input_ids: &Tensor,
    embed: &Tensor,
    x_hc: impl Into<Tapped>,
) -> Result<(), Halted> {
    let (ids, table, target) = (input_ids.clone(), embed.clone(), x_hc.into());
    let (tokens, last) = (target.dims()[0], embed.dims()[0] as i64 - 1);
    let task = Task::new("pack_x_hc", Unit::Vector)
        .blocks(BLOCKS)
        .input(input_ids)
        .input(embed)
        .write(&target)
        .run(move |block| {
            let ids = block.read::<i64>(&ids);
            for item in (block.index()..tokens * CHUNKS).step_by(BLOCKS) {
                let (t, column) = (item / CHUNKS, item % CHUNKS * CHUNK);
                let row = ids[t].clamp(0, last) as usize;
                let source = block.tile::<bf16>(&table.view(&[row, column], &[1, CHUNK]));
                let part = |x: &Tensor| x.view(&[t, 0, column], &[1, STREAMS, CHUNK]);
                let mut streams = block.tile_mut::<f32>(&part(&target));
                for h in 0..STREAMS {
                    cast::widen(source.tile().row(0), streams.tile_mut().row_mut(h));
                }
                drop(streams);
                target.keep(part);
            }
        });
    o.submit(task)?;
    Ok(())
}

/// The standalone kernel.
#[derive(Clone, Copy, Debug)]
pub struct InputPack;

static INFO: KernelInfo = KernelInfo {
    name: "input_pack",
    summary: "Token embedding, copied to the four residual streams",
    level: Level::L2,
    ranks: 1,
    params: &[DECODE_MODE],
    outputs: &[OutputInfo {
        name: "x_hc",
        dtype: DType::F32,
        shape: &[8, 4, 7168],
        rule: "allclose(rtol=0, atol=0)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.0,
        int8: 0.0,
    },
    ring_bytes: Some([0; 4]),
};

/// Rows of the standalone table.
const VOCAB: usize = 256;
/// Ids within the table, at its edges and beyond them, repeated over the tokens.
const IDS: [i64; 8] = [-1, 0, 17, 255, 256, 263, 2, 1];

impl Kernel for InputPack {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let fixture = Fixture::new(seed);
        let ids = IDS.iter().copied().cycle().take(tokens).collect();
        Ok(Box::new(Case {
            input_ids: Tensor::from_vec(&[tokens], ids),
            embed: fixture.real("embed_weight", DType::Bf16, &[VOCAB, HIDDEN], Dist::normal(1.0, 0.0)),
            x_hc: Tensor::zeros(DType::F32, &[tokens, STREAMS, HIDDEN]),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    input_ids: Tensor,
    embed: Tensor,
    x_hc: Tensor,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let x = crate::golden::input_pack::input_pack(&self.input_ids.read::<i64>(), &self.embed.read::<bf16>());
            Tensor::from_vec(self.x_hc.dims(), x)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.x_hc);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| input_pack(o, &self.input_ids, &self.embed, &self.x_hc))
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        vec![Allclose::new(0.0, 0.0).compare("x_hc", &self.x_hc, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
