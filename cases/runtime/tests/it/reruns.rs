//! A runtime runs one program after the other; nothing of a run reaches into the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ring_runtime::{DType, RunEnd, Runtime, Task, Tensor, TensorSpec, Timeouts, Unit};

use crate::support::{config, limits, runtime, vector, verdict};

/// The last core of a task with several blocks leaves a ticket behind, and task 0 of the next run
/// has the same slot and number.
#[test]
fn a_ticket_left_by_one_run_starts_nothing_in_the_next() {
    let mut runtime = runtime(1 << 20, 64, 64);
    let blocks = Arc::new(AtomicUsize::new(0));
    for run in 1..=3000 {
        let report = runtime.run(|orch| {
            let blocks = Arc::clone(&blocks);
            let task = Task::new("count", Unit::Vector).blocks(3);
            orch.submit(task.run(move |_| {
                blocks.fetch_add(1, Ordering::Relaxed);
            }))?;
            Ok(())
        });
        assert!(matches!(report.end, RunEnd::Passed), "run {run}: {:?}", report.end);
        assert_eq!(blocks.load(Ordering::Relaxed), 3 * run);
    }
}

#[test]
fn a_run_that_panicked_leaves_the_runtime_usable() {
    // Printing the first backtrace of a process may take longer than the quick limits.
    let config = config(limits(1 << 20, 64, 64), 2).with_timeouts(Timeouts::DEFAULT);
    let mut runtime = Runtime::new(config).unwrap();
    let x = Tensor::zeros(DType::I32, &[8]).named("x");
    for _ in 0..10 {
        let tensor = x.clone();
        let report = runtime.run(|orch| {
            let task = Task::new("clash", Unit::Vector).blocks(2).inout(&x);
            orch.submit(task.run(move |block| {
                let _all = block.write::<i32>(&tensor);
                assert!(block.index() == 0, "block 1 gives up");
            }))?;
            Ok(())
        });
        // Whether block 1 gives up by itself or by the conflict with block 0 is a matter of timing.
        let RunEnd::Panicked(panicked) = report.end else {
            panic!("{:?}", report.end)
        };
        assert_eq!(panicked.name, "clash");

        let report = runtime.run(|orch| {
            let spec = TensorSpec::new("copy", DType::I32, &[8]);
            let from = x.clone();
            let task = Task::new("copy", Unit::Vector).input(&x).output(spec);
            let copy = orch.submit(task.run(move |block| {
                block
                    .write::<i32>(&block.output(0))
                    .copy_from_slice(&block.read::<i32>(&from));
            }))?;
            assert_eq!(orch.read_scalar::<i32>(&copy.outputs[0], 7)?, 0);
            Ok(())
        });
        assert!(matches!(report.end, RunEnd::Passed), "{:?}", report.end);
    }
}

/// Its owner's number names another task now, or none; that would pin the wrong slot.
#[test]
fn an_output_of_an_earlier_run_is_refused() {
    let mut runtime = runtime(1 << 20, 64, 64);
    let mut kept = None;
    runtime.run(|orch| {
        kept = orch.alloc(&[TensorSpec::new("x", DType::I32, &[8])])?.pop();
        Ok(())
    });
    let report = runtime.run(|orch| {
        orch.submit(vector("late").input(&kept.unwrap()).dependency_only())?;
        Ok(())
    });
    assert_eq!(verdict(&report), (5, "invalid_args", 0));
}
