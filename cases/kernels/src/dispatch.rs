//! Dispatches of one instance: every rank on a thread and a runtime of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ring_runtime::{ConfigError, RunEnd, RunReport, Runtime, RuntimeConfig};

use crate::kernel::{Instance, Purpose};

/// How one rank of a dispatch ended.
#[derive(Debug)]
pub enum RankEnd {
    /// Its runtime reported.
    Reported(Box<RunReport>),
    /// The program itself panicked, outside of any task.
    ProgramPanicked(String),
}

impl RankEnd {
    /// Whether the rank ran to its end.
    pub fn passed(&self) -> bool {
        matches!(self, Self::Reported(report) if report.passed())
    }

    /// The runtime's report, if there is one.
    pub fn report(&self) -> Option<&RunReport> {
        match self {
            Self::Reported(report) => Some(report),
            Self::ProgramPanicked(_) => None,
        }
    }

    /// Stopped by another rank's failure: no cause of its own.
    fn is_fallout(&self) -> bool {
        matches!(self, Self::Reported(report) if matches!(report.end, RunEnd::Stopped))
    }
}

/// How one dispatch ended.
#[derive(Debug)]
pub struct Dispatch {
    /// One entry per rank.
    pub ranks: Vec<RankEnd>,
    /// The rank that failed first: its cause is the evidence, what others report is fallout.
    pub failed: Option<usize>,
}

impl Dispatch {
    /// Device time: the longest of the ranks (monotonic clock, without set-up). `None` unless all passed.
    pub fn device(&self) -> Option<Duration> {
        self.ranks
            .iter()
            .map(|r| r.report().filter(|r| r.passed()).map(|r| r.device))
            .try_fold(Duration::ZERO, |longest, device| {
                device.map(|device| longest.max(device))
            })
    }

    /// Whether all ranks passed.
    pub fn passed(&self) -> bool {
        self.failed.is_none()
    }

    /// The cause of the failure: what the first failing rank reported.
    pub fn failure(&self) -> Option<&RankEnd> {
        self.failed.map(|rank| &self.ranks[rank])
    }
}

/// An instance and its runtimes, kept over all dispatches of a case.
pub struct Session {
    instance: Box<dyn Instance>,
    runtimes: Vec<Runtime>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("ranks", &self.runtimes.len())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Starts one runtime per rank, all with this configuration.
    pub fn new(instance: Box<dyn Instance>, config: &RuntimeConfig) -> Result<Self, ConfigError> {
        // Ranks run beside each other: with fixed processors, each begins at one of its own.
        let of_rank = |rank: usize| RuntimeConfig {
            first_processor: config.first_processor.map(|first| first + rank),
            ..config.clone()
        };
        let runtimes = (0..instance.ranks())
            .map(|rank| Runtime::new(instance.configure(of_rank(rank))))
            .collect::<Result<_, _>>()?;
        Ok(Self { instance, runtimes })
    }

    /// The instance.
    pub fn instance(&self) -> &dyn Instance {
        &*self.instance
    }

    /// The configuration that each rank's runtime says is in force.
    pub fn configs(&self) -> impl Iterator<Item = &RuntimeConfig> {
        self.runtimes.iter().map(Runtime::config)
    }

    /// Resets the arguments and runs the program once on every rank, to be validated. `delay` is spent, busy, inside of the
    /// timed interval.
    pub fn dispatch(&mut self, delay: Duration) -> Dispatch {
        self.run(Purpose::Validation, delay)
    }

    /// The same with nothing kept for a validation, so that the time is the program's alone.
    pub fn measure(&mut self, delay: Duration) -> Dispatch {
        self.run(Purpose::Measurement, delay)
    }

