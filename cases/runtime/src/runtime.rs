//! The runtime itself: its threads, and runs.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::config::{ConfigError, RuntimeConfig};
use crate::halt::Halted;
use crate::ids::RingId;
use crate::memory::{Home, Memory};
use crate::orchestrator::{Book, Orchestrator};
use crate::processors::Processors;
use crate::report::{RunEnd, RunReport};
use crate::requests::Requests;
use crate::ring::Ring;
use crate::scope::ScopeMode;
use crate::shared::Shared;
use crate::sync::atomic::Ordering;
use crate::watchdog::Watch;
use crate::worker;

/// Four ring heaps, their cores, and a watchdog. Runs one program at a time.
#[derive(Debug)]
pub struct Runtime {
    shared: Arc<Shared>,
    book: Book,
    watch: Arc<Watch>,
    threads: Vec<JoinHandle<()>>,
    watchdog: Option<JoinHandle<()>>,
    poisoned: bool,
    processors: Option<Processors>,
}

/// Ends a runtime's runs from outside.
#[derive(Clone, Debug)]
pub struct StopHandle {
    shared: Arc<Shared>,
}

impl StopHandle {
    /// The run that is on ends as [`RunEnd::Stopped`], and so does every later run of this runtime.
    ///
    /// Blocks that run are not interrupted; they see [`Block::stopping`](crate::Block::stopping).
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.end(RunEnd::Stopped);
    }
}

impl Runtime {
    /// Maps the heaps, which are committed as they are touched, and starts the cores.
    pub fn new(config: RuntimeConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let map = |ring: RingId| {
            let bytes = config.rings[ring.index()].heap();
            let refused = |source: std::io::Error| ConfigError::Map { ring, bytes, source };
            let length = usize::try_from(bytes).map_err(|_| refused(std::io::ErrorKind::OutOfMemory.into()))?;
            let memory = Memory::map(length, Home::Ring(ring)).map_err(|error| refused(error.source))?;
            Ok::<_, ConfigError>(Arc::new(memory))
        };
        let [a, b, c, d] = RingId::ALL;
        let memories = [map(a)?, map(b)?, map(c)?, map(d)?];
        let book = Book::new(&config);
        let processors = config.first_processor.map(Processors::of_this_thread);
        let shared = Arc::new(Shared::new(config, memories));
        let watch = Arc::new(Watch::default());
        let mut runtime = Self {
            shared,
            book,
            watch,
            threads: Vec::new(),
            watchdog: None,
            poisoned: false,
            processors,
        };
        runtime.start()?;
        Ok(runtime)
    }

