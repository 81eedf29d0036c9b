//! Rates of the runtime: empty tasks per second, dispatched and dependency-only, and the cost of an allocation.
//!
//! `cargo bench -p ring-runtime --bench rates`, with `-- --allocation` for that figure alone. Each figure is the median of several runs, with the
//! fastest and the slowest; the monotonic clock runs from the start of the program until its last
//! task has completed. Targets are for two cores and a window of 16384.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::num::NonZeroUsize;
use std::time::Duration;

use ring_runtime::{
    Halted, Orchestrator, RINGS, RingLimits, RunReport, Runtime, RuntimeConfig, ScopeMode, Task, TensorSpec, Unit,
};

const RUNS: usize = 9;
const TASKS: usize = 400_000;
/// Tasks of one scope; well below the window, so that retiring and submitting overlap.
const PER_SCOPE: usize = 4096;

fn main() {
    // `cargo test --benches` passes this; one short pass shows that everything still runs.
    let smoke = std::env::args().any(|word| word == "--test");
    let (runs, tasks) = if smoke { (1, 20_000) } else { (RUNS, TASKS) };
    let tasks_too = !std::env::args().any(|word| word == "--allocation");
    for cores in if tasks_too { &[1, 2][..] } else { &[] } {
        let cores = *cores;
        let mut runtime = runtime(cores);
        rate("dispatched, independent", cores, 1.0, runs, tasks, &mut runtime, |o| {
            o.submit(Task::new("empty", Unit::Vector).run(|_| ())).map(drop)
        });
        let mut last = None;
        rate(
            "dispatched, in pairs",
            cores,
            1.0,
            runs,
            tasks,
            &mut runtime,
            move |o| {
                let mut task = Task::new("empty", Unit::Vector);
                if let Some(first) = last.take() {
                    task = task.after(first);
                    o.submit(task.run(|_| ()))?;
                } else {
                    last = Some(o.submit(task.run(|_| ()))?.id);
                }
                Ok(())
            },
        );
    }
    let mut runtime = runtime(1);
    if tasks_too {
        rate("dependency-only", 1, 3.0, runs, tasks, &mut runtime, |o| {
            o.submit(Task::new("empty", Unit::Vector).dependency_only()).map(drop)
        });
    }
    let spec = [TensorSpec::bytes(4096)];
    let name = "allocation and reclaim of 4096 bytes";
    let seconds = measure(runs, tasks, &mut runtime, |o| o.alloc(&spec).map(drop));
    let [low, mid, high] = spread(&seconds, |seconds| seconds / tasks as f64 * 1e9);
    println!(
        "{name:<40} {mid:8.1} ns  [{low:.1} .. {high:.1}]  target 100 ns, {:.2} of it",
        mid / 100.0
    );
}

fn runtime(cores: usize) -> Runtime {
    let rings = [RingLimits::DEFAULT; RINGS];
    let cores = NonZeroUsize::new(cores).expect("not zero");
    Runtime::new(RuntimeConfig::new(rings, cores)).expect("the defaults are valid")
}

/// Prints a rate in millions per second and its ratio to `target`.
fn rate(
    name: &str,
    cores: usize,
    target: f64,
    runs: usize,
    tasks: usize,
    runtime: &mut Runtime,
    submit: impl FnMut(&mut Orchestrator<'_>) -> Result<(), Halted>,
) {
    let seconds = measure(runs, tasks, runtime, submit);
    let [low, mid, high] = spread(&seconds, |seconds| tasks as f64 / seconds / 1e6);
    let label = format!("{name}, {cores} core(s)");
    println!(
        "{label:<40} {mid:8.2} M/s [{low:.2} .. {high:.2}]  target {target:.0} M/s, {:.2} of it",
        mid / target
    );
}

/// Seconds of each run of `tasks` submissions.
fn measure(
    runs: usize,
    tasks: usize,
    runtime: &mut Runtime,
    mut submit: impl FnMut(&mut Orchestrator<'_>) -> Result<(), Halted>,
) -> Vec<Duration> {
    let mut once = || -> RunReport {
        runtime.run(|o| {
            for _ in 0..tasks.div_ceil(PER_SCOPE) {
                o.scope(ScopeMode::Auto, |o| (0..PER_SCOPE).try_for_each(|_| submit(o)))?;
            }
            Ok(())
        })
    };
    once();
    (0..runs)
        .map(|_| {
            let report = once();
            assert!(report.passed(), "{:?}", report.end);
            report.device
        })
        .collect()
}

/// Least, median and greatest of what `figure` makes of the seconds.
fn spread(times: &[Duration], figure: impl Fn(f64) -> f64) -> [f64; 3] {
    let mut figures: Vec<f64> = times.iter().map(|time| figure(time.as_secs_f64())).collect();
    figures.sort_by(f64::total_cmp);
    [figures[0], figures[figures.len() / 2], figures[figures.len() - 1]]
}
