//! Tensors that the program keeps out of the tensor map.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ring_runtime::{DType, RunReport, ScopeMode, Tensor, TensorSpec};

use crate::support::{runtime, vector};

/// A writer that ends only once `open` is set, then a reader of what it writes; `handle` makes the
/// handle that both take. Returns the report and whether the reader ran while the writer was held.
fn writer_then_reader(handle: impl Fn(&Tensor) -> Tensor) -> (RunReport, bool) {
    let open = Arc::new(AtomicBool::new(false));
    let early = Arc::new(AtomicBool::new(false));
    let shared = Tensor::zeros(DType::I32, &[4]);
    let report = runtime(4096, 64, 64).run(|o| {
        let (gate, tensor) = (Arc::clone(&open), handle(&shared));
        o.submit(vector("writer").inout(&tensor).run(move |block| {
            while !gate.load(Ordering::Acquire) && !block.stopping() {
                std::thread::yield_now();
            }
        }))?;
        let (gate, seen) = (Arc::clone(&open), Arc::clone(&early));
        let reader = vector("reader").input(&tensor).run(move |_| {
            seen.store(!gate.load(Ordering::Acquire), Ordering::Release);
            gate.store(true, Ordering::Release);
        });
        o.submit(reader)?;
        // A tracked reader waits for the writer, which this opens for; an untracked one is in nobody's way.
        let patience = std::time::Instant::now();
        while !open.load(Ordering::Acquire) && patience.elapsed().as_millis() < 100 {
            std::thread::yield_now();
        }
        open.store(true, Ordering::Release);
        Ok(())
    });
    (report, early.load(Ordering::Acquire))
}

#[test]
fn an_untracked_handle_is_ordered_behind_nobody() {
    let (report, early) = writer_then_reader(|tensor| tensor.clone().untracked());
    assert!(report.passed(), "{:?}", report.end);
    assert!(early, "the reader waited");
    assert_eq!(report.tensormap_high_water, 0);
}

#[test]
fn a_tracked_handle_is_ordered_behind_the_writer() {
    let (report, early) = writer_then_reader(Tensor::clone);
    assert!(report.passed(), "{:?}", report.end);
    assert!(!early, "the reader did not wait");
}

#[test]
fn an_untracked_handle_still_keeps_its_creator() {
    let mut runtime = runtime(2048, 64, 64);
    let report = runtime.run(|o| {
        for round in 0..50 {
            o.scope(ScopeMode::Auto, |o| {
                let made = o.submit(vector("make").output(TensorSpec::new("made", DType::I32, &[1])).run(
                    move |block| {
                        block.write::<i32>(&block.output(0))[0] = round;
                    },
                ))?;
                let made = made.outputs[0].clone().untracked();
                let source = made.clone();
                o.submit(vector("check").input(&made).run(move |block| {
                    assert_eq!(block.read::<i32>(&source)[0], round);
                }))?;
                Ok(())
            })?;
        }
        Ok(())
    });
    assert!(report.passed(), "{:?}", report.end);
}
