//! The life of one child, from start to the last of its descendants.
//!
//! One thread per child polls three things: the process (a pidfd), its output, and requests of the
//! dispatcher. Nothing sleeps for an answer: an exit, a byte or a request wakes it, and otherwise
//! the nearest deadline or a slow tick does. The order at the end matters:
//! 1. observe the exit *without reaping*, so that the group's id stays pinned;
//! 2. drain the output for a bounded time, since a survivor may hold the pipe for ever;
//! 3. kill the group and whatever else descends from the child;
//! 4. drain what those had written, bounded again, and reap.

use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use super::budget::{Counted, Phase};
use super::capture::Capture;
use super::control::{Control, Request};
use super::ended::{Ended, ExitState, Stop};
use super::family;
use super::proc_fs::{self, ProcessFacts};
use super::report_tail::ReportTail;
use super::spawn::{SpawnError, Started};
use super::spec::ChildSpec;
use crate::outcome::{Budget, SignalName};

/// How often a child is looked at that gives no sign: stops and report growth have no descriptor to poll.
const TICK: Duration = Duration::from_millis(200);

/// The same while a sign in the report is waited for; it bounds the error of a phase's length.
const TICK_FOR_SIGN: Duration = Duration::from_millis(50);

/// How long output may stay open, and processes of the group stay alive, after the child has ended.
/// Longer than a task switch takes on a loaded machine, shorter than anyone would notice.
const PATIENCE: Duration = Duration::from_millis(200);

/// How long a stopped child may wait to be continued.
const SUSPENDED_LIMIT: Duration = Duration::from_secs(2);

/// How long reading goes on after everybody was killed.
const LAST_DRAIN: Duration = Duration::from_secs(1);

/// Bytes that are read before requests and deadlines are looked at again.
const READ_TURN: usize = 4 << 20;

/// Most processes of a tree that are described in evidence.
const TREE_LIMIT: usize = 64;

/// Watches `started` until it and all of its descendants are gone.
pub(super) fn watch(
    spec: &ChildSpec,
    started: Started,
    control: &Control,
    start: Instant,
) -> Result<Ended, SpawnError> {
    let log_error = |source| SpawnError::Log {
        path: spec.log.clone(),
        source,
    };
    let capture = Capture::create(&spec.log, spec.output).map_err(log_error);
    let capture = match capture {
        Ok(capture) => capture,
        Err(error) => {
            end_unwatched(started);
            return Err(error);
        }
    };
    let watch = Watch {
        spec,
        control,
        start,
        capture,
        started,
        buffer: vec![0; 256 << 10],
        output_open: true,
        log_failure: None,
        phases: vec![(spec.phases.first, start)],
        counted: Counted::from(spec.waits.clock(start)),
        report: spec.report.as_ref().map(|path| ReportTail::new(path.clone())),
        suspended: None,
        ending: Ending::No,
        stop: None,
        tree: Vec::new(),
    };
    watch.finish()
}

fn end_unwatched(mut started: Started) {
    family::signal_group(started.kin.leader, Signal::KILL);
    // The exit is awaited without reaping: `clear` needs the pinned id.
    let _ = waitid(
        WaitId::Pid(started.kin.leader),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    );
    family::clear(&started.kin, Instant::now());
    family::forget(started.kin.leader);
    let _ = started.child.wait();
}

/// How far the supervisor has gone in ending the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    No,
    Asked { kill_at: Instant },
    Killed,
}

struct Watch<'a> {
    spec: &'a ChildSpec,
    control: &'a Control,
    start: Instant,
    capture: Capture,
    started: Started,
    buffer: Vec<u8>,
    output_open: bool,
    /// The first failure to write the log; reading goes on, so that the child isn't blocked by it.
    log_failure: Option<io::Error>,
    phases: Vec<(Phase, Instant)>,
    counted: Counted,
    report: Option<ReportTail>,
    suspended: Option<(SignalName, Instant)>,
    ending: Ending,
    stop: Option<Stop>,
    tree: Vec<ProcessFacts>,
}

