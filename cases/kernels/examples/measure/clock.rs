//! Times of a step that threads do together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// Time that one measurement may take, about.
const SPAN: Duration = Duration::from_millis(300);

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).expect("the clock starts at zero")
}

/// The longest time that one of `threads` concurrent runs took in each repetition, shortest first.
///
/// Each thread calls `start(i)` once and then repeats what it returned, all of them in step, for
/// [`SPAN`] and at least three times after one to warm up: worker threads live long, and their
/// buffers are warm.
pub(crate) fn times<W: FnMut()>(threads: usize, start: impl Fn(usize) -> W + Sync) -> Vec<Duration> {
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
    times
}
