//! Where outputs lie, and when their bytes come back.

use ring_runtime::{DType, ScopeMode, TensorSpec};

use crate::support::{fatal, runtime, vector, verdict};

#[test]
fn depth_chooses_the_ring() {
    let mut runtime = runtime(1 << 16, 16, 16);
    let report = runtime.run(|o| {
        for depth in 0..6 {
            assert_eq!((o.depth(), o.ring().index()), (depth, depth.min(3)));
            let tensors = o.alloc(&[TensorSpec::new("x", DType::F32, &[4])])?;
            assert_eq!(tensors[0].ring(), Some(o.ring()));
            o.begin_scope(ScopeMode::Auto)?;
        }
        Ok(())
    });
    assert!(report.passed(), "{:?}", report.end);
    assert_eq!(report.rings.map(|ring| ring.tasks_submitted), [1, 1, 1, 3]);
    assert_eq!(report.rings.map(|ring| ring.heap_high_water), [1024, 1024, 1024, 3072]);
}

#[test]
fn rings_have_sizes_of_their_own_issue_1029() {
    use crate::support::config;
    use ring_runtime::{RingLimits, Runtime};

    let limits = |heap| RingLimits::new(heap, 16, 16).unwrap();
    let rings = [limits(1024), limits(8192), limits(1024), limits(1024)];
    let mut runtime = Runtime::new(config(rings, 1)).unwrap();
    assert_eq!(runtime.config().rings, rings);
    let eight = [TensorSpec::bytes(8192)];
    let passes = runtime.run(|o| o.scope(ScopeMode::Auto, |o| o.alloc(&eight).map(drop)));
    assert!(passes.passed(), "{:?}", passes.end);
    assert_eq!(
        passes.rings[1].heap_high_water, 8192,
        "a fill to the last byte is no wrap to zero"
    );
    let fails = runtime.run(|o| o.alloc(&eight).map(drop));
    assert_eq!(verdict(&fails), (2, "heap", 0));
}

#[test]
fn outputs_of_one_task_follow_each_other_in_steps_of_1024() {
    let report = runtime(1 << 16, 16, 16).run(|o| {
        let outputs = o.alloc(&[TensorSpec::bytes(1), TensorSpec::bytes(1025), TensorSpec::bytes(0)])?;
        assert_eq!(outputs.len(), 3);
        outputs[0].write::<i8>().fill(1);
        outputs[1].write::<i8>().fill(2);
        assert_eq!(outputs[0].read::<i8>()[0], 1, "no overlap");
        Ok(())
    });
    assert_eq!(report.rings[0].heap_high_water, 3072);
}

#[test]
fn nothing_is_freed_before_its_scope_ends() {
    let mut runtime = runtime(2048, 16, 16);
    let report = runtime.run(|o| {
        for _ in 0..100 {
            o.scope(ScopeMode::Auto, |o| o.alloc(&[TensorSpec::bytes(2048)]).map(drop))?;
        }
        o.scope(ScopeMode::Auto, |o| {
            o.alloc(&[TensorSpec::bytes(2048)])?;
            o.alloc(&[TensorSpec::bytes(1024)]).map(drop)
        })
    });
    assert_eq!(verdict(&report), (2, "heap", 1));
    let fatal = fatal(&report);
    let head = fatal.head.expect("the first allocation is alive");
    assert_eq!((head.id.local(), head.name, head.scope_released), (100, "alloc", false));
    assert_eq!(fatal.scope.unwrap().oldest, Some(head.id));
    assert_eq!(report.rings[1].heap_high_water, 2048);
}

#[test]
fn the_orchestrator_waits_for_bytes_that_a_running_task_holds() {
    let mut runtime = runtime(2048, 16, 16);
    let report = runtime.run(|o| {
        for _ in 0..200 {
            o.scope(ScopeMode::Auto, |o| {
                let task = vector("fill")
                    .output(TensorSpec::bytes(2048))
                    .run(|block| block.write::<i8>(&block.output(0)).fill(1));
                o.submit(task).map(drop)
            })?;
        }
        Ok(())
    });
    assert!(report.passed(), "{:?}", report.end);
    assert_eq!((report.tasks.blocks, report.rings[1].heap_high_water), (200, 2048));
}

#[test]
fn scope_peaks_are_reported() {
    let report = runtime(1 << 16, 16, 16).run(|o| {
        o.scope(ScopeMode::Auto, |o| o.alloc(&[TensorSpec::bytes(5000)]).map(drop))?;
        o.alloc(&[TensorSpec::bytes(1)]).map(drop)
    });
    let peaks: Vec<_> = report
        .scopes
        .largest
        .iter()
        .map(|scope| (scope.depth, scope.ring.index(), scope.heap_peak, scope.tasks))
        .collect();
    assert_eq!(peaks, [(0, 0, 1024, 1), (1, 1, 5120, 1)]);
}
