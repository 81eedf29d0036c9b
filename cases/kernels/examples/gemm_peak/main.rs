//! Speed of the tile products at the shapes of the programs, against the machine's peak.
//!
//! `cargo run --release -p kernels --example gemm_peak [FILTER]`
//!
//! The peak is that of a loop of independent multiply-adds in registers, measured in the same run,
//! for each instruction path. Rates are 10⁹ operations per second, a multiply and an add counting as
//! two; "ratio" is to the peak of the same path and kind on as many cores. Times are the processor time
//! of a thread (of the slowest, when there are several), so that other load on the machine does not
//! count; the median of the repetitions is taken.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod peak;
mod shapes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use kernels::tile::gemm::Path;

use shapes::Kind;

/// Time that one measurement may take, about.
const SPAN: Duration = Duration::from_millis(300);

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("the clock starts at zero")
}

/// Median over the repetitions of the longest time that one of `threads` concurrent runs took.
///
/// Each thread calls `start(i)` once and then repeats what it returned, all of them in step, for
/// [`SPAN`] and at least three times after one to warm up: worker threads live long, and their
/// buffers are warm.
fn median<W: FnMut()>(threads: usize, start: impl Fn(usize) -> W + Sync) -> Duration {
    let (step, more) = (Barrier::new(threads), AtomicBool::new(true));
    let times = Mutex::new(Vec::new());
    let run = &|i: usize| {
        let mut work = start(i);
        work();
        let begin = Instant::now();
        for round in 0.. {
            if i == 0 {
                more.store(round < 3 || begin.elapsed() < SPAN, Ordering::Relaxed);
            }
            // A barrier orders memory, so that all see the same decision.
            step.wait();
            if !more.load(Ordering::Relaxed) {
                break;
            }
            let begin = processor_time();
            work();
            let time = processor_time().saturating_sub(begin);
            let mut times = times.lock().expect("no thread panics");
            match times.get_mut(round) {
                Some(longest) => *longest = time.max(*longest),
                None => times.push(time),
            }
            drop(times);
            step.wait();
        }
    };
    std::thread::scope(|scope| {
        for i in 1..threads {
            scope.spawn(move || run(i));
        }
        run(0);
    });
    let mut times = times.into_inner().expect("no thread panics");
    times.sort();
    times[times.len() / 2]
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for path in Path::ALL.into_iter().filter(|path| path.is_supported()) {
        let float = [1, cores].map(|threads| peak::float(path, threads));
        let int = [1, cores].map(|threads| peak::int(path, threads));
        println!(
            "\n{}: peak f32 {:.1} GFLOP/s on one core, {:.1} on {cores}; i8 {:.1} Gop/s on one core, {:.1} on {cores}",
            path.name(),
            float[0],
            float[1],
            int[0],
            int[1]
        );
        println!(
            "{:<28} {:>5} {:>6} {:>6} {:>5} {:>7} {:>9} {:>6} {:>9} {:>6}",
            "product", "kind", "M", "N", "K", "B", "1 core", "ratio", "all", "ratio"
        );
        for shape in shapes::ALL.iter().filter(|shape| shape.name.contains(&filter)) {
            let peaks = if shape.kind == Kind::I8 { int } else { float };
            let rates = [1, cores].map(|threads| shape.rate(path, threads));
            println!(
                "{:<28} {:>5} {:>6} {:>6} {:>5} {:>7} {:>9.1} {:>6.2} {:>9.1} {:>6.2}",
                shape.name,
                shape.kind.name(),
                shape.m,
                shape.n,
                shape.k,
                shape.layout.name(),
                rates[0],
                rates[0] / peaks[0],
                rates[1],
                rates[1] / peaks[1]
            );
        }
    }
}
