//! How a run that is over reaches those who still take part in it.

use crate::sync::atomic::{AtomicBool, Ordering};

/// The run has failed or was stopped; there is nothing left to do but to unwind.
///
/// Carries no reason: that is in the report of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run was halted")]
pub struct Halted;

/// Raised once, when a run is to end early; lowered only between two runs.
#[derive(Debug)]
pub(crate) struct StopFlag(AtomicBool);

impl StopFlag {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Everything done before is visible to whoever sees the flag raised.
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Makes the flag ready for the next run. Nobody takes part in the former one any more.
    pub(crate) fn lower(&self) {
        self.0.store(false, Ordering::Release);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
