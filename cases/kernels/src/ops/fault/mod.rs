//! Programs that fail on purpose, one for each way in which a case can end.
//!
//! Nothing here reports anything: each program breaks a rule of the runtime, computes something
//! wrong, or misbehaves as a process, and what watches has to find out. They are what
//! `cases/faults.toml` runs, so that the harness proves its own eyes.

mod process;
mod rings;
mod stalls;
mod values;

use std::any::Any;
use std::time::Duration;

use ring_runtime::{Halted, Orchestrator, RingLimits, RuntimeConfig, Timeouts};

use crate::compare::TensorVerdict;
use crate::kernel::{Gflop, Instance, Kernel, KernelInfo, Level, OutputInfo, ParamSpec, Params, SetupError};
use values::Values;

/// Every fault; the first does nothing wrong.
const KINDS: &[&str] = &[
    "none",
    "scope",
    "heap",
    "heap-backstop",
    "slots",
    "dep-pool",
    "fanin-pool",
    "tensormap",
    "invalid-args",
    "sync-start",
    "explicit",
    "tensor-wait",
    "running",
    "deaf-cores",
    "lost-release",
    "starved",
    "lost-completion",
    "nan",
    "golden-nan",
    "mismatch",
    "no-golden",
    "other-rings",
    "panic",
    "abort",
    "segv",
    "exit",
    "memory",
    "bad-params",
    "hang-setup",
    "hang-run",
    "silence",
    "chatter",
    "leak",
    "slow",
    "stopped",
    "garbled-report",
];

const KIND: ParamSpec = ParamSpec::choice("kind", KINDS, "What goes wrong");

/// Wall-clock limits of these programs: the runtime's own, short enough for a suite that waits for each of them.
const SHORT: Timeouts = Timeouts {
    alloc: Duration::from_millis(500),
    scheduler: Duration::from_secs(2),
    tensor_wait: Duration::from_secs(1),
    grace: Duration::from_millis(500),
};

/// The kernel.
#[derive(Clone, Copy, Debug)]
pub struct Fault;

static INFO: KernelInfo = KernelInfo {
    name: "fault",
    summary: "fails on purpose, in the way that its parameter says",
    level: Level::L2,
    ranks: 1,
    params: &[KIND],
    outputs: &[OutputInfo {
        name: "y",
        dtype: ring_runtime::DType::F32,
        shape: &values::SHAPE,
        rule: "allclose(rtol=1e-5, atol=1e-6)",
    }],
    gflop: Gflop {
        f32: 0.0,
        bf16: 0.0,
        int8: 0.0,
    },
    ring_bytes: None,
};

impl Kernel for Fault {
    fn info(&self) -> &'static KernelInfo {
        &INFO
    }

    fn prepare(&self, params: &Params, seed: u64) -> Result<Box<dyn Instance>, SetupError> {
        let kind = params.word("kind").to_owned();
        if kind == "bad-params" {
            return Err(SetupError::Contradiction {
                kernel: INFO.name,
                reason: "this fault is a set of parameters that don't fit together".to_owned(),
            });
        }
        process::before_the_first_dispatch(&kind);
        Ok(Box::new(Case {
            values: Values::draw(seed),
            kind,
        }))
    }
}

struct Case {
    kind: String,
    values: Values,
}

impl Instance for Case {
    fn configure(&self, asked: RuntimeConfig) -> RuntimeConfig {
        let mut config = asked.with_timeouts(SHORT);
        if self.kind == "other-rings" {
            let half = |ring: RingLimits| RingLimits::new(ring.heap() / 2, ring.task_window(), ring.dep_pool());
            config.rings = config
                .rings
                .map(|ring| half(ring).expect("half of a declared heap is still a heap"));
        }
        config
    }

    fn reset(&self) {
        self.values.reset();
    }

    fn orchestrate(&self, _rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        match self.kind.as_str() {
            "scope" => rings::scope(o),
            "heap" => rings::heap(o),
            "heap-backstop" => rings::heap_backstop(o),
            "slots" => rings::slots(o),
            "dep-pool" => rings::dep_pool(o),
            "fanin-pool" => rings::fanin_pool(o),
            "tensormap" => rings::tensormap(o),
            "invalid-args" => rings::invalid_args(o),
            "sync-start" => rings::sync_start(o),
            "explicit" => Err(o.fail("the program ends itself")),
            "tensor-wait" => stalls::tensor_wait(o),
            "running" => stalls::running(o),
            "deaf-cores" => stalls::deaf_cores(o),
            "lost-release" => stalls::lost_release(o),
            "starved" => Err(ring_runtime::faults::starve(o)),
            "lost-completion" => stalls::lost_completion(o),
            "nan" => self.values.softmax_of_an_empty_row(o),
            "mismatch" => self.values.dropped_dependency(o),
            kind => {
                process::during_a_dispatch(kind);
                self.values.scale(o)
            }
        }
    }

    fn golden(&self) {}

    fn validate(&self) -> Vec<TensorVerdict> {
        vec![self.values.compare(self.kind == "golden-nan")]
    }

    fn has_golden(&self) -> bool {
        self.kind != "no-golden"
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
