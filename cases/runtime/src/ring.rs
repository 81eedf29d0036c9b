//! The orchestrator's book-keeping of one ring: ids, heap, pools, and what each slot's task took.

use std::sync::atomic::Ordering;

use crate::config::RingLimits;
use crate::fatal::{PoolState, RingState};
use crate::heap::{Block, Heap};
use crate::ids::{RingId, TaskId};
use crate::pools::{DepPool, PoolCounters, SpillPool};
use crate::report::RingUsage;
use crate::shared::Shared;

/// What the task of a slot took, and where its fan-in edge stands while a consumer is submitted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) name: &'static str,
    /// End of its heap block.
    heap_end: u64,
    /// Top of the dependency pool when it was linked; `None` for an allocation.
    pub(crate) mark: Option<u64>,
    /// Top of the spill pool behind its last spilled edge; 0 if none was.
    pub(crate) spill_end: u64,
    /// Submission that claimed the task last, and the edge that this made.
    pub(crate) claimed_by: u64,
    pub(crate) edge: u32,
}

/// See the module. Only the program's thread uses it.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) id: RingId,
    limits: RingLimits,
    /// Id of the next task.
    next: u32,
    /// Oldest task that is not consumed, as of the last look.
    last_alive: u32,
    /// Tasks whose tensor-map entries were freed: all below.
    pub(crate) cleaned: u32,
    pub(crate) heap: Heap,
    pub(crate) deps: DepPool,
    pub(crate) spill: SpillPool,
    taken: Vec<Taken>,
    tasks_high_water: u32,
}

impl Ring {
    pub(crate) fn new(id: RingId, limits: RingLimits) -> Self {
        Self {
            id,
            limits,
            next: 0,
            last_alive: 0,
            cleaned: 0,
            heap: Heap::new(limits.heap()),
            deps: DepPool::new(limits.dep_pool()),
            spill: SpillPool::new(limits.dep_pool()),
            taken: Vec::new(),
            tasks_high_water: 0,
        }
    }

    /// Forgets everything; keeps the memory.
    pub(crate) fn clear(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        taken.clear();
        *self = Self {
            taken,
            ..Self::new(self.id, self.limits)
        };
    }

    pub(crate) fn window(&self) -> u32 {
        self.limits.task_window()
    }

    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    pub(crate) fn last_alive(&self) -> u32 {
        self.last_alive
    }

    pub(crate) fn active(&self) -> u32 {
        self.next - self.last_alive
    }

    /// Oldest live task.
    pub(crate) fn head(&self) -> Option<TaskId> {
        (self.last_alive < self.next).then(|| TaskId::new(self.id, self.last_alive))
    }

    /// Name of a live task.
    pub(crate) fn name(&self, local: u32) -> &'static str {
        self.taken[(local & (self.window() - 1)) as usize].name
    }

    /// Whether a slot is free: at most `window - 1` tasks are live.
    pub(crate) fn has_slot(&self) -> bool {
        self.active() + 1 < self.window()
    }

    #[inline]
    pub(crate) fn taken(&mut self, local: u32) -> &mut Taken {
        let index = (local & (self.limits.task_window() - 1)) as usize;
        &mut self.taken[index]
    }

    /// Advances over consumed tasks and takes back what they held. Returns whether there were any.
    pub(crate) fn retire(&mut self, shared: &Shared) -> bool {
        let before = self.last_alive;
        while self.last_alive < self.next
            && shared
                .slot(TaskId::new(self.id, self.last_alive))
                .life
                .load()
                .consumed()
        {
            let spill_end = self.taken(self.last_alive).spill_end;
            if spill_end > 0 {
                self.spill.retire(spill_end);
            }
            self.last_alive += 1;
        }
        if self.last_alive == before {
            return false;
        }
        let end = self.taken(self.last_alive - 1).heap_end;
        self.heap.reclaim(self.last_alive, end);
        shared.rings[self.id.index()]
            .alive_from
            .store(self.last_alive, Ordering::Release);
        true
    }

    /// Gives the next task `request` bytes of heap, if there is room. There is a slot.
    pub(crate) fn admit(&mut self, request: u64, name: &'static str, shared: &Shared) -> Option<(TaskId, Block)> {
        let local = self.next;
        let block = self.heap.place(request, local)?;
        let index = (local & (self.window() - 1)) as usize;
        let taken = Taken {
            name,
            heap_end: block.end,
            ..Taken::default()
        };
        if index == self.taken.len() {
            self.taken.push(taken);
        } else {
            self.taken[index] = taken;
        }
        self.next += 1;
        self.tasks_high_water = self.tasks_high_water.max(self.active());
        shared.rings[self.id.index()].next.store(self.next, Ordering::Release);
        Some((TaskId::new(self.id, local), block))
    }

    /// Frees dependency entries, if it is time.
    pub(crate) fn reclaim_deps(&mut self) {
        let last_alive = self.last_alive;
        if last_alive > 0 {
            let mark = self.taken(last_alive - 1).mark;
            self.deps.reclaim(last_alive, || mark);
        }
    }

    /// The numbers of a failed allocation.
    pub(crate) fn state(&self, requested: u64) -> RingState {
        RingState {
            requested,
            top: self.heap.top(),
            tail: self.heap.tail(),
            capacity: self.heap.size(),
            used: self.heap.used(),
            free: self.heap.available(),
            current: self.next,
            last_alive: self.last_alive,
            window: self.window(),
        }
    }

    /// The numbers of an exhausted pool.
    pub(crate) fn pool_state(&self, counters: PoolCounters, needed: u32) -> PoolState {
        PoolState {
            needed,
            used: counters.used(),
            capacity: counters.capacity,
            high_water: counters.high_water,
            top: counters.top,
            tail: counters.tail,
            current: self.next,
            last_alive: self.last_alive,
        }
    }

    pub(crate) fn usage(&self) -> RingUsage {
        RingUsage {
            heap_capacity: self.heap.size(),
            heap_high_water: self.heap.high_water(),
            task_window: self.window(),
            tasks_high_water: self.tasks_high_water,
            tasks_submitted: self.next,
            dep_pool: self.limits.dep_pool(),
            dep_pool_high_water: self.deps.counters().high_water,
            fanin_high_water: self.spill.counters().high_water,
        }
    }
}