    fn start(&mut self) -> Result<(), ConfigError> {
        for core in 0..self.shared.cores.len() {
            let shared = Arc::clone(&self.shared);
            let processors = self.processors.clone();
            let thread = std::thread::Builder::new()
                .name(format!("core-{core}"))
                .spawn(move || {
                    if let Some(processors) = processors {
                        processors.keep(core);
                    }
                    worker::work(&shared, core);
                })
                .map_err(|source| ConfigError::Thread { core, source })?;
            self.threads.push(thread);
        }
        let (shared, watch) = (Arc::clone(&self.shared), Arc::clone(&self.watch));
        let watchdog = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || watch.watch(&shared))
            .map_err(|source| ConfigError::Thread {
                core: self.threads.len(),
                source,
            })?;
        self.watchdog = Some(watchdog);
        Ok(())
    }

    /// The configuration that is in force.
    pub fn config(&self) -> &RuntimeConfig {
        &self.shared.config
    }

    /// For stopping the runs of this runtime from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Whether an earlier run left a core behind; then no program is run any more.
    pub fn poisoned(&self) -> bool {
        self.poisoned
    }

    /// Runs `program` on the calling thread inside the root scope, and waits for all its tasks.
    ///
    /// Rings, tensor map and statistics start afresh; ring tensors of earlier runs must not be used.
    /// A run that ends early waits up to [`Timeouts::grace`](crate::Timeouts::grace) for blocks that
    /// still run, then abandons their cores, and the runtime with them.
    ///
    /// # Panics
    /// When the program panics, once its tasks have stopped.
    pub fn run<F>(&mut self, program: F) -> RunReport
    where
        F: FnOnce(&mut Orchestrator<'_>) -> Result<(), Halted>,
    {
        if self.poisoned {
            self.book.clear();
            return self.report(RunEnd::Poisoned, Duration::ZERO);
        }
        self.book.clear();
        self.shared.reset();
        let _kept = self.processors.as_ref().map(Processors::borrow);
        self.shared.program_blocked.enter(0);
        self.shared.program_draining.enter(0);
        if self.shared.stopped.load(Ordering::SeqCst) {
            self.shared.end(RunEnd::Stopped);
        }
        self.shared.wake();
        self.watch.begin();
        let begin = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| self.execute(program)));
        let device = begin.elapsed();
        self.watch.end();
        if outcome.is_err() {
            self.shared.end(RunEnd::Stopped);
        }
        self.poisoned = !self.shared.rest(self.shared.config.timeouts.grace);
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        let end = self.shared.take_end().unwrap_or(RunEnd::Passed);
        self.report(end, device)
    }

    /// The program, the end of its scopes, and its tasks.
    fn execute<F>(&mut self, program: F)
    where
        F: FnOnce(&mut Orchestrator<'_>) -> Result<(), Halted>,
    {
        let shared = &*self.shared;
        let mut orchestrator = Orchestrator {
            shared,
            book: &mut self.book,
        };
        orchestrator.book.requests = shared.config.keep_requests.then(Requests::default);
        if let Some(requests) = &mut orchestrator.book.requests {
            requests.begin();
        }
        orchestrator.book.scopes.push(ScopeMode::Auto, |_| 0);
        if program(&mut orchestrator).is_err() {
            // Only a halted run makes the marker; one that was kept from an earlier run ends this one too.
            shared.end(RunEnd::Stopped);
        }
        while !orchestrator.book.scopes.is_empty() {
            orchestrator.close_scope();
        }
        shared.orch_done.store(true, Ordering::Release);
        while !shared.all_completed() && !shared.stop.is_raised() {
            shared.program_draining.sleep(0, Duration::from_millis(20), || {
                shared.all_completed() || shared.stop.is_raised()
            });
        }
    }

    fn report(&mut self, end: RunEnd, device: Duration) -> RunReport {
        let shared = &*self.shared;
        if !self.poisoned {
            for ring in &mut self.book.rings {
                ring.retire(shared);
            }
        }
        let mut scopes = std::mem::take(&mut self.book.peaks);
        scopes.trim(shared.config.scope_records);
        let mut tasks = self.book.counts;
        tasks.blocks = shared.total(|tally| &tally.blocks);
        tasks.completed = shared.total(|tally| &tally.completed);
        tasks.retired = self.book.rings.iter().map(|ring| u64::from(ring.last_alive())).sum();
        RunReport {
            end,
            rings: self.book.rings.each_ref().map(Ring::usage),
            scopes,
            first_launch: tasks.blocks > 0,
            tasks,
            requests: self.book.requests.take(),
            tensormap_entries: self.book.map.capacity(),
            tensormap_high_water: self.book.map.high_water(),
            device,
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, Ordering::SeqCst);
        self.shared.stop.raise();
        self.shared.cores_idle.wake_all();
        self.watch.shut_down();
        for (thread, core) in self.threads.drain(..).zip(&self.shared.cores) {
            // An abandoned core may never come back; its thread keeps what it needs alive.
            if !(self.poisoned && core.busy.load(Ordering::SeqCst)) {
                // A core catches the panics of blocks; there is nothing to learn from its end.
                let _ = thread.join();
            }
        }
        if let Some(watchdog) = self.watchdog.take() {
            let _ = watchdog.join();
        }
    }
}
