//! Dispatches of one instance: every rank on a thread and a runtime of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ring_runtime::{ConfigError, RunEnd, RunReport, Runtime, RuntimeConfig};

use crate::kernel::Instance;

/// How one rank of a dispatch ended.
#[derive(Debug)]
pub enum RankEnd {
    /// Its runtime reported.
    Reported(RunReport),
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
        let runtimes = (0..instance.ranks())
            .map(|_| Runtime::new(config.clone()))
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

    /// Resets the arguments and runs the program once on every rank. `delay` is spent, busy, inside of the timed interval.
    pub fn dispatch(&mut self, delay: Duration) -> Dispatch {
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
                Ok(report) => RankEnd::Reported(report),
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
