//! Golden checks, counts and two-sided ring checks of the two-rank programs, at true shapes with fresh seeds.

#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::any::Any;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use kernels::check::{AMPLE, Checked, Launch, check_kernel, fresh_seed, session, two_sided};
use kernels::compare::TensorVerdict;
use kernels::dispatch::{RankEnd, Session};
use kernels::kernel::{Instance, Params};
use kernels::registry;
use ring_runtime::{FatalCode, Halted, Orchestrator, RingLimits, RunEnd, RuntimeConfig};

/// Heap use of the four rings: the larger of the ranks'.
fn heaps(run: &Checked) -> [u64; 4] {
    [0, 1, 2, 3].map(|ring| run.high_water(ring))
}

/// Tasks of the four rings, per rank.
fn tasks(run: &Checked) -> Vec<[u32; 4]> {
    run.reports
        .iter()
        .map(|report| report.rings.map(|ring| ring.tasks_submitted))
        .collect()
}

/// A program of which one rank gives up instead of beginning.
struct Failing {
    inner: Box<dyn Instance>,
    rank: usize,
}

impl Instance for Failing {
    fn ranks(&self) -> usize {
        self.inner.ranks()
    }

    fn reset(&self) {
        self.inner.reset();
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        if rank == self.rank {
            // The other rank may come to its first wait meanwhile; where it is stopped does not matter.
            std::thread::sleep(Duration::from_millis(300));
            return Err(o.fail("this rank gives up"));
        }
        self.inner.orchestrate(rank, o)
    }

    fn golden(&self) {
        self.inner.golden();
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        self.inner.validate()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Checks that the other rank, which waits for the failing one, is stopped, and that the case has the failing rank's cause.
fn a_failing_rank_is_the_cause(name: &str, given: &[(&str, &str)]) {
    let kernel = registry::find(name).unwrap();
    let params = Params::resolve(kernel.info().name, kernel.info().params, given).unwrap();
    let inner = kernel.prepare(&params, fresh_seed()).unwrap();
    let ring = RingLimits::new(AMPLE[0], RingLimits::DEFAULT_TASK_WINDOW, RingLimits::DEFAULT_DEP_POOL).unwrap();
    let config = RuntimeConfig::new([ring; 4], NonZeroUsize::new(2).unwrap());
    let mut session = Session::new(Box::new(Failing { inner, rank: 1 }), &config).unwrap();
    let start = Instant::now();
    let dispatch = session.dispatch(Duration::ZERO);
    assert_eq!(dispatch.failed, Some(1), "{dispatch:?}");
    let cause = dispatch
        .failure()
        .and_then(RankEnd::report)
        .and_then(|report| report.fatal());
    let cause = cause.unwrap_or_else(|| panic!("rank 1 has a fatal error: {dispatch:?}"));
    assert_eq!(cause.code, FatalCode::ExplicitOrchFatal, "{cause}");
    let other = dispatch.ranks[0].report().unwrap();
    assert!(matches!(other.end, RunEnd::Stopped), "{:?}", other.end);
    // Not the watchdog, which waits for 10 s.
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[test]
fn lm_head_matches_and_counts_its_tasks() {
    let run = check_kernel("lm_head", &[], fresh_seed());
    assert_eq!(heaps(&run), [0, 4_481_024, 0, 0]);
    assert_eq!(tasks(&run), [[0, 10, 0, 0]; 2]);
    for report in &run.reports {
        assert_eq!(report.tasks.blocks, 8 + 1 + 14 + 24 + 24 + 1 + 24 + 1 + 8);
    }
}

#[test]
fn lm_head_leaves_its_windows_ready_and_skips_rows() {
    let seed = fresh_seed();
    let mut session = session("lm_head", &[("active_rows", "3")], seed, AMPLE);
    // The signals are kept over dispatches: the second one would not wait if the first left them.
    for round in 0..2 {
        let dispatch = session.dispatch(Duration::ZERO);
        assert!(
            dispatch.passed(),
            "seed {seed}, round {round}: {:#?}",
            dispatch.failure()
        );
        for verdict in session.instance().validate() {
            assert!(verdict.passed(), "seed {seed}, round {round}: {verdict:#?}");
        }
    }
}

#[test]
fn lm_head_needs_exactly_its_total() {
    two_sided("lm_head", &[], 1, 4_481_024, Launch::Never);
}

#[test]
fn lm_head_ends_with_the_cause_of_the_failing_rank() {
    a_failing_rank_is_the_cause("lm_head", &[]);
}
