//! Running a plan: one dispatcher owns all state, one worker thread supervises each running child.
//!
//! The dispatcher selects over worker events, signals and ticks; workers share nothing with it but
//! their channel. A record is on disk before anybody is told of it. What may start is decided by
//! [`Slots`] (this machine) and [`Devices`] (the platform); the queue has the cases that need the most memory
//! first, with the repeats of all cases interleaved, so that a slow drift of the machine hits every case alike.

mod attempt;
mod probe;
mod queue;
mod work;

use std::collections::BTreeMap;
use std::io;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, at, never, select, tick, unbounded};

use crate::detector;
use crate::device::{Allotment, Devices, Health, makes_suspect};
use crate::outcome::{Budget, Outcome};
use crate::plan::{Disposition, PlannedCase};
use crate::process::{Control, Request};
use crate::record::CaseRecord;
use crate::run_dir::RunDir;
use crate::size::Bytes;
use crate::slots::{Claim, Slots};
use attempt::Attempt;
use queue::{Job, Queue};
pub use work::{Ending, Notice, Settings, Work};

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
        patience_ends: None,
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
    /// When the next case has waited for its device as long as it may.
    patience_ends: Option<Instant>,
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
            let patience = self.patience_ends.map_or_else(never, at);
            select! {
                recv(patience) -> _ => {}
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
        self.patience_ends = None;
        while let Some(job) = self.queue.get(at) {
            let case = &self.work.plan.cases[job.case];
            let now = Instant::now();
            if let Disposition::Skip(reason) = &case.disposition
                && let skipped = Outcome::Skipped(reason.clone())
                && detector::sees_outcome(&skipped)
            {
                self.queue.remove(at, now);
                self.record_unstarted(job, skipped, reason.clone(), Duration::ZERO)?;
                continue;
            }
            if self.work.settings.start_until.is_some_and(|until| now >= until) {
                return Ok(());
            }
            let claim = claim(case);
            // What can never start needs no slot to say so, and holds up those behind it no longer.
            let allotment = match self.devices.denied(case.devices, &case.pin) {
                Some(culprit) if detector::sees_outcome(&Outcome::Blocked(culprit.to_string())) => {
                    Allotment::Blocked(culprit)
                }
                _ if self.slots.admits(claim) => self.devices.take(case.devices, &case.pin),
                _ => Allotment::Wait,
            };
            match allotment {
                Allotment::Given(devices) => {
                    let waited = self.queue.remove(at, now);
                    self.start(scope, job, claim, devices, waited)?;
                }
                Allotment::Wait => {
                    if self.waits_too_long(at, job, now)? {
                        continue;
                    }
                    // Others may go ahead, but not for ever.
                    if !self.queue.may_be_overtaken(at) {
                        return Ok(());
                    }
                    at += 1;
                }
                Allotment::Blocked(culprit) => {
                    let waited = self.queue.remove(at, now);
                    let blocked = Outcome::Blocked(culprit.to_string());
                    if detector::sees_outcome(&blocked) {
                        let summary = format!("its device is quarantined since `{culprit}`");
                        self.record_unstarted(job, blocked, summary, waited)?;
                    } else {
                        self.start(scope, job, claim, Vec::new(), waited)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the job at `at`, which can't be started, has waited as long as its case declares; then it is recorded.
    fn waits_too_long(&mut self, at: usize, job: Job, now: Instant) -> io::Result<bool> {
        let case = &self.work.plan.cases[job.case];
        let timeout = Outcome::Timeout(Budget::Queue);
        let Some(since) = self.queue.waits(at, now) else {
            return Ok(false);
        };
        let Some(limit) = case.budgets.local_queue().filter(|_| detector::sees_outcome(&timeout)) else {
            return Ok(false);
        };
        if now < since + limit {
            self.patience_ends = Some(since + limit);
            return Ok(false);
        }
        let holders: Vec<String> = self
            .running
            .iter()
            .filter(|(_, running)| case.pin.is_empty() || running.devices.iter().any(|id| case.pin.contains(id)))
            .map(|(job, _)| format!("`{}`", self.work.plan.cases[job.case].id))
            .collect();
        let holders = if holders.is_empty() {
            "a health check".into()
        } else {
            holders.join(", ")
        };
        let summary = format!("the queue budget of {limit:?} ran out while {holders} had what it needs");
        let waited = self.queue.remove(at, now);
        self.record_unstarted(job, timeout, summary, waited)?;
        Ok(true)
    }

    fn start<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        job: Job,
        claim: Claim,
        devices: Vec<u32>,
        waited: Duration,
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
            waited,
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
                self.record(job, &record)?;
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

    fn record_unstarted(&mut self, job: Job, outcome: Outcome, summary: String, waited: Duration) -> io::Result<()> {
        let case = &self.work.plan.cases[job.case];
        let mut record = attempt::unstarted(case, job, outcome, summary, self.work.settings.today);
        record.phases.queue = waited;
        self.record(job, &record)
    }

    /// Records how `job` ended, and queues another attempt where the case declares one.
    fn record(&mut self, job: Job, record: &CaseRecord) -> io::Result<()> {
        let case = &self.work.plan.cases[job.case];
        let again = self.request == Request::Continue
            && case
                .retry
                .as_ref()
                .is_some_and(|retry| job.attempt < retry.attempts && retry.on.contains(&record.outcome.kind()));
        self.directory.append(record)?;
        (self.watch)(Notice::Finished { record, again });
        if again {
            self.queue.push(Job {
                attempt: job.attempt + 1,
                ..job
            });
        }
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

/// What a case takes of this machine.
fn claim(case: &PlannedCase) -> Claim {
    Claim {
        memory_bytes: memory_of(case),
        benchmarks: case.bench.rounds > 0,
    }
}

/// Bytes that a case may take. Rings that are declared without a memory need are its least.
pub fn memory_of(case: &PlannedCase) -> u64 {
    let rings = || case.rings.heap_total().map_or(0, Bytes::get);
    case.memory
        .map_or_else(|| rings().saturating_mul(u64::from(case.ranks)), Bytes::get)
}
