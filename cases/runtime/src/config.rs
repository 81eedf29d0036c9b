//! What a runtime is built with: ring limits, cores, time limits.
//!
//! Nothing here reads the environment or picks a default for a value that was given: resolving tiers
//! is the caller's business, and a value out of range is an error.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::ids::{RINGS, RingId};

/// Least heap of a ring, in bytes.
pub const MIN_HEAP: u64 = 1024;
/// Least number of task slots or pool entries of a ring.
pub const MIN_COUNT: u32 = 4;
/// Entries of the tensor map unless configured otherwise.
pub const DEFAULT_TENSORMAP_ENTRIES: usize = 65_536;

/// Capacities of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLimits {
    heap: u64,
    task_window: u32,
    dep_pool: u32,
}

impl RingLimits {
    /// Default heap of a ring: 256 MiB.
    pub const DEFAULT_HEAP: u64 = 256 << 20;
    /// Default number of task slots of a ring.
    pub const DEFAULT_TASK_WINDOW: u32 = 16_384;
    /// Default number of entries of a ring's dependency pool and of its fan-in spill pool.
    pub const DEFAULT_DEP_POOL: u32 = 16_384;
    /// The defaults of all three resources.
    pub const DEFAULT: Self = Self {
        heap: Self::DEFAULT_HEAP,
        task_window: Self::DEFAULT_TASK_WINDOW,
        dep_pool: Self::DEFAULT_DEP_POOL,
    };

    /// Checks and takes the capacities of one ring.
    ///
    /// `heap` in bytes, at least 1024, no power of two needed; `task_window` a power of two of at least 4;
    /// `dep_pool` at least 4; the counts at most 2³¹ − 1.
    pub fn new(heap: u64, task_window: u32, dep_pool: u32) -> Result<Self, ConfigError> {
        if heap < MIN_HEAP {
            return Err(ConfigError::HeapTooSmall { heap });
        }
        if task_window < MIN_COUNT || !task_window.is_power_of_two() || task_window > i32::MAX as u32 {
            return Err(ConfigError::TaskWindow { task_window });
        }
        if dep_pool < MIN_COUNT || dep_pool > i32::MAX as u32 {
            return Err(ConfigError::DepPool { dep_pool });
        }
        Ok(Self {
            heap,
            task_window,
            dep_pool,
        })
    }

    /// Heap, in bytes.
    pub const fn heap(&self) -> u64 {
        self.heap
    }

    /// Task slots; at most one less is ever live.
    pub const fn task_window(&self) -> u32 {
        self.task_window
    }

    /// Entries of the dependency pool, and as many of the fan-in spill pool.
    pub const fn dep_pool(&self) -> u32 {
        self.dep_pool
    }
}

/// Wall-clock limits (monotonic clock). They end a run that makes no progress; no rule of the rings depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// How long the orchestrator waits for room without any reclaim on that ring: the backstop behind the structural proof.
    pub alloc: Duration,
    /// How long the run may go without any submission, block or task ending.
    pub scheduler: Duration,
    /// How long a wait for tensor data may last.
    pub tensor_wait: Duration,
    /// How long a run that has ended early waits for blocks that are still running before it abandons their cores.
    pub grace: Duration,
}

impl Timeouts {
    /// Allocation 500 ms, scheduler 10 s, tensor wait 15 s, grace 2 s.
    pub const DEFAULT: Self = Self {
        alloc: Duration::from_millis(500),
        scheduler: Duration::from_secs(10),
        tensor_wait: Duration::from_secs(15),
        grace: Duration::from_secs(2),
    };
}

/// Everything a `Runtime` is built with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// Capacities of rings 0 to 3.
    pub rings: [RingLimits; RINGS],
    /// Worker threads that run blocks.
    pub cores: NonZeroUsize,
    /// Capacity of the tensor map, which all rings share.
    pub tensormap_entries: usize,
    /// Wall-clock limits.
    pub timeouts: Timeouts,
    /// How many scope records the report keeps; of more scopes, those with the largest peaks.
    pub scope_records: usize,
    /// Whether the report has the requests of the run.
    pub keep_requests: bool,
    /// Keeps core `i` on the processor `n + i`, counted over those that the process may use and round again,
    /// and the program on processor `n` while it runs; `None` leaves it to the operating system.
    pub first_processor: Option<usize>,
}

impl RuntimeConfig {
    /// A runtime of `cores` cores with these rings, the default tensor map and the default time limits.
    pub const fn new(rings: [RingLimits; RINGS], cores: NonZeroUsize) -> Self {
        Self {
            rings,
            cores,
            tensormap_entries: DEFAULT_TENSORMAP_ENTRIES,
            timeouts: Timeouts::DEFAULT,
            scope_records: 256,
            keep_requests: false,
            first_processor: None,
        }
    }

