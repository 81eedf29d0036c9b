//! Runs a graph through the embedded runtime: real orchestrator, real cores, real heaps.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ring_runtime::{
    DType, Halted, Orchestrator, RingLimits, Runtime, RuntimeConfig, ScopeMode, Task, TaskId, Tensor, TensorSpec,
    Timeouts, Unit,
};

use crate::graph::{Graph, Kernel, Mode, Op, Output, TaskOp};
use crate::verdict::Verdict;

/// Rings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Rings {
    pub(crate) heap: [u64; 4],
    pub(crate) window: [u32; 4],
    pub(crate) dep_pool: [u32; 4],
}

/// Runs `graph` and says how it ended. `alloc` is the backstop of allocations.
pub(crate) fn execute(graph: &Graph, rings: &Rings, alloc: Duration) -> Verdict {
    let limits = [0, 1, 2, 3].map(|r| {
        RingLimits::new(rings.heap[r], rings.window[r], rings.dep_pool[r]).expect("the rows hold valid configurations")
    });
    // Held tasks each keep a core busy; one more makes sure that everything else can finish.
    let cores = NonZeroUsize::new(graph.held_blocks() + 1).expect("one more than something");
    let config = RuntimeConfig::new(limits, cores).with_timeouts(Timeouts {
        alloc,
        ..Timeouts::DEFAULT
    });
    let mut runtime = Runtime::new(config).expect("the rows' heaps can be mapped");
    let gates: Arc<[AtomicBool; 8]> = Arc::default();
    let mut player = Player {
        tensors: vec![None; graph.n_tensors],
        tasks: vec![None; graph.n_tasks],
        gates: Arc::clone(&gates),
        at: 0,
    };
    let report = runtime.run(|orchestrator| {
        let result = player.play(orchestrator, &graph.ops);
        // All gates open when the program ends.
        gates.iter().for_each(|gate| gate.store(true, Ordering::Release));
        result
    });
    Verdict::of(&report, player.at)
}

struct Player {
    tensors: Vec<Option<Tensor>>,
    tasks: Vec<Option<TaskId>>,
    gates: Arc<[AtomicBool; 8]>,
    /// The operation that is being executed.
    at: usize,
}

impl Player {
    fn play(&mut self, o: &mut Orchestrator<'_>, ops: &[Op]) -> Result<(), Halted> {
        for (at, op) in ops.iter().enumerate() {
            self.at = at;
            match op {
                Op::Scope { mode: Mode::Auto } => o.begin_scope(ScopeMode::Auto)?,
                Op::Scope { mode: Mode::Manual } => o.begin_scope(ScopeMode::Manual)?,
                Op::End => o.end_scope()?,
                Op::Alloc { task, out } => {
                    let specs: Vec<TensorSpec> = out.iter().map(|out| TensorSpec::bytes(out.bytes)).collect();
                    let tensors = o.alloc(&specs)?;
                    self.tasks[*task] = tensors[0].owner();
                    self.define(out, tensors);
                }
                Op::Task(task) => self.submit(o, task)?,
                Op::View { t, of, off, len } => {
                    self.tensors[*t] = Some(self.tensor(*of).view(&[*off], &[*len]));
                }
                Op::Open { gate } => self.gates[*gate].store(true, Ordering::Release),
                Op::Wait { t } => {
                    let tensor = self.tensor(*t).clone();
                    o.read_scalar::<i8>(&tensor, 0)?;
                }
            }
        }
        Ok(())
    }

    fn submit(&mut self, o: &mut Orchestrator<'_>, op: &TaskOp) -> Result<(), Halted> {
        let mut task = Task::new("task", Unit::Vector).blocks(op.blocks);
        for t in &op.inputs {
            task = task.input(self.tensor(*t));
        }
        for out in &op.out {
            task = task.output(TensorSpec::bytes(out.bytes));
        }
        for t in &op.inout {
            task = task.inout(self.tensor(*t));
        }
        for t in &op.write {
            task = task.write(self.tensor(*t));
        }
        for dep in &op.deps {
            let producer = self.tasks[dep.task].expect("a dependency was submitted before");
            task = if dep.retain {
                task.after(producer)
            } else {
                task.after_order_only(producer)
            };
        }
        let task = match op.kernel {
            Kernel::Dummy => task.dependency_only(),
            Kernel::Aiv => {
                let (gates, hold, delay) = (Arc::clone(&self.gates), op.hold, Duration::from_micros(op.delay_us));
                task.run(move |block| {
                    if !delay.is_zero() {
                        std::thread::sleep(delay);
                    }
                    while hold.is_some_and(|gate| !gates[gate].load(Ordering::Acquire)) && !block.stopping() {
                        std::thread::sleep(Duration::from_micros(20));
                    }
                })
            }
        };
        let submitted = o.submit(task)?;
        self.tasks[op.task] = Some(submitted.id);
        self.define(&op.out, submitted.outputs);
        Ok(())
    }

    fn define(&mut self, out: &[Output], tensors: Vec<Tensor>) {
        for (out, tensor) in out.iter().zip(tensors) {
            debug_assert_eq!(tensor.dtype(), DType::I8);
            self.tensors[out.t] = Some(tensor);
        }
    }

    fn tensor(&self, t: usize) -> &Tensor {
        self.tensors[t]
            .as_ref()
            .expect("tensors are defined before they are used")
    }
}