    fn run(&mut self, purpose: Purpose, delay: Duration) -> Dispatch {
        self.instance.announce(purpose);
        self.instance.reset();
        let first = AtomicUsize::new(usize::MAX);
        let stop: Vec<_> = self.runtimes.iter().map(Runtime::stop_handle).collect();
        let instance = &*self.instance;
        let one = |rank: usize, runtime: &mut Runtime| {
            let run = || {
                runtime.run(|o| {
                    spin(delay);
                    instance.orchestrate(rank, o)
                })
            };
            let end = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(report) => RankEnd::Reported(Box::new(report)),
                Err(payload) => RankEnd::ProgramPanicked(panic_text(&*payload)),
            };
            if !end.passed() && !end.is_fallout() {
                let claimed = first.compare_exchange(usize::MAX, rank, Ordering::AcqRel, Ordering::Acquire);
                if claimed.is_ok() {
                    stop.iter()
                        .enumerate()
                        .filter(|(other, _)| *other != rank)
                        .for_each(|(_, stop)| stop.stop());
                }
            }
            end
        };
        let ranks: Vec<RankEnd> = match &mut self.runtimes[..] {
            [only] => vec![one(0, only)],
            many => std::thread::scope(|scope| {
                let one = &one;
                let threads: Vec<_> = many
                    .iter_mut()
                    .enumerate()
                    .map(|(rank, r)| scope.spawn(move || one(rank, r)))
                    .collect();
                threads
                    .into_iter()
                    .map(|t| t.join().expect("panics of a rank are caught in it"))
                    .collect()
            }),
        };
        // A rank that was stopped without another one failing (from outside) is a failure too.
        let failed = match first.into_inner() {
            usize::MAX => ranks.iter().position(|end| !end.passed()),
            rank => Some(rank),
        };
        if failed.is_some() {
            self.instance.recover();
        }
        Dispatch { ranks, failed }
    }

    /// Whether an earlier dispatch left a core behind that never came back.
    pub fn is_poisoned(&self) -> bool {
        self.runtimes.iter().any(Runtime::poisoned)
    }

    /// Gives the runtimes up without joining their cores: one of them never came back.
    pub fn abandon(self) {
        std::mem::forget(self);
    }
}

/// Keeps the calling thread busy for `delay`.
fn spin(delay: Duration) {
    let start = Instant::now();
    while start.elapsed() < delay {
        std::hint::spin_loop();
    }
}

/// The text of a panic.
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "a panic without text".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::num::NonZeroUsize;

    use ring_runtime::{Cmp, Halted, Orchestrator, RingLimits, Signals, Task, Unit};

    use super::*;
    use crate::compare::TensorVerdict;

    /// Two ranks: rank 1 waits for a signal that rank 0 sets, unless rank 0 fails before.
    struct Pair {
        signals: Signals,
        fails: Failure,
    }

    #[derive(Clone, Copy)]
    enum Failure {
        None,
        Explicit,
        TaskPanics,
        ProgramPanics,
    }

    impl Instance for Pair {
        fn ranks(&self) -> usize {
            2
        }

        fn reset(&self) {
            self.signals.set(0, 0);
        }

        fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
            let signals = self.signals.clone();
            if rank == 1 {
                let task = Task::new("wait", Unit::Scalar).run(move |block| {
                    let _ = block.wait_signal(&signals, 0, Cmp::Ge, 1);
                });
                o.submit(task)?;
                return Ok(());
            }
            let task = Task::new("set", Unit::Scalar);
            match self.fails {
                Failure::None => o.submit(task.run(move |_| signals.set(0, 1))).map(|_| ()),
                Failure::Explicit => Err(o.fail("rank 0 gives up")),
                Failure::TaskPanics => o.submit(task.run(|_| panic!("rank 0 trips"))).map(|_| ()),
                Failure::ProgramPanics => panic!("rank 0 never starts"),
            }
        }

        fn golden(&self) {}

        fn validate(&self) -> Vec<TensorVerdict> {
            Vec::new()
        }

        fn has_golden(&self) -> bool {
            false
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    fn dispatch(fails: Failure) -> Dispatch {
        let config = RuntimeConfig::new([RingLimits::DEFAULT; 4], NonZeroUsize::MIN);
        let pair = Pair {
            signals: Signals::new(1),
            fails,
        };
        Session::new(Box::new(pair), &config).unwrap().dispatch(Duration::ZERO)
    }

    #[test]
    fn ranks_meet_and_pass() {
        let dispatch = dispatch(Failure::None);
        assert!(dispatch.passed() && dispatch.device().is_some(), "{dispatch:?}");
    }

    #[test]
    fn the_first_failing_rank_is_the_cause_and_stops_the_other() {
        for fails in [Failure::Explicit, Failure::TaskPanics, Failure::ProgramPanics] {
            let start = Instant::now();
            let dispatch = dispatch(fails);
            assert_eq!(dispatch.failed, Some(0), "{dispatch:?}");
            assert!(dispatch.ranks[1].is_fallout(), "{dispatch:?}");
            assert!(dispatch.device().is_none());
            // Long before the watchdog of rank 1 would give up.
            assert!(start.elapsed() < Duration::from_secs(5));
        }
    }

    #[test]
    fn a_delay_lengthens_the_device_time() {
        let config = RuntimeConfig::new([RingLimits::DEFAULT; 4], NonZeroUsize::MIN);
        let pair = Pair {
            signals: Signals::new(1),
            fails: Failure::None,
        };
        let mut session = Session::new(Box::new(pair), &config).unwrap();
        let delay = Duration::from_millis(30);
        assert!(session.dispatch(delay).device().unwrap() >= delay);
    }
}
