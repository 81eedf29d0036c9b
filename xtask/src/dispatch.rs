//! Running a plan: one dispatcher owns all state, one worker thread supervises each running child.
//!
//! The dispatcher selects over worker events, signals and ticks; workers share nothing with it but
//! their channel. A record is on disk before anybody is told of it. What may start is decided by
//! [`Slots`] (this machine) and [`Devices`] (the platform); the queue keeps the plan's order, with
//! the repeats of all cases interleaved, so that a slow drift of the machine hits every case alike.

mod attempt;
mod probe;
mod queue;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, never, select, tick, unbounded};
use jiff::civil::Date;

use crate::device::{Allotment, Devices, Health, makes_suspect};
use crate::outcome::Outcome;
use crate::plan::{Disposition, Plan, PlannedCase};
use crate::process::{Control, Request, Supervisor};
use crate::record::CaseRecord;
use crate::run_dir::RunDir;
use crate::runner::Runners;
use crate::size::Bytes;
use crate::slots::{Claim, Sharing, Slots};
use attempt::Attempt;
use queue::{Job, Queue};

/// How a plan is to be run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most cases at once.
    pub jobs: NonZeroUsize,
    /// Whether benchmarks may share the machine.
    pub sharing: Sharing,
    /// Process runs per case.
    pub repeat: NonZeroUsize,
    /// Memory of this machine that cases share, bytes.
    pub memory_bytes: Option<u64>,
    /// No case is started after this instant.
    pub start_until: Option<Instant>,
    /// Today, for expectations.
    pub today: Date,
    /// How often the watcher gets a [`Notice::Tick`].
    pub tick: Option<Duration>,
}

/// Everything that running a plan takes.
pub struct Work<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The workspace root.
    pub root: &'a std::path::Path,
    /// How.
    pub settings: &'a Settings,
    /// What supervises children.
    pub supervisor: &'a Supervisor,
    /// The runner of each kind that the plan uses.
    pub runners: &'a Runners,
    /// Requests of the user to stop: the first is polite, the second is not.
    pub interrupts: Receiver<()>,
    /// Attempts that an earlier part of the run has finished.
    pub done: &'a [CaseRecord],
}

impl std::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("settings", self.settings)
            .finish_non_exhaustive()
    }
}

/// What a watcher is told.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A case was started.
    Started {
        /// The case.
        case: &'a PlannedCase,
        /// Process run, from 0.
        repeat: u32,
        /// Attempt, from 1.
        attempt: u32,
    },
    /// A record was written.
    Finished {
        /// The record.
        record: &'a CaseRecord,
        /// Whether the case is tried again.
        again: bool,
    },
    /// A device is not used any more.
    Quarantined {
        /// Which.
        device: u32,
    },
    /// The user asked to stop; the second time with force.
    Stopping {
        /// How many cases still run.
        running: usize,
        /// What they were asked.
        request: Request,
    },
    /// Time has passed.
    Tick,
}

/// Why the dispatcher came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every attempt of every case has its record.
    Finished,
    /// The user interrupted it.
    Interrupted,
    /// The time for starting cases was over before the last one.
    OutOfTime,
}

/// Runs what is left of the plan and records it in `directory`.
pub fn run(work: &Work<'_>, directory: &mut RunDir, watch: &mut dyn FnMut(Notice<'_>)) -> io::Result<Ending> {
    let (sender, events) = unbounded();
    let ticks = work.settings.tick.map_or_else(never, tick);
    let mut dispatcher = Dispatcher {
        work,
        directory,
        watch,
        sender,
        queue: Queue::new(work.plan, work.settings.repeat, work.done),
        slots: Slots::new(work.settings.jobs, work.settings.memory_bytes, work.settings.sharing),
        devices: Devices::new(&work.plan.platform.devices),
        running: BTreeMap::new(),
        checks: 0,
        request: Request::Continue,
    };
    thread::scope(|scope| {
        let result = dispatcher.until_done(scope, &events, &ticks);
        if result.is_err() {
            // Leaving the scope waits for the workers, so their children must end.
            dispatcher.ask_all(Request::Kill);
        }
        result
    })
}

/// What workers tell the dispatcher.
enum Event {
    Ended { job: Job, record: Box<CaseRecord> },
    Checked { device: u32, health: Health },
}

struct Running {
    claim: Claim,
    devices: Vec<u32>,
    control: Control,
}

struct Dispatcher<'a, 'w> {
    work: &'a Work<'w>,
    directory: &'a mut RunDir,
    watch: &'a mut dyn FnMut(Notice<'_>),
    sender: Sender<Event>,
    queue: Queue,
    slots: Slots,
    devices: Devices,
    running: BTreeMap<Job, Running>,
    /// Health checks under way.
    checks: usize,
    request: Request,
}

