//! Small runtimes for tests.

use std::num::NonZeroUsize;
use std::time::Duration;

use ring_runtime::{Fatal, RINGS, RingLimits, RunReport, Runtime, RuntimeConfig, Task, TaskBuilder, Timeouts, Unit};

/// Limits that end a test soon, and long enough for a busy machine.
pub(crate) const QUICK: Timeouts = Timeouts {
    alloc: Duration::from_millis(50),
    scheduler: Duration::from_millis(400),
    tensor_wait: Duration::from_millis(200),
    grace: Duration::from_secs(5),
};

/// The same limits for all four rings.
pub(crate) fn limits(heap: u64, window: u32, pool: u32) -> [RingLimits; RINGS] {
    [RingLimits::new(heap, window, pool).expect("tests use valid configurations"); RINGS]
}

pub(crate) fn config(rings: [RingLimits; RINGS], cores: usize) -> RuntimeConfig {
    RuntimeConfig::new(rings, NonZeroUsize::new(cores).expect("tests use valid configurations")).with_timeouts(QUICK)
}

pub(crate) fn runtime(heap: u64, window: u32, pool: u32) -> Runtime {
    Runtime::new(config(limits(heap, window, pool), 2)).expect("tests use valid configurations")
}

#[track_caller]
pub(crate) fn fatal(report: &RunReport) -> &Fatal {
    report.fatal().unwrap_or_else(|| panic!("{:?}", report.end))
}

/// Code, resource and ring index of a fatal error.
#[track_caller]
pub(crate) fn verdict(report: &RunReport) -> (u8, &'static str, usize) {
    let fatal = fatal(report);
    let ring = fatal.ring.expect("every fatal error of these tests names a ring");
    (fatal.code.number(), fatal.resource.name(), ring.index())
}

pub(crate) fn vector(name: &'static str) -> TaskBuilder {
    Task::new(name, Unit::Vector)
}
