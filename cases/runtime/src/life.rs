//! The life of a task: pending, completed, consumed.
//!
//! A task is *consumed* once it is completed, its scope has ended, and everyone who claimed it has
//! released it; only then may its slot and heap be reused. All four facts live in one word, so
//! "consumed" is not a transition that somebody must make but a property that can be read, and once
//! it holds it holds for good: claims are refused from then on.

use crate::sync::atomic::{AtomicU64, Ordering};

const COMPLETED: u64 = 1 << 63;
const SCOPE_RELEASED: u64 = 1 << 62;
const CLAIM: u64 = 1 << 31;
const DONE_MASK: u64 = CLAIM - 1;

/// What a [`Life`] said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LifeState(u64);

impl LifeState {
    pub(crate) fn completed(self) -> bool {
        self.0 & COMPLETED != 0
    }

    pub(crate) fn scope_released(self) -> bool {
        self.0 & SCOPE_RELEASED != 0
    }

    /// How often the task was claimed by consumers.
    pub(crate) fn claimed(self) -> u32 {
        ((self.0 & !(COMPLETED | SCOPE_RELEASED)) >> 31) as u32
    }

    /// How many of these claims were released.
    pub(crate) fn done(self) -> u32 {
        (self.0 & DONE_MASK) as u32
    }

    pub(crate) fn consumed(self) -> bool {
        self.completed() && self.scope_released() && self.claimed() == self.done()
    }
}

/// See the module.
///
/// Memory order: whoever sees a task completed or consumed sees all that happened before the
/// completion and the releases. Everything but `load` is a read-modify-write that acquires and
/// releases, so the order is that of the word's modifications.
#[derive(Debug)]
pub(crate) struct Life(AtomicU64);

impl Default for Life {
    /// Consumed, so that a slot that never held a task can't be claimed.
    fn default() -> Self {
        Self(AtomicU64::new(COMPLETED | SCOPE_RELEASED))
    }
}

impl Life {
    /// Begins the life of a new occupant. The former one is consumed, so nobody else changes the word.
    pub(crate) fn begin(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Begins the life of an occupant that is complete from the start.
    pub(crate) fn begin_completed(&self) {
        self.0.store(COMPLETED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn load(&self) -> LifeState {
        LifeState(self.0.load(Ordering::Acquire))
    }

    /// Keeps the task from being consumed until [`Self::release`]; refused when it is consumed already.
    pub(crate) fn claim(&self) -> bool {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (!LifeState(word).consumed()).then_some(word + CLAIM)
            })
            .is_ok()
    }

    /// Ends one claim. Returns whether that consumed the task.
    pub(crate) fn release(&self) -> bool {
        LifeState(self.0.fetch_add(1, Ordering::AcqRel) + 1).consumed()
    }

    /// The task's work is done. Returns whether that consumed the task.
    pub(crate) fn complete(&self) -> bool {
        LifeState(self.0.fetch_or(COMPLETED, Ordering::AcqRel) | COMPLETED).consumed()
    }

    /// The task's scope has ended. Returns whether that consumed the task.
    pub(crate) fn release_scope(&self) -> bool {
        LifeState(self.0.fetch_or(SCOPE_RELEASED, Ordering::AcqRel) | SCOPE_RELEASED).consumed()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_consumed_before_its_scope_ends() {
        let life = Life::default();
        life.begin();
        assert!(!life.complete());
        assert!(life.release_scope());
    }

    #[test]
    fn a_claim_keeps_a_completed_task() {
        let life = Life::default();
        life.begin();
        assert!(life.claim() && life.claim());
        life.complete();
        life.release_scope();
        assert!(!life.release());
        assert_eq!((life.load().claimed(), life.load().done()), (2, 1));
        assert!(life.release());
    }

    #[test]
    fn a_consumed_task_refuses_claims() {
        let life = Life::default();
        assert!(!life.claim(), "a slot without an occupant");
        life.begin();
        life.complete();
        life.release_scope();
        assert!(!life.claim());
    }
}
