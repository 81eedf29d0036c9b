//! The no-progress watchdog: a thread that looks at the counters of a run.
//!
//! It never touches a task. A run without any submission, block or completion for the scheduler
//! time limit (wall-clock, not a number of looks) is given up, and the counters say what kind of stall it is.
//! Only a core that is in a block can be the stuck one; idle cores are never blamed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ids::TaskId;
use crate::report::RunEnd;
use crate::shared::{Shared, Tally};
use crate::stall::{Stall, StallClass};
use crate::sync::atomic::Ordering;
use crate::sync::{Condvar, Mutex};

/// When the watchdog is to look.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the run that is on, if one is.
    run: Option<u64>,
    runs: u64,
    over: bool,
}

const UNPOISONED: &str = "nothing panics under this lock";

impl Watch {
    /// A run begins.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock().expect(UNPOISONED);
        state.runs += 1;
        state.run = Some(state.runs);
        self.changed.notify_all();
    }

    /// The run is over.
    pub(crate) fn end(&self) {
        self.state.lock().expect(UNPOISONED).run = None;
    }

    /// The runtime is going away.
    pub(crate) fn shut_down(&self) {
        self.state.lock().expect(UNPOISONED).over = true;
        self.changed.notify_all();
    }

    /// Body of the watchdog's thread.
    pub(crate) fn watch(&self, shared: &Arc<Shared>) {
        let limit = shared.config.timeouts.scheduler;
        let tick = (limit / 20).clamp(Duration::from_millis(1), Duration::from_millis(100));
        let mut seen: Option<(u64, Seen)> = None;
        let mut state = self.state.lock().expect(UNPOISONED);
        while !state.over {
            let Some(run) = state.run else {
                state = self.changed.wait(state).expect(UNPOISONED);
                continue;
            };
            match &mut seen {
                Some((same, seen)) if *same == run => {
                    if seen.look(shared) >= limit && !shared.stop.is_raised() {
                        shared.end(RunEnd::Stalled(seen.classify(shared)));
                    }
                }
                Some(_) | None => seen = Some((run, Seen::new(shared))),
            }
            state = self.changed.wait_timeout(state, tick).expect(UNPOISONED).0;
        }
    }
}

/// What the last look saw.
struct Seen {
    progress: u64,
    since: Instant,
    /// Per core: the block that it is in, and since when.
    cores: Vec<(u64, u64, Instant)>,
}

impl Seen {
    fn new(shared: &Shared) -> Self {
        let now = Instant::now();
        Self {
            progress: progress(shared),
            since: now,
            cores: shared
                .cores
                .iter()
                .map(|core| (running(core), core.blocks.get(), now))
                .collect(),
        }
    }

    /// How long there has been no progress.
    fn look(&mut self, shared: &Shared) -> Duration {
        let (now, progress) = (Instant::now(), progress(shared));
        if progress != self.progress {
            (self.progress, self.since) = (progress, now);
        }
        for (seen, core) in self.cores.iter_mut().zip(&shared.cores) {
            let (task, block) = (running(core), core.blocks.get());
            if (task, block) != (seen.0, seen.1) {
                *seen = (task, block, now);
            }
        }
        now - self.since
    }

    fn classify(&self, shared: &Shared) -> Stall {
        let completed = shared.total(|tally| &tally.completed);
        let total = shared.program.submitted.get();
        let running = self.cores.iter().filter(|core| core.0 != 0).count();
        let ready = shared.ready.len() + shared.gangs.len();
        let waiting = total.saturating_sub(shared.total(|tally| &tally.readied));
        let orch_done = shared.orch_done.load(Ordering::Acquire);
        let stuck_core = self
            .cores
            .iter()
            .enumerate()
            .filter(|(_, core)| core.0 != 0)
            .min_by_key(|(_, core)| core.2)
            .map(|(index, _)| index);
        let stuck_task = stuck_core
            .map(|core| TaskId::from_u64(self.cores[core].0 - 1))
            .or_else(|| shared.oldest_incomplete());
        Stall {
            class: StallClass::of(running, ready, waiting, orch_done),
            completed,
            total,
            running,
            ready,
            waiting,
            orch_done,
            stuck_task: stuck_task.map(|task| (task, shared.name_of(task))),
            stuck_core,
        }
    }
}

fn running(core: &Tally) -> u64 {
    core.running.load(Ordering::Acquire)
}

/// Grows with everything that counts as progress.
fn progress(shared: &Shared) -> u64 {
    shared.total(|tally| &tally.submitted)
        + shared.total(|tally| &tally.completed)
        + shared.total(|tally| &tally.blocks)
        + shared.total(|tally| &tally.blocks_done)
}
