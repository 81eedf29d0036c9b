//! What tests of kernels are made of: run a kernel at given rings, validate it, and find its least heap.
//!
//! Everything here panics with the kernel, the parameters and the seed, so that a failure can be run again.

use std::any::Any;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use ring_runtime::{FatalCode, Halted, Orchestrator, Resource, RingId, RingLimits, RunReport, RuntimeConfig, Timeouts};

use crate::compare::TensorVerdict;
use crate::dispatch::{Dispatch, Session};
use crate::kernel::{Instance, Params, Purpose};
use crate::registry;

/// Heaps that hold any program here: 2 GiB each, committed as touched.
pub const AMPLE: [u64; 4] = [2 << 30; 4];

/// Parameters as they are typed.
pub type Given<'a> = &'a [(&'a str, &'a str)];

/// A run that passed: one report per rank, and the verdict on every output.
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
pub(crate) const PATIENT: Duration = Duration::from_secs(5);

/// Longest wait of an allocation in a run that has to deadlock: a request that no empty ring could hold is not proven
/// by its scope but by this wait, in full, so that a long one is time lost.
const BRISK: Duration = Duration::from_secs(1);

/// Two cores, default windows and pools, these heaps; an allocation waits for at most `alloc`. On a busy machine a block
/// may get no turn for longer than the watchdog waits by default.
pub(crate) fn config(heaps: [u64; 4], alloc: Duration) -> RuntimeConfig {
    let rings = heaps.map(|heap| {
        RingLimits::new(heap, RingLimits::DEFAULT_TASK_WINDOW, RingLimits::DEFAULT_DEP_POOL).expect("valid heaps")
    });
    let timeouts = Timeouts {
        alloc,
        scheduler: Duration::from_mins(1),
        tensor_wait: Duration::from_mins(5),
        ..Timeouts::DEFAULT
    };
    RuntimeConfig::new(rings, NonZeroUsize::new(2).expect("not zero"))
        .with_timeouts(timeouts)
        .with_requests()
}

/// A kernel with its arguments, to be dispatched at one ring configuration after the other: the arguments of a large
/// program take longer to make than its dispatch.
#[derive(Clone)]
pub struct Prepared {
    instance: Arc<dyn Instance>,
    context: String,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Prepared").field(&self.context).finish()
    }
}

impl Prepared {
    /// Makes the arguments.
    pub fn new(name: &str, given: Given<'_>, seed: u64) -> Self {
        let kernel = registry::find(name).unwrap_or_else(|e| panic!("{e}"));
        let info = kernel.info();
        let params = Params::resolve(info.name, info.params, given).unwrap_or_else(|e| panic!("{e}"));
        let instance = kernel.prepare(&params, seed).unwrap_or_else(|e| panic!("{e}"));
        Self {
            instance: instance.into(),
            context: format!("`{name}` {given:?}, seed {seed}"),
        }
    }

    /// Starts runtimes with these heaps.
    pub fn session(&self, heaps: [u64; 4]) -> Session {
        self.session_within(heaps, PATIENT)
    }

    fn session_within(&self, heaps: [u64; 4], alloc: Duration) -> Session {
        let shared = Box::new(Shared(Arc::clone(&self.instance)));
        Session::new(shared, &config(heaps, alloc)).unwrap_or_else(|e| panic!("{}: {e}", self.context))
    }

    /// One dispatch at these heaps, whatever its end.
    pub fn run_at(&self, heaps: [u64; 4]) -> Dispatch {
        self.session(heaps).dispatch(Duration::ZERO)
    }

    /// Runs at these heaps and validates; panics unless the run passes.
    pub fn judge_at(&self, heaps: [u64; 4]) -> Checked {
        let (context, dispatch) = (&self.context, self.run_at(heaps));
        assert!(dispatch.passed(), "{context}, {heaps:?}: {:#?}", dispatch.failure());
        let verdicts = self.instance.validate();
        assert!(
            !verdicts.is_empty() || !self.instance.has_golden(),
            "{context}: nothing was compared"
        );
        let reports = dispatch.ranks.iter().filter_map(|r| r.report().cloned()).collect();
        Checked { reports, verdicts }
    }

    /// [`Self::judge_at`], and panics unless every output matches.
    pub fn check_at(&self, heaps: [u64; 4]) -> Checked {
        let checked = self.judge_at(heaps);
        for verdict in &checked.verdicts {
            assert!(verdict.passed(), "{}, {heaps:?}: {verdict:#?}", self.context);
        }
        checked
    }

    /// Checks that the program deadlocks on the heap of `ring` when that has `bytes`, with code 2, and returns the
    /// report. The other rings have ample heaps.
    #[track_caller]
    pub fn deadlocks_at(&self, ring: usize, bytes: u64) -> RunReport {
        let context = format!("{}, ring {ring} of {bytes}", self.context);
        let mut session = self.session_within(with_ring(ring, bytes), BRISK);
        let dispatch = session.dispatch(Duration::ZERO);
        heap_deadlock(&dispatch, ring, &context).clone()
    }

    /// Checks that `bytes` is the least heap of a `ring` that is full at some time: the program passes and matches with
    /// it, uses all of it, and deadlocks with 1024 less.
    pub fn two_sided(&self, ring: usize, bytes: u64, launch: Launch) {
        let context = format!("{}, ring {ring}", self.context);
        let checked = self.check_at(with_ring(ring, bytes));
        let used = checked.high_water(ring);
        assert_eq!(used, bytes, "{context}: high-water at the least heap");
        let report = self.deadlocks_at(ring, bytes - 1024);
        if launch == Launch::Never {
            assert!(
                !report.first_launch,
                "{context}: a task reached a core before the deadlock"
            );
        }
    }

