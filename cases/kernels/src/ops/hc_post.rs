//! Hyper-connection post-mix: a sub-layer's output row back into the four residual streams.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Task, Tensor, Unit};

use crate::compare::{Allclose, TensorVerdict};
use crate::fixture::{Dist, Fixture, poison};
use crate::golden;
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{HC_DIM, HIDDEN, STREAMS};
use crate::ops::mode_tokens;
use crate::ops::tapped::Tapped;
use crate::scopes::BodyScopes;
use crate::simd::vectorised;
use crate::tile::cast;

/// Tokens of a block.
const TOKENS: usize = 4;
/// Tokens of a block that only fills.
const FILL_TOKENS: usize = 16;
/// Blocks that share a fill tile.
const FILL_SPLIT: usize = 4;

/// Arguments of both forms.
#[derive(Clone, Debug)]
pub(crate) struct HcPostArgs {
    /// Sub-layer output, [T, 7168] bf16.
    pub(crate) x: Tensor,
    /// Streams before the sub-layer, [T, 4, 7168] f32.
    pub(crate) residual: Tensor,
    /// Gates, [T, 4] f32.
    pub(crate) post: Tensor,
    /// Mixing matrices, [T, 16] f32.
    pub(crate) comb: Tensor,
    /// Streams after it, [T, 4, 7168] f32, written.
    pub(crate) y: Tapped,
}

vectorised! {
    /// `y = x · gate + Σᵢ streams[i] · mix[i]`, ascending, every product and sum rounded.
    fn expand(x: &[f32], gate: f32, streams: [&[f32]; STREAMS], mix: [f32; STREAMS], y: &mut [f32]) {
        for (d, y) in y.iter_mut().enumerate() {
            let mut sum = x[d] * gate;
            for i in 0..STREAMS {
                sum += streams[i][d] * mix[i];
            }
            *y = sum;
        }
    }
}

/// One launch over the first `live` tokens: four tokens and one output stream a block.
fn launch(o: &mut Orchestrator<'_>, name: &'static str, args: &HcPostArgs, live: usize) -> Result<(), Halted> {
    let a = args.clone();
    let tokens = a.x.dims()[0];
    let flat = move |streams: &Tensor| streams.reshape(&[tokens, HC_DIM]);
    let residual = flat(&a.residual);
    let task = Task::new(name, Unit::Vector)
        .blocks(live.div_ceil(TOKENS) * STREAMS)
        .input(&a.x)
        .input(&a.residual)
        .input(&a.post)
        .input(&a.comb)
        .write(&a.y)
        .run(move |block| {
            let (first, out) = (block.index() / STREAMS * TOKENS, block.index() % STREAMS);
            // The guard of the prefill form: the last tile may reach beyond the live tokens.
            let rows = first..live.min(first + TOKENS);
            let x = block.tile::<bf16>(&a.x.rows(rows.clone()));
            let residual = block.tile::<f32>(&residual.rows(rows.clone()));
            let post = block.tile::<f32>(&a.post.rows(rows.clone()));
            let comb = block.tile::<f32>(&a.comb.rows(rows.clone()));
            let part = |y: &Tensor| flat(y).view(&[first, out * HIDDEN], &[rows.len(), HIDDEN]);
            let mut y = block.tile_mut::<f32>(&part(&a.y));
            let mut wide = vec![0f32; HIDDEN];
            for t in 0..rows.len() {
                cast::widen(x.tile().row(t), &mut wide);
                let streams = residual.tile().row(t);
                let streams = [0, 1, 2, 3].map(|i| &streams[i * HIDDEN..(i + 1) * HIDDEN]);
                let mix = [0, 1, 2, 3].map(|i| comb.tile().row(t)[STREAMS * i + out]);
                expand(&wide, post.tile().row(t)[out], streams, mix, y.tile_mut().row_mut(t));
            }
            drop(y);
            a.y.keep(part);
        });
    o.submit(task)?;
    Ok(())
}

/// The form in which all tokens are live.
pub(crate) fn hc_post(o: &mut Orchestrator<'_>, args: &HcPostArgs) -> Result<(), Halted> {
    launch(o, "hc_post", args, args.x.dims()[0])
}

