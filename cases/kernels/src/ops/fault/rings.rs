//! Programs that ask a ring, a pool or the tensor map for more than it has, or the runtime for what it never gives.
//!
//! The small rings that make them fail are the suite's; a program only says what it needs of them.

use ring_runtime::{
    DType, Halted, Orchestrator, ScopeMode, Signals, Task, TaskBuilder, TaskId, Tensor, TensorSpec, Unit,
};

/// No machine that runs this has as many cores.
const MORE_THAN_CORES: usize = 1 << 16;

fn task(name: &'static str) -> TaskBuilder {
    Task::new(name, Unit::Scalar)
}

/// Tasks for ever, in one scope: any window is too small.
pub(super) fn scope(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        loop {
            o.submit(task("one_more").dependency_only())?;
        }
    })
}

/// Two halves of more than the heap, both held by one scope: the second can never be placed.
pub(super) fn heap(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        loop {
            o.alloc(&[TensorSpec::new("held", DType::F32, &[48 * 1024 / 4])])?;
        }
    })
}

/// One request of more than the whole heap: nothing is live, so nothing can be proven, and only the clock ends the wait.
pub(super) fn heap_backstop(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        o.alloc(&[TensorSpec::new("too_large", DType::I8, &[1 << 20])])
            .map(|_| ())
    })
}

/// Three live tasks on ring 3, two scopes deep, so that no single scope holds them all: a window of 4 has no slot for a fourth.
pub(super) fn slots(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        o.scope(ScopeMode::Auto, |o| {
            o.scope(ScopeMode::Auto, |o| {
                o.submit(task("outer").dependency_only())?;
                o.submit(task("outer").dependency_only())?;
                o.scope(ScopeMode::Auto, |o| {
                    o.submit(task("inner").dependency_only())?;
                    o.submit(task("inner").dependency_only()).map(|_| ())
                })
            })
        })
    })
}

/// `n` tasks that don't complete before the run is given up.
fn held(o: &mut Orchestrator<'_>, n: usize) -> Result<Vec<TaskId>, Halted> {
    let never = Signals::new(1);
    let gate = task("held").run(move |block| {
        // Halted is what ends this wait.
        let _ = block.wait_signal(&never, 0, ring_runtime::Cmp::Ge, 1);
    });
    let gate = o.submit(gate)?.id;
    (0..n)
        .map(|_| Ok(o.submit(task("behind").after(gate).dependency_only())?.id))
        .collect()
}

fn fan_in(o: &mut Orchestrator<'_>, n: usize) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        let producers = held(o, n)?;
        let consumer = producers.into_iter().fold(task("fan_in"), TaskBuilder::after);
        o.submit(consumer.dependency_only()).map(|_| ())
    })
}

/// A task with more producers than a pool of 8 has entries.
pub(super) fn dep_pool(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    fan_in(o, 9)
}

/// A task with more producers than its slot and a spill pool of 8 hold.
pub(super) fn fanin_pool(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    fan_in(o, 64 + 9)
}

/// More writes than the tensor map has entries, all in one open scope.
pub(super) fn tensormap(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        let rows = Tensor::zeros(DType::I8, &[70_000, 1]);
        for first in (0..70_000).step_by(28) {
            let write = |task: TaskBuilder, row: usize| task.write(&rows.rows(row..row + 1));
            let writes = (first..first + 28).fold(task("write_rows"), write);
            o.submit(writes.dependency_only())?;
        }
        Ok(())
    })
}

/// An allocation of one output more than is possible.
pub(super) fn invalid_args(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        let outputs: Vec<TensorSpec> = (0..33).map(|_| TensorSpec::new("one", DType::F32, &[1])).collect();
        o.alloc(&outputs).map(|_| ())
    })
}

/// More blocks that start together than there are cores.
pub(super) fn sync_start(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        o.submit(task("together").blocks(MORE_THAN_CORES).sync_start().run(|_| ()))
            .map(|_| ())
    })
}