impl<'a> Dispatcher<'a, '_> {
    fn until_done<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        events: &Receiver<Event>,
        ticks: &Receiver<Instant>,
    ) -> io::Result<Ending>
    where
        'a: 'scope,
    {
        loop {
            self.start_what_may(scope)?;
            if self.running.is_empty() && self.checks == 0 {
                break;
            }
            select! {
                recv(events) -> event => self.take(event.expect("the dispatcher holds a sender"), scope)?,
                recv(self.work.interrupts) -> signal => if signal.is_ok() { self.interrupt() },
                recv(ticks) -> _ => (self.watch)(Notice::Tick),
            }
        }
        Ok(match (self.request, self.queue.is_empty()) {
            (Request::Continue, true) => Ending::Finished,
            (Request::Continue, false) => Ending::OutOfTime,
            (Request::Stop | Request::Kill, _) => Ending::Interrupted,
        })
    }

    fn start_what_may<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> io::Result<()>
    where
        'a: 'scope,
    {
        // A signal that came while nothing ran has not been seen by the select yet.
        while self.work.interrupts.try_recv().is_ok() {
            self.interrupt();
        }
        if self.request != Request::Continue {
            return Ok(());
        }
        let mut at = 0;
        while let Some(job) = self.queue.get(at) {
            let case = &self.work.plan.cases[job.case];
            if let Disposition::Skip(reason) = &case.disposition {
                self.queue.remove(at);
                self.record_unstarted(job, Outcome::Skipped(reason.clone()), reason.clone())?;
                continue;
            }
            if self
                .work
                .settings
                .start_until
                .is_some_and(|until| Instant::now() >= until)
            {
                return Ok(());
            }
            let claim = claim(case);
            if !self.slots.admits(claim) {
                // Smaller cases may go ahead, but not for ever.
                if !self.queue.may_be_overtaken(at) {
                    return Ok(());
                }
                at += 1;
                continue;
            }
            match self.devices.take(case.devices, &case.pin) {
                Allotment::Given(devices) => {
                    self.queue.remove(at);
                    self.start(scope, job, claim, devices)?;
                }
                Allotment::Wait => {
                    if !self.queue.may_be_overtaken(at) {
                        return Ok(());
                    }
                    at += 1;
                }
                Allotment::Blocked(culprit) => {
                    self.queue.remove(at);
                    let summary = format!("its device is quarantined since `{culprit}`");
                    self.record_unstarted(job, Outcome::Blocked(culprit.to_string()), summary)?;
                }
            }
        }
        Ok(())
    }

    fn start<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        job: Job,
        claim: Claim,
        devices: Vec<u32>,
    ) -> io::Result<()>
    where
        'a: 'scope,
    {
        let case = &self.work.plan.cases[job.case];
        let control = Control::new()?;
        let paths = self.directory.attempt(&case.id, job.repeat, job.attempt);
        let attempt = Attempt {
            work: self.work,
            case,
            job,
            devices: devices.clone(),
            log: self.directory.relative(&paths.log),
            paths,
            control: control.clone(),
        };
        let sender = self.sender.clone();
        self.slots.take(claim);
        self.running.insert(
            job,
            Running {
                claim,
                devices,
                control,
            },
        );
        (self.watch)(Notice::Started {
            case,
            repeat: job.repeat,
            attempt: job.attempt,
        });
        scope.spawn(move || {
            let record = Box::new(attempt.run());
            // The dispatcher is gone only when it failed, and then nobody wants the record.
            let _ = sender.send(Event::Ended { job, record });
        });
        Ok(())
    }

    fn take<'scope>(&mut self, event: Event, scope: &'scope Scope<'scope, '_>) -> io::Result<()>
    where
        'a: 'scope,
    {
        match event {
            Event::Checked { device, health } => {
                self.checks -= 1;
                self.devices.checked(device, health);
                if health == Health::Bad {
                    (self.watch)(Notice::Quarantined { device });
                }
            }
            Event::Ended { job, record } => {
                let running = self.running.remove(&job).expect("only a running job ends");
                self.slots.give_back(running.claim);
                if makes_suspect(&record.outcome) {
                    self.devices.suspect(&running.devices, &record.case);
                    for device in running.devices {
                        self.check(scope, device);
                    }
                } else {
                    self.devices.give_back(&running.devices);
                }
                let case = &self.work.plan.cases[job.case];
                let again = self.request == Request::Continue
                    && case
                        .retry
                        .as_ref()
                        .is_some_and(|retry| job.attempt < retry.attempts && retry.on.contains(&record.outcome.kind()));
                self.record(&record, again)?;
                if again {
                    self.queue.push(Job {
                        attempt: job.attempt + 1,
                        ..job
                    });
                }
            }
        }
        Ok(())
    }

    /// Decides on a suspect device: at once without a health check, else by one.
    fn check<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, device: u32)
    where
        'a: 'scope,
    {
        self.checks += 1;
        let work = self.work;
        let sender = self.sender.clone();
        scope.spawn(move || {
            let health = probe::health(work, device);
            let _ = sender.send(Event::Checked { device, health });
        });
    }

    fn record_unstarted(&mut self, job: Job, outcome: Outcome, summary: String) -> io::Result<()> {
        let case = &self.work.plan.cases[job.case];
        let record = attempt::unstarted(case, job, outcome, summary, self.work.settings.today);
        self.record(&record, false)
    }

    fn record(&mut self, record: &CaseRecord, again: bool) -> io::Result<()> {
        self.directory.append(record)?;
        (self.watch)(Notice::Finished { record, again });
        Ok(())
    }

    fn interrupt(&mut self) {
        let request = if self.request == Request::Continue {
            Request::Stop
        } else {
            Request::Kill
        };
        self.ask_all(request);
        (self.watch)(Notice::Stopping {
            running: self.running.len(),
            request,
        });
    }

    fn ask_all(&mut self, request: Request) {
        self.request = self.request.max(request);
        for running in self.running.values() {
            running.control.ask(request);
        }
    }
}

/// What a case takes of this machine. Rings that are declared without a memory need are its least.
fn claim(case: &PlannedCase) -> Claim {
    let rings = case
        .rings
        .heap_total()
        .map_or(0, Bytes::get)
        .saturating_mul(u64::from(case.ranks));
    Claim {
        memory_bytes: case.memory.map_or(rings, Bytes::get),
        benchmarks: case.bench.rounds > 0,
    }
}
