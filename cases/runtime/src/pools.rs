//! Accounting of the two pools of a ring: dependency entries, and fan-in edges beyond the inline ones.
//!
//! Both count with linear counters that start at 1 and free in the order of the ring's tasks.

/// Retired tasks between two reclaims of the dependency pool.
const RECLAIM_INTERVAL: u32 = 64;

/// Counters of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolCounters {
    pub(crate) capacity: u32,
    /// Next entry.
    pub(crate) top: u64,
    /// First entry in use.
    pub(crate) tail: u64,
    pub(crate) high_water: u32,
}

impl PoolCounters {
    fn new(capacity: u32) -> Self {
        Self {
            capacity,
            top: 1,
            tail: 1,
            high_water: 0,
        }
    }

    pub(crate) fn used(&self) -> u32 {
        (self.top - self.tail) as u32
    }

    fn take(&mut self) -> u64 {
        let entry = self.top;
        self.top += 1;
        self.high_water = self.high_water.max(self.used());
        entry
    }

    fn fits(&self, needed: u32) -> bool {
        u64::from(self.used()) + u64::from(needed) <= u64::from(self.capacity)
    }
}

/// The dependency pool: one entry for each producer that a task of this ring still waits for.
///
/// Space comes back late. A task records where the pool's top was when it was linked (its *mark*);
/// a reclaim frees up to the mark of the last retired task, and happens only when a request falls
/// short and at least 64 tasks were retired since the last one. Allocation tasks have no mark: a
/// reclaim that lands on one frees nothing and still restarts the interval.
#[derive(Clone, Debug)]
pub(crate) struct DepPool {
    counters: PoolCounters,
    reclaimed_at: u32,
}

impl DepPool {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            counters: PoolCounters::new(capacity),
            reclaimed_at: 0,
        }
    }

    pub(crate) fn counters(&self) -> PoolCounters {
        self.counters
    }

    pub(crate) fn fits(&self, needed: u32) -> bool {
        self.counters.fits(needed)
    }

    /// The mark of a task that is linked now.
    pub(crate) fn mark(&self) -> u64 {
        self.counters.top
    }

    /// Takes one entry; returns its index in the pool's storage.
    pub(crate) fn take(&mut self) -> usize {
        (self.counters.take() % u64::from(self.counters.capacity)) as usize
    }

    /// Gives back the entry that was taken last, before anybody else could see it.
    pub(crate) fn put_back(&mut self) {
        self.counters.top -= 1;
    }

    /// Frees up to `mark`, that of task `last_alive - 1` (`None`: an allocation task), if it is time.
    pub(crate) fn reclaim(&mut self, last_alive: u32, mark: impl FnOnce() -> Option<u64>) {
        if last_alive < self.reclaimed_at.saturating_add(RECLAIM_INTERVAL) {
            return;
        }
        if let Some(mark) = mark() {
            self.counters.tail = self.counters.tail.max(mark);
        }
        self.reclaimed_at = last_alive;
    }
}

/// The fan-in spill pool: edges of a task beyond those that its slot holds.
///
/// Freed exactly as tasks retire. The original walks the slots of retired tasks only when it is short,
/// by then possibly reading a newer task's slot and freeing a live task's edges; that defect is not kept.
#[derive(Clone, Debug)]
pub(crate) struct SpillPool {
    counters: PoolCounters,
}

impl SpillPool {
    /// Edges that a slot holds itself.
    pub(crate) const INLINE: usize = 64;

    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            counters: PoolCounters::new(capacity),
        }
    }

    pub(crate) fn counters(&self) -> PoolCounters {
        self.counters
    }

    pub(crate) fn fits_one(&self) -> bool {
        self.counters.fits(1)
    }

    /// Takes one entry; returns the top behind it.
    pub(crate) fn take(&mut self) -> u64 {
        self.counters.take() + 1
    }

    /// A task whose spill ended at `end` has retired.
    pub(crate) fn retire(&mut self, end: u64) {
        self.counters.tail = end;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reclaim_waits_for_64_retired_tasks() {
        let mut pool = DepPool::new(4);
        (0..4).for_each(|_| assert!(pool.take() < 4));
        assert!(!pool.fits(1));
        pool.reclaim(63, || Some(5));
        assert!(!pool.fits(1));
        pool.reclaim(64, || Some(5));
        assert!(pool.fits(4));
    }

    #[test]
    fn reclaim_on_an_allocation_task_frees_nothing_and_restarts_the_interval() {
        let mut pool = DepPool::new(4);
        (0..4).for_each(|_| assert!(pool.take() < 4));
        pool.reclaim(64, || None);
        pool.reclaim(65, || Some(5));
        assert!(!pool.fits(1));
        pool.reclaim(128, || Some(5));
        assert!(pool.fits(1));
    }

    #[test]
    fn storage_wraps_within_the_capacity() {
        let mut pool = DepPool::new(4);
        let taken: Vec<usize> = (0..4).map(|_| pool.take()).collect();
        assert_eq!(taken, [1, 2, 3, 0]);
        assert_eq!(pool.counters().high_water, 4);
    }

    #[test]
    fn spilled_edges_come_back_as_their_tasks_retire() {
        let mut pool = SpillPool::new(4);
        let ends: Vec<u64> = (0..4).map(|_| pool.take()).collect();
        assert!(!pool.fits_one());
        pool.retire(ends[1]);
        assert_eq!(pool.counters().used(), 2);
    }
}
