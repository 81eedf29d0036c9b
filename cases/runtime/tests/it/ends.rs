//! Runs that end early for other reasons, and what remains of the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ring_runtime::{Panicked, RunEnd, Runtime};

use crate::support::{config, limits, runtime, vector};

#[test]
fn a_panic_in_a_block_ends_the_run() {
    let mut runtime = runtime(4096, 16, 16);
    let report = runtime.run(|o| {
        let task = vector("careless")
            .blocks(4)
            .run(|block| assert!(block.index() != 3, "three is bad"));
        o.submit(task)?;
        Ok(())
    });
    let RunEnd::Panicked(Panicked {
        name, block, message, ..
    }) = report.end
    else {
        panic!("{:?}", report.end)
    };
    assert_eq!((name, block, message.as_str()), ("careless", 3, "three is bad"));
    assert!(runtime.run(|o| o.submit(vector("fine").run(|_| ())).map(drop)).passed());
}

#[test]
fn a_panic_in_the_program_comes_out_of_run() {
    let mut runtime = runtime(4096, 16, 16);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.run(|o| {
            o.submit(vector("fine").run(|_| ()))?;
            panic!("no such shape")
        })
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"no such shape"));
    assert!(runtime.run(|o| o.submit(vector("fine").run(|_| ())).map(drop)).passed());
}

#[test]
fn a_stopped_run_and_all_later_ones_end() {
    let mut runtime = runtime(4096, 16, 16);
    let handle = runtime.stop_handle();
    let running = Arc::new(AtomicBool::new(false));
    let stopper = std::thread::spawn({
        let running = Arc::clone(&running);
        move || {
            while !running.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            handle.stop();
        }
    });
    let report = runtime.run(|o| {
        let running = Arc::clone(&running);
        let task = vector("endless").run(move |block| {
            running.store(true, Ordering::Release);
            while !block.stopping() {
                std::thread::yield_now();
            }
        });
        o.submit(task).map(drop)
    });
    stopper.join().unwrap();
    assert_eq!(report.end, RunEnd::Stopped);
    assert_eq!(runtime.run(|_| Ok(())).end, RunEnd::Stopped);
    assert!(!runtime.poisoned());
}

#[test]
fn a_core_that_never_comes_back_poisons_the_runtime() {
    let mut config = config(limits(4096, 16, 16), 1);
    config.timeouts.grace = Duration::from_millis(20);
    let mut runtime = Runtime::new(config).unwrap();
    let release = Arc::new(AtomicBool::new(false));
    let report = runtime.run(|o| {
        let release = Arc::clone(&release);
        let task = vector("deaf to the stop flag").run(move |_| {
            while !release.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        o.submit(task).map(drop)
    });
    assert!(matches!(report.end, RunEnd::Stalled(_)), "{:?}", report.end);
    assert!(runtime.poisoned());
    assert_eq!(runtime.run(|_| Ok(())).end, RunEnd::Poisoned);
    drop(runtime);
    release.store(true, Ordering::Release);
}

#[test]
fn every_run_starts_afresh() {
    let mut runtime = runtime(4096, 16, 16);
    let program = |o: &mut ring_runtime::Orchestrator<'_>| {
        (0..10).try_for_each(|_| o.submit(vector("one").run(|_| ())).map(drop))
    };
    let reports: Vec<_> = (0..50).map(|_| runtime.run(program)).collect();
    for report in &reports {
        assert!(report.passed(), "{:?}", report.end);
        assert_eq!((report.tasks, report.rings), (reports[0].tasks, reports[0].rings));
    }
    assert_eq!(reports[0].tasks.retired, 10);
}
