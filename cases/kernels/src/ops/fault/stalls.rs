//! Programs that stop making progress.

use ring_runtime::faults::{self, TaskFault};
use ring_runtime::{DType, Halted, Orchestrator, ScopeMode, Task, TaskBuilder, TensorSpec, Unit};

fn task(name: &'static str) -> TaskBuilder {
    Task::new(name, Unit::Scalar)
}

/// A block that ends only when the run has been given up.
fn endless(builder: TaskBuilder) -> Task {
    builder.run(|block| {
        while !block.stopping() {
            std::thread::yield_now();
        }
    })
}

/// The program reads a tensor whose creator doesn't end.
pub(super) fn tensor_wait(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        let never = o.submit(endless(task("never").output(TensorSpec::new(
            "never",
            DType::I32,
            &[1],
        ))))?;
        o.read_scalar::<i32>(&never.outputs[0], 0).map(|_| ())
    })
}

/// A block that doesn't come back: S1.
pub(super) fn running(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| o.submit(endless(task("endless"))).map(|_| ()))
}

/// Blocks are ready and no core looks for them: S3.
pub(super) fn deaf_cores(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    faults::deafen_cores(o);
    o.scope(ScopeMode::Auto, |o| o.submit(task("unheard").run(|_| ())).map(|_| ()))
}

/// A producer completes and its consumers are never told: S4.
pub(super) fn lost_release(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        // The producer is still busy when its consumer is linked, else there would be nothing to wait for.
        let busy = task("producer");
        let busy = faults::inject(busy, TaskFault::KeepConsumersWaiting)
            .run(|_| std::thread::sleep(std::time::Duration::from_millis(50)));
        let producer = o.submit(busy)?.id;
        o.submit(task("consumer").after(producer).run(|_| ())).map(|_| ())
    })
}

/// The last block ends and nobody notices: no class fits.
pub(super) fn lost_completion(o: &mut Orchestrator<'_>) -> Result<(), Halted> {
    o.scope(ScopeMode::Auto, |o| {
        let lost = faults::inject(task("lost"), TaskFault::LoseCompletion).run(|_| ());
        o.submit(lost).map(|_| ())
    })
}
