//! What tests of kernels are made of: run a kernel at given rings, validate it, and find its least heap.
//!
//! Everything here panics with the kernel, the parameters and the seed, so that a failure can be run again.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::time::Duration;

use ring_runtime::{Fatal, FatalCode, Resource, RingId, RingLimits, RunReport, RuntimeConfig, Timeouts};

use crate::compare::TensorVerdict;
use crate::dispatch::{Dispatch, Session};
use crate::kernel::{Instance, Params};
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

/// Longest wait of an allocation in a run that has to pass: on a busy machine a block may hold memory for longer than
/// the runtime's default of half a second.
const PATIENT: Duration = Duration::from_secs(5);

/// Longest wait of an allocation in a run that has to deadlock: a request that no empty ring could hold is not proven
/// by its scope but by this wait, in full, so that a long one is time lost.
const BRISK: Duration = Duration::from_secs(1);

/// Two cores, default windows and pools, these heaps; an allocation waits for at most `alloc`.
fn config(heaps: [u64; 4], alloc: Duration) -> RuntimeConfig {
    let rings = heaps.map(|heap| {
        RingLimits::new(heap, RingLimits::DEFAULT_TASK_WINDOW, RingLimits::DEFAULT_DEP_POOL).expect("valid heaps")
    });
    let timeouts = Timeouts {
        alloc,
        ..Timeouts::DEFAULT
    };
    RuntimeConfig::new(rings, NonZeroUsize::new(2).expect("not zero")).with_timeouts(timeouts)
}

/// Prepares the kernel and starts its runtimes.
pub fn session(name: &str, given: Given<'_>, seed: u64, heaps: [u64; 4]) -> Session {
    prepare(name, given, seed, &config(heaps, PATIENT))
}

fn prepare(name: &str, given: Given<'_>, seed: u64, config: &RuntimeConfig) -> Session {
    Session::new(make(name, given, seed), config).unwrap_or_else(|e| panic!("`{name}` {given:?}: {e}"))
}

/// The kernel with its inputs.
fn make(name: &str, given: Given<'_>, seed: u64) -> Box<dyn Instance> {
    let kernel = registry::find(name).unwrap_or_else(|e| panic!("{e}"));
    let info = kernel.info();
    let params = Params::resolve(info.name, info.params, given).unwrap_or_else(|e| panic!("{e}"));
    kernel.prepare(&params, seed).unwrap_or_else(|e| panic!("{e}"))
}

/// One dispatch at these heaps, whatever its end; one that can't pass may take [`BRISK`] to say so.
pub fn run_at(name: &str, given: Given<'_>, seed: u64, heaps: [u64; 4]) -> Dispatch {
    prepare(name, given, seed, &config(heaps, BRISK)).dispatch(Duration::ZERO)
}

/// Runs the kernel at these heaps and validates it; panics unless everything passes.
pub fn check_kernel_at(name: &str, given: Given<'_>, seed: u64, heaps: [u64; 4]) -> Checked {
    let mut session = session(name, given, seed, heaps);
    check_session(&mut session, &format!("`{name}` {given:?}, seed {seed}"))
}

/// Dispatches and validates; panics unless everything passes.
fn check_session(session: &mut Session, context: &str) -> Checked {
    let dispatch = session.dispatch(Duration::ZERO);
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
/// `launch` also says whether a task may have reached a core in the deadlocking run.
pub fn two_sided(name: &str, given: Given<'_>, ring: usize, bytes: u64, launch: Launch) {
    two_sided_rings(name, given, &[(ring, bytes, launch)]);
}

/// [`two_sided`] for one ring after the other.
///
/// All that have to pass run on the same inputs, since to make them and their golden takes longer than the runs. A program
/// that deadlocked is not dispatched again: its ranks may have left signals behind.
pub fn two_sided_rings(name: &str, given: Given<'_>, rings: &[(usize, u64, Launch)]) {
    let seed = fresh_seed();
    let context = |ring: usize| format!("`{name}` {given:?}, seed {seed}, ring {ring}");
    let heaps = |ring: usize, heap| {
        let mut heaps = AMPLE;
        heaps[ring] = heap;
        heaps
    };
    let open = |instance, heaps, alloc| {
        Session::new(instance, &config(heaps, alloc)).unwrap_or_else(|e| panic!("`{name}` {given:?}: {e}"))
    };
    let mut instance = make(name, given, seed);
    for &(ring, bytes, _) in rings {
        let mut session = open(instance, heaps(ring, bytes), PATIENT);
        let context = context(ring);
        let checked = check_session(&mut session, &context);
        assert_eq!(
            checked.high_water(ring),
            bytes,
            "{context}: high-water at the least heap"
        );
        instance = session.into_instance();
    }
    let mut instance = Some(instance);
    for &(ring, bytes, launch) in rings {
        let instance = instance.take().unwrap_or_else(|| make(name, given, seed));
        let dispatch = open(instance, heaps(ring, bytes - 1024), BRISK).dispatch(Duration::ZERO);
        let context = context(ring);
        let (_, report) = heap_deadlock(&dispatch, ring, &context);
        if launch == Launch::Never {
            assert!(
                !report.first_launch,
                "{context}: a task reached a core before the deadlock"
            );
        }
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
