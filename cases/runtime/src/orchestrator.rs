//! The program's side of the runtime: scopes, allocations, tasks, waits.
//!
//! Everything here runs on the thread that called [`Runtime::run`](crate::Runtime::run). Where the
//! original would block, these calls block; where it would end the run, they end it and return
//! [`Halted`], and so does every call afterwards.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::config::RuntimeConfig;
use crate::element::Element;
use crate::fanin::Edges;
use crate::fatal::{Fatal, FatalCode, HeadTask, OpenScope, Proof, Resource, TaskState};
use crate::halt::Halted;
use crate::ids::{RINGS, RingId, TaskId};
use crate::report::{RunEnd, ScopePeaks, TaskCounts};
use crate::requests::Requests;
use crate::ring::Ring;
use crate::scope::{MAX_NESTED_SCOPES, ScopeMode, Scopes};
use crate::shared::Shared;
use crate::tensor::Tensor;
use crate::tensormap::TensorMap;

/// State of the orchestrator that outlives a run only as memory to reuse.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) rings: [Ring; RINGS],
    pub(crate) scopes: Scopes,
    pub(crate) map: TensorMap,
    pub(crate) edges: Edges,
    pub(crate) peaks: ScopePeaks,
    pub(crate) counts: TaskCounts,
    /// Kept for the report, if it is asked for.
    pub(crate) requests: Option<Requests>,
    /// Scratch space of completions.
    pub(crate) ripple: Vec<TaskId>,
    /// Scratch space of look-ups.
    pub(crate) writers: Vec<TaskId>,
    /// Most tasks that open scopes can hold together: the sum of the windows.
    pub(crate) scope_tasks: usize,
}

impl Book {
    pub(crate) fn new(config: &RuntimeConfig) -> Self {
        let windows = config.rings.map(|ring| ring.task_window());
        Self {
            rings: RingId::ALL.map(|id| Ring::new(id, config.rings[id.index()])),
            scopes: Scopes::default(),
            map: TensorMap::new(config.tensormap_entries, windows),
            edges: Edges::default(),
            peaks: ScopePeaks::default(),
            counts: TaskCounts::default(),
            requests: None,
            ripple: Vec::new(),
            writers: Vec::new(),
            scope_tasks: windows.iter().map(|window| *window as usize).sum(),
        }
    }

    /// Forgets everything; keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.rings.iter_mut().for_each(Ring::clear);
        self.scopes.clear();
        self.map.clear();
        self.edges.clear();
        self.peaks = ScopePeaks::default();
        self.counts = TaskCounts::default();
        self.requests = None;
        self.ripple.clear();
    }
}

/// What the program submits its work to.
#[derive(Debug)]
pub struct Orchestrator<'rt> {
    pub(crate) shared: &'rt Shared,
    pub(crate) book: &'rt mut Book,
}

