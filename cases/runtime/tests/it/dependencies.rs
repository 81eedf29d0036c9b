//! Who waits for whom, and what is kept alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ring_runtime::{DType, Halted, Orchestrator, ScopeMode, Task, TaskBuilder, Tensor, TensorSpec};

use crate::support::{fatal, runtime, vector, verdict};

/// Holds tasks back until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

impl Gate {
    fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn held(&self, task: TaskBuilder) -> Task {
        let gate = self.clone();
        task.run(move |block| {
            while !gate.0.load(Ordering::Acquire) && !block.stopping() {
                std::thread::yield_now();
            }
        })
    }
}

/// Appends `value` to a log when it runs.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<usize>>>);

impl Log {
    fn task(&self, task: TaskBuilder, value: usize) -> Task {
        let log = self.clone();
        task.run(move |_| log.0.lock().expect("no panics under the lock").push(value))
    }

    fn values(&self) -> Vec<usize> {
        self.0.lock().expect("no panics under the lock").clone()
    }
}

#[track_caller]
fn passes(program: impl FnOnce(&mut Orchestrator<'_>) -> Result<(), Halted>) {
    let report = runtime(1 << 16, 64, 64).run(program);
    assert!(report.passed(), "{:?}", report.end);
}

#[test]
fn a_reader_waits_for_the_owner_and_for_every_writer() {
    let (gate, log) = (Gate::default(), Log::default());
    passes(|o| {
        let x = o
            .submit(gate.held(vector("make").output(TensorSpec::bytes(64))))?
            .outputs
            .remove(0);
        o.submit(log.task(vector("change").inout(&x), 1))?;
        o.submit(log.task(vector("change more").inout(&x), 2))?;
        o.submit(log.task(vector("read").input(&x), 3))?;
        assert!(log.values().is_empty());
        gate.open();
        o.wait(&x)
    });
    assert_eq!(log.values(), [1, 2, 3]);
}

#[test]
fn writers_of_other_windows_are_not_waited_for() {
    let (gate, log) = (Gate::default(), Log::default());
    let host = Tensor::zeros(DType::F32, &[8, 16]);
    let (left, right) = (host.view(&[0, 0], &[8, 8]), host.view(&[0, 8], &[8, 8]));
    passes(|o| {
        o.submit(gate.held(vector("left").inout(&left)))?;
        o.submit(log.task(vector("right").inout(&right), 1))?;
        o.wait(&right)?;
        assert_eq!(log.values(), [1]);
        o.submit(log.task(vector("all").input(&host), 2))?;
        gate.open();
        Ok(())
    });
    assert_eq!(log.values(), [1, 2]);
}

#[test]
fn a_manual_scope_knows_explicit_dependencies_only() {
    let (gate, log) = (Gate::default(), Log::default());
    passes(|o| {
        o.scope(ScopeMode::Manual, |o| {
            let made = o.submit(gate.held(vector("make").output(TensorSpec::bytes(64))))?;
            let x = &made.outputs[0];
            let free = o.submit(log.task(vector("free").input(x).output(TensorSpec::bytes(8)), 1))?;
            o.wait(&free.outputs[0])?;
            o.submit(log.task(vector("bound").input(x).after(made.id), 2))?;
            assert_eq!(log.values(), [1]);
            gate.open();
            Ok(())
        })
    });
    assert_eq!(log.values(), [1, 2]);
}

#[test]
fn order_only_waits_without_keeping_alive() {
    let program = |retain: bool| {
        let gate = Gate::default();
        runtime(4096, 64, 64).run(move |o| {
            o.scope(ScopeMode::Auto, |o| {
                let first = o
                    .submit(vector("first").output(TensorSpec::bytes(4096)).dependency_only())?
                    .id;
                let second = vector("second");
                let second = if retain {
                    second.after(first)
                } else {
                    second.after_order_only(first)
                };
                o.submit(gate.held(second)).map(drop)
            })?;
            o.scope(ScopeMode::Auto, |o| o.alloc(&[TensorSpec::bytes(2048)]).map(drop))?;
            gate.open();
            Ok(())
        })
    };
    let report = program(true);
    assert_eq!(verdict(&report), (2, "heap", 1));
    let head = fatal(&report).head.unwrap();
    assert_eq!((head.name, head.consumers, head.consumers_done), ("first", 1, 0));
    assert!(program(false).passed());
}

#[test]
fn a_consumed_or_reused_producer_is_no_edge_issue_1135() {
    let ran = Arc::new(AtomicUsize::new(0));
    passes(|o| {
        let old = o.scope(ScopeMode::Auto, |o| Ok(o.submit(vector("old").dependency_only())?.id))?;
        // Many tasks later the slot of `old` belongs to others.
        for _ in 0..200 {
            let ran = Arc::clone(&ran);
            o.scope(ScopeMode::Auto, |o| {
                let count = move |_: &ring_runtime::Block<'_>| {
                    ran.fetch_add(1, Ordering::Relaxed);
                };
                o.submit(vector("new").after(old).run(count)).map(drop)
            })?;
        }
        Ok(())
    });
    assert_eq!(ran.load(Ordering::Relaxed), 200);
}

#[test]
fn a_fan_in_beyond_64_edges_spills() {
    let mut runtime = runtime(1 << 16, 128, 8);
    let program = |producers: usize| {
        move |o: &mut Orchestrator<'_>| {
            let mut task = vector("join");
            for _ in 0..producers {
                task = task.after(o.submit(vector("one").dependency_only())?.id);
            }
            o.submit(task.dependency_only()).map(drop)
        }
    };
    let report = runtime.run(program(72));
    assert!(report.passed(), "{:?}", report.end);
    assert_eq!(report.rings[0].fanin_high_water, 8);
    assert_eq!(verdict(&runtime.run(program(73))), (4, "fanin_pool", 0));
}

#[test]
fn blocks_of_a_gang_start_together() {
    let mut runtime = runtime(4096, 64, 64);
    let arrived = Arc::new(AtomicUsize::new(0));
    let report = runtime.run(|o| {
        for _ in 0..20 {
            // Each block waits for the other: this ends only if both have a core at the same time.
            let meet = Arc::new(AtomicUsize::new(0));
            let arrived = Arc::clone(&arrived);
            let gang = vector("gang").blocks(2).sync_start().run(move |block| {
                meet.fetch_add(1, Ordering::AcqRel);
                while meet.load(Ordering::Acquire) < 2 && !block.stopping() {
                    std::thread::yield_now();
                }
                arrived.fetch_add(1, Ordering::Relaxed);
            });
            o.submit(gang)?;
            o.submit(vector("other").run(|_| ()))?;
        }
        Ok(())
    });
    assert!(report.passed(), "{:?}", report.end);
    assert_eq!(arrived.load(Ordering::Relaxed), 40);
}
