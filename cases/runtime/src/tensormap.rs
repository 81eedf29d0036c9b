//! Who wrote which window of a buffer last: the source of dependencies between tasks.
//!
//! Entries are made for arguments that write an existing tensor. Fresh outputs need none, since they
//! are reached through their owner. Only the orchestrator uses the map.

use crate::ids::{RINGS, TaskId};
use crate::overlap::{Overlap, Window};

const BUCKETS: usize = 4096;
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry {
    buffer: usize,
    window: Window,
    task: TaskId,
    previous: u32,
    next: u32,
    previous_own: u32,
    next_own: u32,
}

/// A hash table from buffer address to the windows written there.
#[derive(Debug)]
pub(crate) struct TensorMap {
    entries: Vec<Entry>,
    capacity: usize,
    free: u32,
    live: usize,
    high_water: usize,
    buckets: Box<[u32]>,
    /// Per ring and slot: the first of the entries that the slot's task made.
    own: [Vec<u32>; RINGS],
    slot_mask: [u32; RINGS],
    /// Per ring: entries of tasks below this id are stale.
    valid_from: [u32; RINGS],
}

fn bucket(buffer: usize) -> usize {
    // Multiplicative hashing: the top 12 bits of the product are the best mixed ones.
    ((buffer as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize
}

impl TensorMap {
    /// A map of at most `capacity` entries for rings of these windows.
    pub(crate) fn new(capacity: usize, windows: [u32; RINGS]) -> Self {
        Self {
            own: Default::default(),
            slot_mask: windows.map(|window| window - 1),
            entries: Vec::new(),
            capacity,
            free: NONE,
            live: 0,
            high_water: 0,
            buckets: vec![NONE; BUCKETS].into(),
            valid_from: [0; RINGS],
        }
    }

    /// Forgets everything; keeps the memory.
    pub(crate) fn clear(&mut self) {
        if self.high_water > 0 {
            self.buckets.fill(NONE);
        }
        self.entries.clear();
        self.own.iter_mut().for_each(Vec::clear);
        self.free = NONE;
        self.live = 0;
        self.high_water = 0;
        self.valid_from = [0; RINGS];
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Entries in use, stale ones that were not cleaned up yet included.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn high_water(&self) -> usize {
        self.high_water
    }

    pub(crate) fn fits(&self, needed: usize) -> bool {
        self.live + needed <= self.capacity
    }

    /// Entries of tasks of `ring` below `last_alive` are stale from now on.
    pub(crate) fn sync(&mut self, ring: usize, last_alive: u32) {
        self.valid_from[ring] = last_alive;
    }

    /// Visits the tasks that wrote some of `window`, latest entry first.
    ///
    /// With `supersede`, an entry that `window` covers is removed: whoever comes next depends on the
    /// new writer, and through it on the old one.
    pub(crate) fn lookup(&mut self, buffer: usize, window: &Window, supersede: bool, mut visit: impl FnMut(TaskId)) {
        let mut at = self.buckets[bucket(buffer)];
        while at != NONE {
            let entry = &self.entries[at as usize];
            let (here, task) = (at, entry.task);
            at = entry.next;
            if entry.buffer != buffer || task.local() < self.valid_from[task.ring().index()] {
                continue;
            }
            let overlap = window.against(&entry.window);
            if overlap == Overlap::None {
                continue;
            }
            visit(task);
            if supersede && overlap == Overlap::Covered {
                self.remove(here);
            }
        }
    }

    /// Records that `task` writes `window`. There must be room.
    pub(crate) fn insert(&mut self, buffer: usize, window: Window, task: TaskId) {
        assert!(self.fits(1), "the orchestrator checks the capacity before it inserts");
        let head = self.buckets[bucket(buffer)];
        let own_head = *self.own_head(task);
        let entry = Entry {
            buffer,
            window,
            task,
            previous: NONE,
            next: head,
            previous_own: NONE,
            next_own: own_head,
        };
        let at = if self.free == NONE {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let at = self.free;
            self.free = self.entries[at as usize].next;
            self.entries[at as usize] = entry;
            at
        };
        if head != NONE {
            self.entries[head as usize].previous = at;
        }
        if own_head != NONE {
            self.entries[own_head as usize].previous_own = at;
        }
        self.buckets[bucket(buffer)] = at;
        *self.own_head(task) = at;
        self.live += 1;
        self.high_water = self.high_water.max(self.live);
    }

    /// Frees the entries of a retired task: its own and no others.
    pub(crate) fn remove_own(&mut self, task: TaskId) {
        let slot = (task.local() & self.slot_mask[task.ring().index()]) as usize;
        while let Some(&at) = self.own[task.ring().index()].get(slot) {
            if at == NONE || self.entries[at as usize].task != task {
                return;
            }
            self.remove(at);
        }
    }

    /// Where the list of the task's entries begins.
    fn own_head(&mut self, task: TaskId) -> &mut u32 {
        let slot = (task.local() & self.slot_mask[task.ring().index()]) as usize;
        let heads = &mut self.own[task.ring().index()];
        if heads.len() <= slot {
            heads.resize(slot + 1, NONE);
        }
        &mut heads[slot]
    }

    /// Takes an entry out of its bucket and its task's list.
    fn remove(&mut self, at: u32) {
        let Entry {
            buffer,
            task,
            previous,
            next,
            previous_own,
            next_own,
            ..
        } = self.entries[at as usize];
        if previous == NONE {
            self.buckets[bucket(buffer)] = next;
        } else {
            self.entries[previous as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous_own == NONE {
            *self.own_head(task) = next_own;
        } else {
            self.entries[previous_own as usize].next_own = next_own;
        }
        if next_own != NONE {
            self.entries[next_own as usize].previous_own = previous_own;
        }
        self.entries[at as usize].next = self.free;
        self.free = at;
        self.live -= 1;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ids::RingId;
    use crate::layout::Layout;

    fn window(offset: usize, len: usize) -> Window {
        Window {
            offset,
            element: 1,
            layout: Layout::dense(&[len]),
            version: 0,
        }
    }

    fn map(capacity: usize) -> TensorMap {
        TensorMap::new(capacity, [16; RINGS])
    }

    fn task(ring: usize, local: u32) -> TaskId {
        TaskId::new(RingId::ALL[ring], local)
    }

    fn writers(map: &mut TensorMap, buffer: usize, window: Window, supersede: bool) -> Vec<u32> {
        let mut found = Vec::new();
        map.lookup(buffer, &window, supersede, |task| {
            found.push(task.local());
        });
        found
    }

    #[test]
    fn finds_overlapping_writers_of_the_same_buffer() {
        let mut map = map(8);
        map.insert(0x1000, window(0, 64), task(0, 0));
        map.insert(0x1000, window(64, 64), task(0, 1));
        map.insert(0x2000, window(0, 64), task(0, 2));
        assert_eq!(writers(&mut map, 0x1000, window(32, 64), false), [1, 0]);
        assert_eq!(writers(&mut map, 0x1000, window(0, 64), false), [0]);
    }

    #[test]
    fn a_covering_writer_supersedes() {
        let mut map = map(8);
        map.insert(0x1000, window(0, 64), task(0, 0));
        assert_eq!(writers(&mut map, 0x1000, window(0, 32), true), [0]);
        assert_eq!(writers(&mut map, 0x1000, window(0, 64), true), [0]);
        assert_eq!(writers(&mut map, 0x1000, window(0, 64), true), [0u32; 0]);
        assert_eq!(map.live(), 0);
        map.insert(0x1000, window(0, 64), task(0, 1));
        map.remove_own(task(0, 0));
        assert_eq!(map.live(), 1);
    }

    #[test]
    fn retiring_frees_own_entries_only_issue_1511() {
        let mut map = map(8);
        map.insert(0x1000, window(0, 64), task(0, 0));
        map.insert(0x1000, window(0, 64), task(0, 4));
        map.remove_own(task(0, 0));
        assert_eq!(writers(&mut map, 0x1000, window(0, 64), false), [4]);
        // Task 16 has the slot of task 0.
        map.insert(0x1000, window(0, 64), task(0, 16));
        map.remove_own(task(0, 0));
        assert_eq!(map.live(), 2, "the slot's new task keeps its entry");
    }

    #[test]
    fn stale_entries_are_skipped_without_cutting_the_chain() {
        let mut map = map(8);
        map.insert(0x1000, window(0, 64), task(1, 9));
        map.insert(0x1000, window(0, 64), task(0, 0));
        map.sync(0, 1);
        assert_eq!(writers(&mut map, 0x1000, window(0, 64), false), [9]);
    }

    #[test]
    fn freed_entries_are_reused() {
        let mut map = map(2);
        for local in 0..1000 {
            map.insert(0x1000, window(0, 64), task(0, local));
            map.insert(0x3000, window(0, 64), task(0, local));
            assert!(!map.fits(1));
            map.remove_own(task(0, local));
        }
        assert_eq!((map.live(), map.high_water(), map.entries.len()), (0, 2, 2));
    }
}
