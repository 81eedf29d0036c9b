//! What the program's thread, the cores and the watchdog share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::RuntimeConfig;
use crate::fanout::{Entry, EntryRef};
use crate::gang::Gangs;
use crate::halt::StopFlag;
use crate::idle::Idle;
use crate::ids::{RINGS, RingId, TaskId};
use crate::memory::Memory;
use crate::queue::Queue;
use crate::report::RunEnd;
use crate::segments::Segments;
use crate::slot::Slot;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::yield_now;

/// Counters of one thread; only that thread changes them. A cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    /// Tasks submitted (program's thread only).
    pub(crate) submitted: Count,
    /// Tasks that became ready, or needed nothing to be.
    pub(crate) readied: Count,
    /// Blocks begun.
    pub(crate) blocks: Count,
    /// Blocks that ended.
    pub(crate) blocks_done: Count,
    /// Tasks completed.
    pub(crate) completed: Count,
    /// The task whose block the core is in, plus one; 0 for none.
    pub(crate) running: AtomicU64,
    /// Whether the core may hold a ticket. While the cores rest, false is a promise that it touches
    /// no slot.
    pub(crate) busy: AtomicBool,
}

impl Tally {
    /// Called by the core itself once it holds no ticket any more.
    #[inline]
    pub(crate) fn end_look(&self) {
        // Release: who sees the core at rest sees all that it did.
        self.busy.store(false, Ordering::Release);
    }
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add_one(&self) {
        // Not a read-modify-write: nobody else writes.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The shared part of a ring.
#[derive(Debug)]
pub(crate) struct SharedRing {
    pub(crate) slots: Segments<Slot>,
    slot_mask: u32,
    pub(crate) entries: Segments<Entry>,
    /// Ids of live tasks, for the watchdog: from `alive_from` to before `next`.
    pub(crate) alive_from: AtomicU32,
    pub(crate) next: AtomicU32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: RuntimeConfig,
    pub(crate) memories: [Arc<Memory>; RINGS],
    pub(crate) rings: [SharedRing; RINGS],
    /// Tasks with blocks for cores. Twice the windows, since a ticket may outlive its task until it is looked at.
    pub(crate) ready: Queue,
    pub(crate) gangs: Gangs,
    pub(crate) cores: Box<[Tally]>,
    pub(crate) program: Tally,
    /// Cores without work.
    pub(crate) cores_idle: Idle,
    /// The program's thread, waiting for some task to complete or retire.
    pub(crate) program_blocked: Idle,
    /// The program's thread, waiting for all tasks to complete.
    pub(crate) program_draining: Idle,
    pub(crate) stop: StopFlag,
    end: Mutex<Option<RunEnd>>,
    pub(crate) orch_done: AtomicBool,
    /// No run is on: no core takes a ticket, see [`Shared::rest`].
    resting: AtomicBool,
    /// Fault: cores find no work.
    pub(crate) deaf: AtomicBool,
    /// The runtime is going away.
    pub(crate) shutdown: AtomicBool,
    /// Somebody has asked for this and all later runs to end.
    pub(crate) stopped: AtomicBool,
}

const UNPOISONED: &str = "nothing panics under this lock";

impl Shared {
    pub(crate) fn new(config: RuntimeConfig, memories: [Arc<Memory>; RINGS]) -> Self {
        let cores = config.cores.get();
        let windows: usize = config.rings.iter().map(|ring| ring.task_window() as usize).sum();
        let rings = config.rings.map(|ring| SharedRing {
            slots: Segments::new(ring.task_window() as usize),
            slot_mask: ring.task_window() - 1,
            entries: Segments::new(ring.dep_pool() as usize),
            alive_from: AtomicU32::new(0),
            next: AtomicU32::new(0),
        });
        Self {
            memories,
            rings,
            ready: Queue::new(2 * windows),
            gangs: Gangs::default(),
            cores: (0..cores).map(|_| Tally::default()).collect(),
            program: Tally::default(),
            cores_idle: Idle::new(cores),
            program_blocked: Idle::new(1),
            program_draining: Idle::new(1),
            stop: StopFlag::new(),
            end: Mutex::new(None),
            orch_done: AtomicBool::new(false),
            resting: AtomicBool::new(true),
            deaf: AtomicBool::new(false),
            shutdown: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            config,
        }
    }

    /// A run begins: cores may take tickets. What was done before is visible to them.
    pub(crate) fn wake(&self) {
        self.resting.store(false, Ordering::Release);
    }

    /// A run is over: waits until no core touches a task any more, and withdraws all tickets.
    ///
    /// `false` when some core is still in a block after `limit`. Needed after a passed run too: a
    /// ticket may outlive its task, and the next run has tasks of the same number in the same slots.
    ///
    /// A core says that it is busy, then looks whether the cores rest; here the two come in the other
    /// order. With a sequentially consistent fence between the steps on both sides, a core that is
    /// not seen busy here has seen, or will see, that it must not take a ticket.
    pub(crate) fn rest(&self, limit: Duration) -> bool {
        self.resting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let (begin, mut looks) = (Instant::now(), 0);
        while self.cores.iter().any(|core| core.busy.load(Ordering::Acquire)) {
            // A core that only had to leave its last task is gone at once; a block may take long.
            looks += 1;
            if looks < 64 {
                yield_now();
            } else if begin.elapsed() >= limit {
                return false;
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        while self.ready.pop().is_some() {}
        self.gangs.clear();
        true
    }

    /// Called by a core before it takes a ticket: whether it may. If not, it is not busy any more.
    #[inline]
    pub(crate) fn begin_look(&self, tally: &Tally) -> bool {
        tally.busy.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = !self.resting.load(Ordering::Acquire);
        if !may {
            tally.end_look();
        }
        may
    }

    /// Whether a core without work should look again instead of sleeping.
    pub(crate) fn work_waits(&self) -> bool {
        self.shutdown.load(Ordering::Acquire)
            || !self.resting.load(Ordering::Relaxed)
                && !self.deaf.load(Ordering::Relaxed)
                && (self.ready.len() > 0 || self.gangs.gathering().is_some())
    }

    /// Makes everything as new. The cores rest.
    pub(crate) fn reset(&self) {
        for ring in &self.rings {
            for slot in ring.slots.touched() {
                slot.reset();
            }
            ring.alive_from.store(0, Ordering::Relaxed);
            ring.next.store(0, Ordering::Relaxed);
        }
        for tally in self.cores.iter().chain([&self.program]) {
            for count in [
                &tally.submitted,
                &tally.readied,
                &tally.blocks,
                &tally.blocks_done,
                &tally.completed,
            ] {
                count.reset();
            }
        }
        self.gangs.clear();
        self.orch_done.store(false, Ordering::Relaxed);
        self.deaf.store(false, Ordering::Relaxed);
        *self.end.lock().expect(UNPOISONED) = None;
        self.stop.lower();
    }

    #[inline]
    pub(crate) fn slot(&self, task: TaskId) -> &Slot {
        let ring = &self.rings[task.ring().index()];
        ring.slots.get((task.local() & ring.slot_mask) as usize)
    }

    pub(crate) fn entry(&self, name: EntryRef) -> &Entry {
        self.rings[name.ring()].entries.get(name.index())
    }

    /// Sum of a counter over all threads.
    pub(crate) fn total(&self, count: impl Fn(&Tally) -> &Count) -> u64 {
        self.cores
            .iter()
            .chain([&self.program])
            .map(|tally| count(tally).get())
            .sum()
    }

    pub(crate) fn all_completed(&self) -> bool {
        self.total(|tally| &tally.completed) == self.program.submitted.get()
    }

    /// Ends the run, unless it has ended already: the first reason counts, later ones are fallout.
    pub(crate) fn end(&self, end: RunEnd) {
        {
            let mut slot = self.end.lock().expect(UNPOISONED);
            if slot.is_none() {
                *slot = Some(end);
            }
        }
        self.stop.raise();
        self.program_blocked.wake_all();
        self.program_draining.wake_all();
        self.cores_idle.wake_all();
    }

    /// Why the run has ended, if it has.
    pub(crate) fn take_end(&self) -> Option<RunEnd> {
        self.end.lock().expect(UNPOISONED).take()
    }

    /// Name of a task that is live, for messages.
    pub(crate) fn name_of(&self, task: TaskId) -> &'static str {
        self.slot(task).work.try_read().map_or("unknown", |work| work.name)
    }

    /// Oldest task that has not completed, over all rings.
    pub(crate) fn oldest_incomplete(&self) -> Option<TaskId> {
        RingId::ALL.into_iter().find_map(|ring| {
            let shared = &self.rings[ring.index()];
            let alive = shared.alive_from.load(Ordering::Acquire)..shared.next.load(Ordering::Acquire);
            alive
                .map(|local| TaskId::new(ring, local))
                .find(|task| !self.slot(*task).life.load().completed())
        })
    }
}
