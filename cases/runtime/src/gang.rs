//! Tasks whose blocks all start together.
//!
//! Cores join one gang at a time, before they take anything else; once all blocks of the gang have
//! a core, the next gang may gather. Two half-gathered gangs would wait for each other for ever.

use std::collections::VecDeque;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The gang that gathers, and those behind it.
#[derive(Debug, Default)]
pub(crate) struct Gangs {
    /// The task that gathers, plus one; 0 for none.
    gathering: AtomicU64,
    behind: Mutex<VecDeque<u64>>,
}

const UNPOISONED: &str = "nothing panics under this lock";

impl Gangs {
    /// Adds a task.
    pub(crate) fn push(&self, task: u64) {
        let mut behind = self.behind.lock().expect(UNPOISONED);
        if self.gathering.load(Ordering::Relaxed) == 0 {
            self.gathering.store(task + 1, Ordering::Release);
        } else {
            behind.push_back(task);
        }
    }

    /// The task that wants cores.
    #[inline]
    pub(crate) fn gathering(&self) -> Option<u64> {
        self.gathering.load(Ordering::Acquire).checked_sub(1)
    }

    /// All blocks of the gathering task have a core: the next may gather.
    pub(crate) fn gathered(&self) {
        let mut behind = self.behind.lock().expect(UNPOISONED);
        let next = behind.pop_front().map_or(0, |task| task + 1);
        self.gathering.store(next, Ordering::Release);
    }

    /// How many tasks gather or wait to.
    pub(crate) fn len(&self) -> usize {
        let behind = self.behind.lock().expect(UNPOISONED);
        behind.len() + usize::from(self.gathering.load(Ordering::Relaxed) != 0)
    }

    pub(crate) fn clear(&self) {
        self.behind.lock().expect(UNPOISONED).clear();
        self.gathering.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_gang_gathers_at_a_time() {
        let gangs = Gangs::default();
        assert_eq!(gangs.gathering(), None);
        gangs.push(0);
        gangs.push(5);
        assert_eq!((gangs.gathering(), gangs.len()), (Some(0), 2));
        gangs.gathered();
        assert_eq!(gangs.gathering(), Some(5));
        gangs.gathered();
        assert_eq!((gangs.gathering(), gangs.len()), (None, 0));
    }
}
