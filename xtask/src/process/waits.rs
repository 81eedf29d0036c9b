//! Time that a child waits for somebody else, which is no part of its budgets.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Says when a child waits for what is not its own doing, such as the turn of a program that it is measured beside.
///
/// The budgets of a child are those of a child that is alone. Without this, one that hangs would take the one that
/// waits for it along: both began at the same time, so both would run out of time together.
#[derive(Clone, Debug, Default)]
pub struct Waits(Arc<Mutex<Waited>>);

#[derive(Debug, Default)]
struct Waited {
    /// What it has waited so far.
    over: Duration,
    /// Since when it waits again.
    since: Option<Instant>,
}

impl Waits {
    fn waited(&self) -> MutexGuard<'_, Waited> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the child waits.
    pub fn begin(&self) {
        self.waited().since.get_or_insert_with(Instant::now);
    }

    /// Now the child goes on.
    pub fn end(&self) {
        let mut waited = self.waited();
        if let Some(since) = waited.since.take() {
            waited.over += since.elapsed();
        }
    }

    /// `at` on a clock that stands still while the child waits.
    pub(super) fn clock(&self, at: Instant) -> Instant {
        let waited = self.waited();
        let now = waited
            .since
            .map_or(Duration::ZERO, |since| at.saturating_duration_since(since));
        at.checked_sub(waited.over + now).unwrap_or(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_stands_still_while_the_child_waits() {
        let waits = Waits::default();
        let start = Instant::now();
        assert_eq!(waits.clock(start), start);
        waits.begin();
        let later = Instant::now() + Duration::from_hours(1);
        let still = waits.clock(later);
        assert_eq!(waits.clock(later + Duration::from_hours(1)), still);
        // Who says it twice waits once.
        waits.begin();
        assert_eq!(waits.clock(later), still);
        std::thread::sleep(Duration::from_millis(20));
        waits.end();
        waits.end();
        let after = later - waits.clock(later);
        assert!(
            Duration::from_millis(20) <= after && after < Duration::from_mins(30),
            "{after:?}"
        );
        // It goes on at the speed of the other clock.
        let hour = Duration::from_hours(1);
        assert_eq!(waits.clock(later + hour) - waits.clock(later), hour);
    }
}