impl Watch<'_> {
    fn finish(mut self) -> Result<Ended, SpawnError> {
        let exit = self.until_exit();
        let end = Instant::now();
        self.look_at_report(end);

        // A child that was ended on purpose gets no patience for what it left: it is known to be in a bad way.
        let patience = if self.stop.is_none() { end + PATIENCE } else { end };
        self.drain(patience);
        let output_held = self.output_open;
        let survivors = family::clear(&self.started.kin, patience);
        self.drain(Instant::now() + LAST_DRAIN);
        family::forget(self.started.kin.leader);
        let exit = match exit {
            Some(exit) => {
                let _ = self.started.child.wait();
                exit
            }
            // The status could not be observed beforehand; reaping still tells it.
            None => self.reap()?,
        };

        let killed_by_other = exit == ExitState::Signal(SignalName::from_number(9)) && self.ending != Ending::Killed;
        let out_of_memory_kill = killed_by_other && proc_fs::out_of_memory_kill_since();
        let phases = self.phase_lengths(end);
        let log_error = |source| SpawnError::Log {
            path: self.spec.log.clone(),
            source,
        };
        if let Some(failure) = self.log_failure {
            return Err(log_error(failure));
        }
        Ok(Ended {
            exit,
            stop: self.stop,
            needed_kill: self.ending == Ending::Killed,
            out_of_memory_kill,
            elapsed: end - self.start,
            phases,
            output: self.capture.finish().map_err(log_error)?,
            survivors,
            output_held,
            tree: self.tree,
        })
    }

    fn reap(&mut self) -> Result<ExitState, SpawnError> {
        use std::os::unix::process::ExitStatusExt;
        let watch_error = |source| SpawnError::Watch {
            program: self.spec.program.clone(),
            source,
        };
        let status = self.started.child.wait().map_err(watch_error)?;
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => ExitState::Code(code),
            (None, number) => ExitState::Signal(SignalName::from_number(number.unwrap_or(0))),
        })
    }

    /// Runs the child to its exit, which is observed but not reaped.
    fn until_exit(&mut self) -> Option<ExitState> {
        loop {
            let now = Instant::now();
            self.decide(now);
            let timeout = self.next_look(now).saturating_duration_since(now);
            let ready = self.wait_for_something(timeout);
            if ready.request {
                self.control.clear_wake();
            }
            if ready.output {
                self.read_output(Instant::now());
            }
            if ready.exit {
                return self.observe_exit();
            }
            self.look_for_stop();
        }
    }

    fn wait_for_something(&self, timeout: Duration) -> Ready {
        let output_events = if self.output_open {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = [
            PollFd::new(&self.started.pidfd, PollFlags::IN),
            PollFd::new(self.control, PollFlags::IN),
            PollFd::new(&self.started.output, output_events),
        ];
        // A closed pipe would report a hang-up for ever, so it is not polled at all.
        let polled = if self.output_open { &mut fds[..] } else { &mut fds[..2] };
        let timeout = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // An interrupted or failed poll is a look too early; the loop looks at everything anyway.
        let _ = poll(polled, Some(&timeout));
        let happened = |n: usize| fds.get(n).is_some_and(|fd| !fd.revents().is_empty());
        Ready {
            exit: happened(0),
            request: happened(1),
            output: self.output_open && happened(2),
        }
    }

    fn observe_exit(&self) -> Option<ExitState> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::Pid(self.started.kin.leader), options).ok().flatten()?;
        ExitState::from_wait(&status)
    }

    fn look_for_stop(&mut self) {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        if let Ok(Some(status)) = waitid(WaitId::Pid(self.started.kin.leader), options) {
            self.suspended = status
                .stopping_signal()
                .map(|number| (SignalName::from_number(number), Instant::now()));
        }
    }

    /// Ends the child, or goes on ending it, when there is a reason.
    fn decide(&mut self, now: Instant) {
        self.look_at_report(now);
        match self.ending {
            Ending::No => {
                let reason = match self.control.request() {
                    Request::Continue => self.ran_out(now),
                    Request::Stop | Request::Kill => Some(Stop::Interrupted),
                };
                if let Some(reason) = reason {
                    self.tree = proc_fs::tree(self.started.kin.leader.as_raw_nonzero().get(), TREE_LIMIT);
                    self.stop = Some(reason);
                    family::signal_group(self.started.kin.leader, Signal::TERM);
                    // A stopped process takes TERM only once it is continued.
                    family::signal_group(self.started.kin.leader, Signal::CONT);
                    self.ending = Ending::Asked {
                        kill_at: now + self.spec.grace,
                    };
                }
            }
            Ending::Asked { kill_at } => {
                if now >= kill_at || self.control.request() == Request::Kill {
                    family::signal_group(self.started.kin.leader, Signal::KILL);
                    self.ending = Ending::Killed;
                }
            }
            Ending::Killed => {}
        }
    }

    /// Budgets with the instants at which they run out, unless the child waits until then.
    fn deadlines(&self, now: Instant) -> impl Iterator<Item = (Budget, Duration, Instant)> {
        let waited = now.saturating_duration_since(self.spec.waits.clock(now));
        let deadlines = self.spec.limits.deadlines(self.phase(), &self.counted);
        deadlines.map(move |(budget, limit, at)| (budget, limit, at + waited))
    }

    fn ran_out(&self, now: Instant) -> Option<Stop> {
        // The one that ran out first is the reason, even if several have by the time of this look.
        let over = self
            .deadlines(now)
            .filter(|(_, _, at)| *at <= now)
            .min_by_key(|(_, _, at)| *at);
        if let Some((budget, limit, _)) = over {
            return Some(Stop::Budget { budget, limit });
        }
        let (signal, since) = self.suspended.as_ref()?;
        (now >= *since + SUSPENDED_LIMIT).then(|| Stop::Suspended(signal.clone()))
    }

    fn next_look(&self, now: Instant) -> Instant {
        let tick = if self.report.as_ref().is_some_and(|_| self.waits_for_report()) {
            TICK_FOR_SIGN
        } else {
            TICK
        };
        let deadline = match self.ending {
            Ending::No => self.deadlines(now).map(|(_, _, at)| at).min(),
            Ending::Asked { kill_at } => Some(kill_at),
            Ending::Killed => None,
        };
        deadline.map_or(now + tick, |at| at.min(now + tick))
    }

    fn phase(&self) -> Phase {
        self.phases.last().expect("a child always is in a phase").0
    }

    fn waits_for_report(&self) -> bool {
        let current = self.phase();
        self.spec
            .phases
            .signs
            .iter()
            .any(|(phase, sign)| *phase > current && matches!(sign, super::budget::Sign::ReportStage(_)))
    }

    fn enter(&mut self, phase: Phase, now: Instant) {
        if phase > self.phase() {
            self.phases.push((phase, now));
            self.counted.phase = self.spec.waits.clock(now);
        }
    }

    fn look_at_report(&mut self, now: Instant) {
        let waits = self.waits_for_report();
        let Some(report) = &mut self.report else { return };
        if !report.grew() {
            return;
        }
        self.counted.sign = self.spec.waits.clock(now);
        if waits && let Some(phase) = report.announced(&self.spec.phases.signs) {
            self.enter(phase, now);
        }
    }

    fn read_output(&mut self, now: Instant) {
        let mut left = READ_TURN;
        while left > 0 && self.output_open {
            match rustix::io::read(&self.started.output, &mut self.buffer[..]) {
                Ok(0) => self.output_open = false,
                Ok(n) => {
                    left = left.saturating_sub(n);
                    self.counted.sign = self.spec.waits.clock(now);
                    if self.log_failure.is_none()
                        && let Err(error) = self.capture.push(&self.buffer[..n])
                    {
                        self.log_failure = Some(error);
                    }
                    if let Some(phase) = self.capture.announced(&self.buffer[..n], &self.spec.phases.signs) {
                        self.enter(phase, now);
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                // Reading a pipe of our own can't fail otherwise; if it does, there is nothing left to read.
                Err(_) => self.output_open = false,
            }
        }
    }

    /// Reads until the pipe ends, or until nothing more comes before `limit`.
    fn drain(&mut self, limit: Instant) {
        loop {
            self.read_output(Instant::now());
            let now = Instant::now();
            if !self.output_open || now >= limit {
                return;
            }
            let left = limit - now;
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let _ = poll(&mut [PollFd::new(&self.started.output, PollFlags::IN)], Some(&timeout));
        }
    }

    fn phase_lengths(&self, end: Instant) -> Vec<(Phase, Duration)> {
        let ends = self.phases.iter().skip(1).map(|(_, at)| *at).chain([end]);
        self.phases
            .iter()
            .zip(ends)
            .map(|((phase, from), to)| (*phase, to.saturating_duration_since(*from)))
            .collect()
    }
}

struct Ready {
    exit: bool,
    request: bool,
    output: bool,
}