impl Orchestrator<'_> {
    /// Runs `body` inside a scope of its own: what is submitted there is held until the scope ends.
    pub fn scope<R>(
        &mut self,
        mode: ScopeMode,
        body: impl FnOnce(&mut Self) -> Result<R, Halted>,
    ) -> Result<R, Halted> {
        self.begin_scope(mode)?;
        let result = body(self)?;
        self.end_scope()?;
        Ok(result)
    }

    /// Opens a scope. Prefer [`Self::scope`], which can't be left open by mistake.
    ///
    /// An automatic scope inside a manual one, and a 64th scope inside the root, end the run with code 5.
    pub fn begin_scope(&mut self, mode: ScopeMode) -> Result<(), Halted> {
        self.check_running()?;
        if mode == ScopeMode::Auto && self.book.scopes.innermost().mode == ScopeMode::Manual {
            return Err(self.invalid(None, "an automatic scope can not be opened inside a manual one"));
        }
        if self.depth() >= MAX_NESTED_SCOPES {
            return Err(self.invalid(None, "at most 63 scopes can be nested in the root scope"));
        }
        let rings = &self.book.rings;
        self.book.scopes.push(mode, |ring| rings[ring.index()].heap.used());
        if let Some(requests) = &mut self.book.requests {
            requests.begin();
        }
        Ok(())
    }

    /// Closes the innermost scope and releases its tasks. Closing the root scope ends the run with code 5.
    pub fn end_scope(&mut self) -> Result<(), Halted> {
        self.check_running()?;
        if self.depth() == 0 {
            return Err(self.invalid(None, "the root scope can not be closed by the program"));
        }
        self.close_scope();
        Ok(())
    }

    /// Closes the innermost scope, the root included.
    pub(crate) fn close_scope(&mut self) {
        let (rings, shared) = (&self.book.rings, self.shared);
        let record = self.book.scopes.pop(
            |ring| rings[ring.index()].heap.used(),
            |task| {
                shared.slot(task).life.release_scope();
            },
        );
        self.book.peaks.add(record, shared.config.scope_records);
        if let Some(requests) = &mut self.book.requests {
            requests.end();
        }
    }

    /// Waits until the tensor's owner and everybody who was told to write any of it have completed.
    pub fn wait(&mut self, tensor: &Tensor) -> Result<(), Halted> {
        self.check_running()?;
        self.book.writers.clear();
        self.book.writers.extend(tensor.owner());
        self.find_writers(tensor, false);
        let begin = Instant::now();
        for index in 0..self.book.writers.len() {
            let task = self.book.writers[index];
            self.wait_for(task, begin)?;
        }
        Ok(())
    }

    /// Waits for a tensor as [`Self::wait`] does, then reads one element of it by row-major index.
    ///
    /// # Panics
    /// As [`Tensor::get`].
    #[track_caller]
    pub fn read_scalar<T: Element>(&mut self, tensor: &Tensor, index: usize) -> Result<T, Halted> {
        self.wait(tensor)?;
        Ok(tensor.get(index))
    }

    /// Ends the run with code 9.
    pub fn fail(&mut self, message: impl Into<String>) -> Halted {
        let ring = self.ring();
        self.fatal(
            FatalCode::ExplicitOrchFatal,
            ring,
            None,
            Resource::Program,
            None,
            message.into(),
        )
    }

    /// Depth of the innermost scope; the root's is 0.
    pub fn depth(&self) -> usize {
        self.book.scopes.depth()
    }

    /// The ring that the innermost scope uses.
    pub fn ring(&self) -> RingId {
        RingId::of_depth(self.depth())
    }

    pub(crate) fn check_running(&self) -> Result<(), Halted> {
        if self.shared.stop.is_raised() {
            Err(Halted)
        } else {
            Ok(())
        }
    }

    /// Waits until `task` is completed, or no longer there.
    fn wait_for(&mut self, task: TaskId, begin: Instant) -> Result<(), Halted> {
        let shared = self.shared;
        let done = || {
            let alive = shared.rings[task.ring().index()].alive_from.load(Ordering::Relaxed) <= task.local();
            !alive || shared.slot(task).life.load().completed()
        };
        let limit = shared.config.timeouts.tensor_wait;
        let mut patience = Patience::default();
        while !done() {
            self.check_running()?;
            let waited = begin.elapsed();
            if waited >= limit {
                let message = format!("task {task} had not completed after {waited:.1?}");
                let resource = Resource::TensorData { task, waited };
                return Err(self.fatal(FatalCode::TensorWaitTimeout, task.ring(), None, resource, None, message));
            }
            patience.wait(shared, limit.saturating_sub(waited), done);
        }
        Ok(())
    }

    /// Ends the run with code 5.
    pub(crate) fn invalid(&mut self, name: Option<&'static str>, message: &str) -> Halted {
        let ring = self.ring();
        self.fatal(
            FatalCode::InvalidArgs,
            ring,
            None,
            Resource::Arguments,
            name,
            message.to_owned(),
        )
    }

    /// Ends the run with a fatal error.
    #[cold]
    pub(crate) fn fatal(
        &mut self,
        code: FatalCode,
        ring: RingId,
        proof: Option<Proof>,
        resource: Resource,
        task_name: Option<&'static str>,
        message: String,
    ) -> Halted {
        let book = &self.book.rings[ring.index()];
        let head = book.head().map(|id| {
            let life = self.shared.slot(id).life.load();
            HeadTask {
                id,
                name: book.name(id.local()),
                state: if life.consumed() {
                    TaskState::Consumed
                } else if life.completed() {
                    TaskState::Completed
                } else {
                    TaskState::Pending
                },
                consumers_done: life.done(),
                consumers: life.claimed(),
                scope_released: life.scope_released(),
            }
        });
        let scopes = &self.book.scopes;
        self.shared.end(RunEnd::Fatal(Box::new(Fatal {
            code,
            ring: Some(ring),
            depth: scopes.depth(),
            proof,
            resource,
            head,
            scope: Some(OpenScope {
                depth: scopes.depth(),
                mode: scopes.innermost().mode,
                tasks: scopes.tasks_in_innermost(),
                oldest: scopes.oldest_held(ring),
            }),
            task_name,
            message,
        })));
        Halted
    }

    pub(crate) fn deafen_cores(&mut self) {
        self.shared.deaf.store(true, Ordering::Release);
    }

    pub(crate) fn starve(&mut self) -> Halted {
        let shared = self.shared;
        while !shared.stop.is_raised() {
            shared
                .program_blocked
                .sleep(0, Duration::from_millis(100), || shared.stop.is_raised());
        }
        Halted
    }
}

/// How a blocked program waits: it looks again at once, then gives way, then sleeps until a task completes.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    looks: u32,
}

impl Patience {
    const SPINS: u32 = 64;
    const YIELDS: u32 = 64;

    /// Something was reclaimed: begin again with short waits.
    pub(crate) fn renew(&mut self) {
        self.looks = 0;
    }

    /// Waits a little, at most `limit`; `ready` tells whether there is anything to look at.
    pub(crate) fn wait(&mut self, shared: &Shared, limit: Duration, ready: impl FnOnce() -> bool) {
        self.looks += 1;
        if self.looks < Self::SPINS {
            std::hint::spin_loop();
        } else if self.looks < Self::SPINS + Self::YIELDS {
            std::thread::yield_now();
        } else {
            shared
                .program_blocked
                .sleep(0, limit, || shared.stop.is_raised() || ready());
        }
    }
}