    /// The same with other time limits.
    #[must_use]
    pub const fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// The same with the requests of each run in its report.
    #[must_use]
    pub const fn with_requests(mut self) -> Self {
        self.keep_requests = true;
        self
    }

    /// The same with cores that stay on their processors, from number `first` on: for measurements.
    #[must_use]
    pub const fn with_fixed_processors(mut self, first: usize) -> Self {
        self.first_processor = Some(first);
        self
    }

    /// Checks what concerns more than one ring.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        self.rings
            .iter()
            .try_fold(0u64, |sum, ring| sum.checked_add(ring.heap))
            .ok_or(ConfigError::HeapSum)?;
        if self.tensormap_entries == 0 || self.tensormap_entries > i32::MAX as usize {
            return Err(ConfigError::TensorMap {
                entries: self.tensormap_entries,
            });
        }
        if self.timeouts.alloc.is_zero() || self.timeouts.alloc >= self.timeouts.scheduler {
            return Err(ConfigError::TimeoutOrder {
                alloc: self.timeouts.alloc,
                scheduler: self.timeouts.scheduler,
            });
        }
        Ok(())
    }
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A heap below [`MIN_HEAP`].
    #[error("ring heap of `{heap}` bytes is below the least heap of 1024 bytes")]
    HeapTooSmall {
        /// What was asked for, in bytes.
        heap: u64,
    },
    /// A window that is no power of two, or out of range.
    #[error("task window of `{task_window}` is not a power of two from 4 to 2^30")]
    TaskWindow {
        /// What was asked for.
        task_window: u32,
    },
    /// A pool out of range.
    #[error("dependency pool of `{dep_pool}` entries is not within 4 to 2147483647")]
    DepPool {
        /// What was asked for.
        dep_pool: u32,
    },
    /// The four heaps together exceed 64 bits.
    #[error("the sum of the four ring heaps does not fit 64 bits")]
    HeapSum,
    /// A tensor map without entries, or beyond 2³¹ − 1.
    #[error("tensor map of `{entries}` entries is not within 1 to 2147483647")]
    TensorMap {
        /// What was asked for.
        entries: usize,
    },
    /// The allocation limit must be hit before the scheduler's, or a full ring would be reported as a stall.
    #[error("allocation limit of {alloc:?} must be above zero and below the scheduler limit of {scheduler:?}")]
    TimeoutOrder {
        /// Allocation limit.
        alloc: Duration,
        /// Scheduler limit.
        scheduler: Duration,
    },
    /// The operating system refused to map a heap.
    #[error("failed to map the heap of ring {ring}, `{bytes}` bytes")]
    Map {
        /// Which ring.
        ring: RingId,
        /// Heap size in bytes.
        bytes: u64,
        /// The refusal.
        source: std::io::Error,
    },
    /// The operating system refused to start a worker thread.
    #[error("failed to start core `{core}`")]
    Thread {
        /// Which core.
        core: usize,
        /// The refusal.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(heap: u64, window: u32, pool: u32, valid: bool) {
        assert_eq!(RingLimits::new(heap, window, pool).is_ok(), valid);
    }

    #[test]
    fn limits_at_their_edges() {
        check(1024, 4, 4, true);
        check(1023, 4, 4, false);
        check(1025, 4, 4, true);
        check(1024, 2, 4, false);
        check(1024, 12, 4, false);
        check(1024, 1 << 30, i32::MAX as u32, true);
        check(1024, 1 << 31, 4, false);
        check(1024, 4, 3, false);
        check(1024, 4, 1 << 31, false);
    }

    #[test]
    fn heaps_must_not_overflow_together() {
        let huge = RingLimits::new(u64::MAX / 2, 4, 4).unwrap();
        let config = RuntimeConfig::new([huge; RINGS], NonZeroUsize::MIN);
        assert!(matches!(config.validate(), Err(ConfigError::HeapSum)));
    }

    #[test]
    fn allocation_limit_must_come_before_the_scheduler_limit() {
        let timeouts = Timeouts {
            alloc: Duration::from_secs(10),
            ..Timeouts::DEFAULT
        };
        let config = RuntimeConfig::new([RingLimits::DEFAULT; RINGS], NonZeroUsize::MIN).with_timeouts(timeouts);
        assert!(matches!(config.validate(), Err(ConfigError::TimeoutOrder { .. })));
    }
}
