//! Runs without progress: each class is reached by a real run, and the watchdog finds out by itself.

use ring_runtime::faults::{self, TaskFault};
use ring_runtime::{Halted, Orchestrator, RunEnd, Runtime, Stall, StallClass};

use crate::support::{QUICK, config, limits, vector};

fn runtime() -> Runtime {
    Runtime::new(config(limits(4096, 16, 16), 2)).expect("the configuration is valid")
}

#[track_caller]
fn stall(runtime: &mut Runtime, program: impl FnOnce(&mut Orchestrator<'_>) -> Result<(), Halted>) -> Stall {
    let begin = std::time::Instant::now();
    let report = runtime.run(program);
    assert!(begin.elapsed() >= QUICK.scheduler, "wall-clock, not a number of looks");
    match report.end {
        RunEnd::Stalled(stall) => stall,
        end => panic!("{end:?}"),
    }
}

#[test]
fn s1_names_the_core_that_is_in_the_block_issue_897() {
    let mut runtime = runtime();
    let stall = stall(&mut runtime, |o| {
        o.submit(vector("fine").run(|_| ()))?;
        let spin = vector("spin").run(|block| {
            while !block.stopping() {
                std::thread::yield_now();
            }
        });
        o.submit(spin).map(drop)
    });
    assert_eq!((stall.class, stall.running, stall.orch_done), (StallClass::S1, 1, true));
    assert_eq!(stall.stuck_task.map(|(id, name)| (id.local(), name)), Some((1, "spin")));
    assert!(stall.stuck_core.is_some(), "never an idle core");
    assert_eq!((stall.completed, stall.total), (1, 2));
    // The block came back when it was told to, so the runtime is as good as new.
    assert!(!runtime.poisoned() && runtime.run(|_| Ok(())).passed());
}

#[test]
fn s3_when_no_core_takes_what_is_ready() {
    let mut runtime = runtime();
    let stall = stall(&mut runtime, |o| {
        faults::deafen_cores(o);
        o.submit(vector("ready").run(|_| ())).map(drop)
    });
    assert_eq!((stall.class, stall.ready, stall.stuck_core), (StallClass::S3, 1, None));
    assert_eq!(stall.stuck_task.map(|(_, name)| name), Some("ready"));
    assert!(
        runtime
            .run(|o| o.submit(vector("again").run(|_| ())).map(drop))
            .passed()
    );
}

#[test]
fn s4_when_a_producer_never_tells_its_consumers() {
    let stall = stall(&mut runtime(), |o| {
        let silent = faults::inject(vector("silent"), TaskFault::KeepConsumersWaiting);
        // The gate keeps the producer from completing before its consumer is linked.
        let linked = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let gate = std::sync::Arc::clone(&linked);
        let silent = silent.run(move |_| {
            while !gate.load(std::sync::atomic::Ordering::Acquire) {
                std::thread::yield_now();
            }
        });
        let id = o.submit(silent)?.id;
        o.submit(vector("deaf").after(id).run(|_| ()))?;
        linked.store(true, std::sync::atomic::Ordering::Release);
        Ok(())
    });
    assert_eq!((stall.class, stall.waiting, stall.completed), (StallClass::S4, 1, 1));
    assert_eq!(stall.stuck_task.map(|(_, name)| name), Some("deaf"));
}

#[test]
fn s5_when_the_program_submits_nothing() {
    let stall = stall(&mut runtime(), |o| Err(faults::starve(o)));
    assert_eq!((stall.class, stall.orch_done, stall.total), (StallClass::S5, false, 0));
}

#[test]
fn unknown_when_a_completion_is_lost() {
    let stall = stall(&mut runtime(), |o| {
        let lost = faults::inject(vector("lost"), TaskFault::LoseCompletion).run(|_| ());
        o.submit(lost).map(drop)
    });
    assert_eq!((stall.class, stall.orch_done), (StallClass::Unknown, true));
    assert_eq!((stall.completed, stall.total), (0, 1));
}

#[test]
fn progress_keeps_a_long_run_alive() {
    let mut runtime = runtime();
    let report = runtime.run(|o| {
        let step = QUICK.scheduler / 8;
        o.submit(vector("steps").blocks(24).run(move |_| std::thread::sleep(step)))
            .map(drop)
    });
    assert!(report.passed(), "{:?}", report.end);
    assert!(report.device > QUICK.scheduler);
}
