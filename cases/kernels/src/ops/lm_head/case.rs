//! The standalone kernel.

use std::any::Any;
use std::sync::OnceLock;

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{LmHeadArgs, LmHeadScratch, LmHeadWindows, ROWS, SAMPLE_PAD, draw_shard, lm_head};
use crate::compare::{Allclose, SampledIds, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{Dist, Fixture, poison};
use crate::golden;
use crate::golden::lm_head::LmHeadInput;
use crate::kernel::{
    Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError, entry_scope,
};
use crate::model::{HIDDEN, RANKS, VOCAB};

/// Hidden rows of a rank.
const HIDDEN_ROWS: usize = 16;

/// The head by itself.
#[derive(Clone, Copy, Debug)]
pub struct LmHead;

static INFO: KernelInfo = KernelInfo {
    name: "lm_head",
    summary: "Vocabulary projection over two ranks, and greedy sampling",
    level: Level::L3,
    ranks: RANKS,
    params: &[
        ParamSpec::int(
            "active_rows",
            0,
            16,
            16,
            "Hidden rows in use; the first eight are sampled, logit rows beyond have none",
        ),
        ParamSpec::tolerance("rtol", 0.0, 1e-2, 1e-3, "Relative tolerance of the logits"),
        ParamSpec::tolerance("atol", 0.0, 1e-2, 1e-3, "Absolute tolerance of the logits"),
    ],
    outputs: &[
        OutputInfo {
            name: "logits",
            dtype: DType::F32,
            shape: &[2, 8, 129_280],
            rule: "allclose(rtol=1e-3, atol=1e-3)",
        },
        OutputInfo {
            name: "sampled_ids",
            dtype: DType::I32,
            shape: &[2, 8, 8],
            rule: "argmax of the program's logits",
        },
    ],
    gflop: Gflop {
        f32: 0.0,
        bf16: 29.7,
        int8: 0.0,
    },
    ring_bytes: Some([0, 4_481_024, 0, 0]),
};

impl Kernel for LmHead {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let active = params.count("active_rows");
        let fixture = Fixture::new(seed);
        let logits = Tensor::zeros(DType::F32, &[RANKS, ROWS, VOCAB]).named("logits");
        let sampled = Tensor::zeros(DType::I32, &[RANKS, ROWS, SAMPLE_PAD]).named("sampled_ids");
        let ranks = std::array::from_fn(|rank| LmHeadArgs {
            hidden: fixture.real(
                &format!("hidden_states.{rank}"),
                DType::Bf16,
                &[HIDDEN_ROWS, HIDDEN],
                Dist::normal(0.1, 0.0),
            ),
            rows: Tensor::from_vec(
                &[ROWS],
                (0..ROWS).map(|i| if i < active { i as i32 } else { -1 }).collect(),
            ),
            weight: draw_shard(fixture, rank),
            logits: logits.rows(rank..rank + 1).reshape(&[ROWS, VOCAB]),
            sampled: sampled.rows(rank..rank + 1).reshape(&[ROWS, SAMPLE_PAD]),
        });
        Ok(Box::new(Case {
            ranks,
            windows: LmHeadWindows::new(),
            logits,
            sampled,
            rule: Allclose::new(params.tolerance("atol"), params.tolerance("rtol")),
            golden: OnceLock::new(),
        }))
    }
}

struct Case {
    ranks: [LmHeadArgs; RANKS],
    windows: LmHeadWindows,
    logits: Tensor,
    sampled: Tensor,
    rule: Allclose,
    golden: OnceLock<Tensor>,
}

impl Case {
    fn reference(&self) -> &Tensor {
        self.golden.get_or_init(|| {
            let guards = self
                .ranks
                .each_ref()
                .map(|a| (a.hidden.read::<bf16>(), a.rows.read::<i32>(), a.weight.read::<bf16>()));
            let inputs = guards
                .each_ref()
                .map(|(hidden, rows, weight)| LmHeadInput { hidden, rows, weight });
            Tensor::from_vec(self.logits.dims(), golden::lm_head::lm_head(&inputs))
        })
    }
}

impl Instance for Case {
    fn ranks(&self) -> usize {
        RANKS
    }

    /// The signals are left as the last dispatch left them: that it cleared them is part of the program.
    fn reset(&self) {
        poison(&self.logits);
        poison(&self.sampled);
        assert!(self.windows.at_rest(), "a dispatch leaves its signals at zero");
    }

    fn recover(&self) {
        self.windows.clear();
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        entry_scope(o, |o| {
            let mut creates = Creates::new();
            let scratch = LmHeadScratch::declare(&mut creates);
            creates.alloc(o)?;
            lm_head(o, rank, 1, &self.ranks[rank], &self.windows, &scratch)
        })
    }

    fn golden(&self) {
        self.reference();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        vec![
            self.rule.compare("logits", &self.logits, self.reference()),
            SampledIds.compare("sampled_ids", &self.sampled, &self.logits),
        ]
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