    /// Checks that `least`, which [`least_heaps`] has for a `ring` through which stages stream, is the least heap: the
    /// program passes with it and deadlocks with 1024 less, as it does with `held`, which is what the largest stage holds.
    pub fn streams(&self, ring: usize, held: u64, least: u64) {
        let dispatch = self.run_at(with_ring(ring, least));
        let context = format!("{}, ring {ring} of {least}", self.context);
        assert!(dispatch.passed(), "{context}: {:#?}", dispatch.failure());
        self.deadlocks_at(ring, least - 1024);
        if held < least {
            self.deadlocks_at(ring, held);
        }
    }
}

/// One instance in several sessions.
struct Shared(Arc<dyn Instance>);

impl Instance for Shared {
    fn ranks(&self) -> usize {
        self.0.ranks()
    }

    fn configure(&self, asked: RuntimeConfig) -> RuntimeConfig {
        self.0.configure(asked)
    }

    fn announce(&self, purpose: Purpose) {
        self.0.announce(purpose);
    }

    fn reset(&self) {
        self.0.reset();
    }

    fn recover(&self) {
        self.0.recover();
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        self.0.orchestrate(rank, o)
    }

    fn golden(&self) {
        self.0.golden();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        self.0.validate()
    }

    fn has_golden(&self) -> bool {
        self.0.has_golden()
    }

    fn as_any(&self) -> &dyn Any {
        self.0.as_any()
    }
}

/// Ample heaps, but for `ring`.
pub fn with_ring(ring: usize, bytes: u64) -> [u64; 4] {
    let mut heaps = AMPLE;
    heaps[ring] = bytes;
    heaps
}

/// Prepares the kernel and starts its runtimes.
pub fn session(name: &str, given: Given<'_>, seed: u64, heaps: [u64; 4]) -> Session {
    Prepared::new(name, given, seed).session(heaps)
}

/// One dispatch at these heaps, whatever its end.
pub fn run_at(name: &str, given: Given<'_>, seed: u64, heaps: [u64; 4]) -> Dispatch {
    Prepared::new(name, given, seed).run_at(heaps)
}

/// Runs the kernel at these heaps and validates it; panics unless everything passes.
pub fn check_kernel_at(name: &str, given: Given<'_>, seed: u64, heaps: [u64; 4]) -> Checked {
    Prepared::new(name, given, seed).check_at(heaps)
}

/// [`check_kernel_at`] heaps that hold anything.
pub fn check_kernel(name: &str, given: Given<'_>, seed: u64) -> Checked {
    check_kernel_at(name, given, seed, AMPLE)
}

/// The report of a dispatch that has to fail on the heap of `ring`; panics on any other end.
#[track_caller]
fn heap_deadlock<'a>(dispatch: &'a Dispatch, ring: usize, context: &str) -> &'a RunReport {
    let report = dispatch.failure().and_then(|end| end.report());
    let report = report.unwrap_or_else(|| panic!("{context}: expected a deadlock, not {dispatch:?}"));
    let fatal = report
        .fatal()
        .unwrap_or_else(|| panic!("{context}: expected a deadlock, not {:?}", report.end));
    assert_eq!(fatal.code, FatalCode::HeapRingDeadlock, "{context}: {fatal}");
    assert_eq!(fatal.ring.map(RingId::index), Some(ring), "{context}: {fatal}");
    assert!(matches!(fatal.resource, Resource::Heap(_)), "{context}: {fatal}");
    report
}

/// [`Prepared::two_sided`] under a fresh seed.
///
/// [`Launch::Never`] also asks that no task reached a core in the deadlocking run.
pub fn two_sided(name: &str, given: Given<'_>, ring: usize, bytes: u64, launch: Launch) {
    two_sided_rings(name, given, &[(ring, bytes, launch)]);
}

/// [`two_sided`] for one ring after the other, on the same inputs.
pub fn two_sided_rings(name: &str, given: Given<'_>, rings: &[(usize, u64, Launch)]) {
    let program = Prepared::new(name, given, fresh_seed());
    for &(ring, bytes, launch) in rings {
        program.two_sided(ring, bytes, launch);
    }
}

/// The least heap of each ring that the requests of every rank get through with, computed by the runtime's own rule from
/// a run that passed; 1024 for a ring of which nothing is asked.
///
/// # Panics
/// When the run did not pass, and when a rank fails at the least heap of another: then a larger one has to be looked for.
pub fn least_heaps(reports: &[RunReport]) -> [u64; 4] {
    assert!(
        reports.iter().all(RunReport::passed),
        "the requests of a run that ended early are not all"
    );
    let requests = || reports.iter().filter_map(|report| report.requests.as_ref());
    RingId::ALL.map(|ring| {
        let least = requests().map(|r| r.least_heap(ring)).max();
        let least = least.expect("a rank whose requests were kept");
        assert!(
            requests().all(|r| r.fits(ring, least)),
            "`{least}` bytes do not do for every rank"
        );
        least
    })
}

/// Whether a deadlock may come after tasks have run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Everything is allocated at entry, so nothing may have run.
    Never,
    /// The ring fills up later.
    Possible,
}
