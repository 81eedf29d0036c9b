//! What tests of kernels are made of: run a kernel at given rings, validate it, and find its least heap.
//!
//! Everything here panics with the kernel, the parameters and the seed, so that a failure can be run again.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::time::Duration;

use ring_runtime::{Fatal, FatalCode, Resource, RingId, RingLimits, RunReport, RuntimeConfig, Timeouts};

use crate::compare::TensorVerdict;
use crate::dispatch::{Dispatch, Session};
use crate::kernel::Params;
use crate::registry;

/// Heaps that hold any program here: 2 GiB each, committed as touched.
pub const AMPLE: [u64; 4] = [2 << 30; 4];

/// Parameters as they are typed.
pub type Given<'a> = &'a [(&'a str, &'a str)];

/// A passing run: one report per rank, and the verdict on every output.
#[derive(Debug)]
pub struct Checked {
    /// Per rank.
    pub reports: Vec<RunReport>,
    /// Per output.
    pub verdicts: Vec<TensorVerdict>,
}

impl Checked {
    /// Largest heap use of `ring` over the ranks, in bytes.
    pub fn high_water(&self, ring: usize) -> u64 {
        self.reports
            .iter()
            .map(|r| r.rings[ring].heap_high_water)
            .max()
            .expect("a program has a rank")
    }
}

/// A seed that no run before had.
pub fn fresh_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Two cores, default windows and pools, these heaps.
///
/// On a busy machine a block may hold memory for longer than an allocation waits by default; that a ring is too small is proven without waiting.
fn config(heaps: [u64; 4]) -> RuntimeConfig {
    let rings = heaps.map(|heap| {
        RingLimits::new(heap, RingLimits::DEFAULT_TASK_WINDOW, RingLimits::DEFAULT_DEP_POOL).expect("valid heaps")
    });
    let timeouts = Timeouts {
        alloc: Duration::from_secs(5),
        ..Timeouts::DEFAULT
    };
    RuntimeConfig::new(rings, NonZeroUsize::new(2).expect("not zero")).with_timeouts(timeouts)
}

/// Prepares the kernel and starts its runtimes.
pub fn session(name: &str, given: Given<'_>, seed: u64, heaps: [u64; 4]) -> Session {
    let kernel = registry::find(name).unwrap_or_else(|e| panic!("{e}"));
    let info = kernel.info();
    let params = Params::resolve(info.name, info.params, given).unwrap_or_else(|e| panic!("{e}"));
    let instance = kernel.prepare(&params, seed).unwrap_or_else(|e| panic!("{e}"));
    Session::new(instance, &config(heaps)).unwrap_or_else(|e| panic!("`{name}` {given:?}: {e}"))
}

/// One dispatch at these heaps, whatever its end.
pub fn run_at(name: &str, given: Given<'_>, seed: u64, heaps: [u64; 4]) -> Dispatch {
    session(name, given, seed, heaps).dispatch(Duration::ZERO)
}

/// Runs the kernel at these heaps and validates it; panics unless everything passes.
pub fn check_kernel_at(name: &str, given: Given<'_>, seed: u64, heaps: [u64; 4]) -> Checked {
    let mut session = session(name, given, seed, heaps);
    let dispatch = session.dispatch(Duration::ZERO);
    let context = format!("`{name}` {given:?}, seed {seed}");
    assert!(dispatch.passed(), "{context}: {:#?}", dispatch.failure());
    let verdicts = session.instance().validate();
    assert!(
        !verdicts.is_empty() || !session.instance().has_golden(),
        "{context}: nothing was compared"
    );
    for verdict in &verdicts {
        assert!(verdict.passed(), "{context}: {verdict:#?}");
    }
    let reports = dispatch.ranks.iter().filter_map(|r| r.report().cloned()).collect();
    Checked { reports, verdicts }
}

/// [`check_kernel_at`] heaps that hold anything.
pub fn check_kernel(name: &str, given: Given<'_>, seed: u64) -> Checked {
    check_kernel_at(name, given, seed, AMPLE)
}

/// The fatal error of a dispatch that has to fail on the heap of `ring`; panics on any other end.
#[track_caller]
fn heap_deadlock<'a>(dispatch: &'a Dispatch, ring: usize, context: &str) -> (&'a Fatal, &'a RunReport) {
    let report = dispatch.failure().and_then(|end| end.report());
    let report = report.unwrap_or_else(|| panic!("{context}: expected a deadlock, not {dispatch:?}"));
    let fatal = report
        .fatal()
        .unwrap_or_else(|| panic!("{context}: expected a deadlock, not {:?}", report.end));
    assert_eq!(fatal.code, FatalCode::HeapRingDeadlock, "{context}: {fatal}");
    assert_eq!(fatal.ring.map(RingId::index), Some(ring), "{context}: {fatal}");
    assert!(matches!(fatal.resource, Resource::Heap(_)), "{context}: {fatal}");
    (fatal, report)
}

/// Checks that `bytes` is the least heap of `ring`: the program passes and matches with it, uses all of it, and
/// deadlocks with 1024 less, with code 2 on that ring. The other rings have ample heaps.
///
/// `before_launch` also asks that no task reached a core in the deadlocking run.
pub fn two_sided(name: &str, given: Given<'_>, ring: usize, bytes: u64, launch: Launch) {
    let seed = fresh_seed();
    let context = format!("`{name}` {given:?}, seed {seed}, ring {ring}");
    let at = |heap| {
        let mut heaps = AMPLE;
        heaps[ring] = heap;
        heaps
    };
    let checked = check_kernel_at(name, given, seed, at(bytes));
    assert_eq!(
        checked.high_water(ring),
        bytes,
        "{context}: high-water at the least heap"
    );
    let dispatch = run_at(name, given, seed, at(bytes - 1024));
    let (_, report) = heap_deadlock(&dispatch, ring, &context);
    if launch == Launch::Never {
        assert!(
            !report.first_launch,
            "{context}: a task reached a core before the deadlock"
        );
    }
}

/// Whether a deadlock may come after tasks have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Everything is allocated at entry, so nothing may have run.
    Never,
    /// The ring fills up later.
    Possible,
}

/// A heap of `ring` that passes while 1024 less deadlocks, found by halving between 1024 and the use at ample rings.
///
/// That is *a* boundary: a heap further below may pass again, since losses at the wrap depend on the size.
pub fn least_heap(name: &str, given: Given<'_>, ring: usize) -> u64 {
    let seed = fresh_seed();
    let context = format!("`{name}` {given:?}, seed {seed}, ring {ring}");
    let mut heaps = AMPLE;
    let ample = run_at(name, given, seed, heaps);
    assert!(ample.passed(), "{context}: {:?}", ample.failure());
    let high_water = |r: &RunReport| r.rings[ring].heap_high_water.max(1024).next_multiple_of(1024);
    let mut passes = ample
        .ranks
        .iter()
        .filter_map(|r| r.report())
        .map(high_water)
        .max()
        .expect("a rank");
    let mut fails = 0;
    while passes - fails > 1024 {
        let middle = (fails + (passes - fails) / 2).next_multiple_of(1024).min(passes - 1024);
        if middle == fails {
            break;
        }
        heaps[ring] = middle;
        let dispatch = run_at(name, given, seed, heaps);
        if dispatch.passed() {
            passes = middle;
        } else {
            heap_deadlock(&dispatch, ring, &context);
            fails = middle;
        }
    }
    passes
}
