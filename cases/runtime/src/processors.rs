//! Which processors the threads of a run execute on.
//!
//! Left alone, the operating system may put two cores of a runtime on one processor and leave another
//! one idle until its balancer looks again, milliseconds later: a dispatch of a millisecond then took
//! 1.0 or 2.0 ms, as chance had it, and pairs of the same program differed by 35 % where they differ by
//! 3 % with cores that stay where they are.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that the thread which made the runtime could use.
#[derive(Clone, Debug)]
pub(crate) struct Processors {
    usable: Vec<usize>,
    first: usize,
}

impl Processors {
    /// Those of the calling thread, counted from `first`; none where the system doesn't tell.
    pub(crate) fn of_this_thread(first: usize) -> Self {
        let usable = sched_getaffinity(None).map_or_else(
            |_| Vec::new(),
            |set| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        );
        Self { usable, first }
    }

    /// Keeps the calling thread, core `core`, on a processor of its own as far as there are enough.
    ///
    /// A system that refuses leaves the thread where it is: that costs steadiness, never a result.
    pub(crate) fn keep(&self, core: usize) {
        let count = self.usable.len();
        if count > 0 {
            let mut set = CpuSet::new();
            set.set(self.usable[(self.first % count + core % count) % count]);
            let _ = sched_setaffinity(None, &set);
        }
    }

    /// Keeps the calling thread on the first processor until the value is gone.
    pub(crate) fn borrow(&self) -> Borrowed {
        let before = sched_getaffinity(None).ok();
        self.keep(0);
        Borrowed { before }
    }
}

/// A thread that is kept on a processor for a while.
#[derive(Debug)]
pub(crate) struct Borrowed {
    before: Option<CpuSet>,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = sched_setaffinity(None, before);
        }
    }
}