/// The form of the prefill programs: rows from `num_tokens` on are filled with zero. Its launches stand in `if` bodies.
pub(crate) fn hc_post_prefill(
    o: &mut Orchestrator<'_>,
    bodies: BodyScopes,
    args: &HcPostArgs,
    num_tokens: usize,
) -> Result<(), Halted> {
    let tokens = args.x.dims()[0];
    let live = num_tokens.min(tokens);
    if live > 0 {
        bodies.body(o, |o| launch(o, "hc_post_prefill", args, live))?;
    }
    if live < tokens {
        bodies.body(o, |o| inactive_pad(o, &args.y, live))?;
    }
    Ok(())
}

fn inactive_pad(o: &mut Orchestrator<'_>, y: &Tapped, live: usize) -> Result<(), Halted> {
    let tokens = y.dims()[0];
    let target = y.clone();
    let width = HC_DIM / FILL_SPLIT;
    let task = Task::new("hc_post_inactive_pad", Unit::Vector)
        .blocks((tokens - live).div_ceil(FILL_TOKENS) * FILL_SPLIT)
        .write(y)
        .run(move |block| {
            let first = live + block.index() / FILL_SPLIT * FILL_TOKENS;
            let count = FILL_TOKENS.min(tokens - first);
            let column = block.index() % FILL_SPLIT * width;
            let part = |y: &Tensor| y.reshape(&[tokens, HC_DIM]).view(&[first, column], &[count, width]);
            block.tile_mut::<f32>(&part(&target)).tile_mut().fill(0.0);
            target.keep(part);
        });
    o.submit(task)?;
    Ok(())
}

/// The standalone kernel: all tokens live.
#[derive(Clone, Copy, Debug)]
pub struct HcPost;

static INFO: KernelInfo = KernelInfo {
    name: "hc_post",
    summary: "Hyper-connection post-mix: a sub-layer's output back into four residual streams",
    level: Level::L2,
    ranks: 1,
    params: &[
        ParamSpec::choice(
            "mode",
            &["decode", "prefill"],
            "Run at 8 tokens (decode) or at 128 (prefill)",
        ),
        ParamSpec::tolerance("rtol", 0.0, 1e-2, 1e-3, "Relative tolerance of y"),
        ParamSpec::tolerance("atol", 0.0, 1e-2, 1e-3, "Absolute tolerance of y"),
    ],
    outputs: &[OutputInfo {
        name: "y",
        dtype: DType::F32,
        shape: &[8, 4, 7168],
        rule: "allclose(rtol=1e-3, atol=1e-3)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.0,
        int8: 0.0,
    },
    ring_bytes: Some([0; 4]),
};

impl Kernel for HcPost {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let tokens = mode_tokens(params);
        let fixture = Fixture::new(seed);
        let streams = [tokens, STREAMS, HIDDEN];
        let post = fixture.real("post", DType::F32, &[tokens, STREAMS], Dist::normal(1.0, 0.0));
        for gate in post.write::<f32>().iter_mut() {
            *gate = 2.0 / (1.0 + (-*gate).exp());
        }
        let comb = fixture.real(
            "comb",
            DType::F32,
            &[tokens, STREAMS * STREAMS],
            Dist::uniform(0.1, 1.1),
        );
        for row in comb.write::<f32>().chunks_mut(STREAMS) {
            let sum: f32 = row.iter().sum();
            row.iter_mut().for_each(|v| *v /= sum);
        }
        Ok(Box::new(Case {
            args: HcPostArgs {
                x: fixture.real("x", DType::Bf16, &[tokens, HIDDEN], Dist::normal(0.05, 0.0)),
                residual: fixture.real("residual", DType::F32, &streams, Dist::normal(0.05, 0.0)),
                post,
                comb,
                y: (&Tensor::zeros(DType::F32, &streams)).into(),
            },
            rule: Allclose::new(params.tolerance("atol"), params.tolerance("rtol")),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    args: HcPostArgs,
    rule: Allclose,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let a = &self.args;
            let y = golden::hc_post::hc_post(
                &a.x.read::<bf16>(),
                &a.residual.read::<f32>(),
                &a.post.read::<f32>(),
                &a.comb.read::<f32>(),
                a.x.dims()[0],
            );
            Tensor::from_vec(a.y.dims(), y)
        })
    }
}

impl Instance for Case {
    fn reset(&self) {
        poison(&self.args.y);
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| hc_post(o, &self.args))
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        vec![self.rule.compare("y", &self.args.y, self.reference())]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
