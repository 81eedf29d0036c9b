//! Everything that descends from a case, however it tried to get away.
//!
//! The harness is a child subreaper: when a process of a case ends, its children become children
//! of the harness, whatever group or session they moved to. So all that a case leaves behind can
//! be found among the harness's own children. With several cases at once the question is *whose*
//! a found process is; [`Attribution`] lists the answers, strongest first.
//!
//! The registry is one per process because both being a subreaper and having children are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process, kill_process_group, waitid};

use super::proc_fs::{self, ProcessFacts};

/// How a process that outlived its case was recognised as one of that case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    /// It was in the process group or session of the case.
    Group,
    /// Its environment carries the tag of the case.
    Tag,
    /// It held the case's output pipe.
    Output,
    /// It descends from a process that was recognised.
    Descent,
    /// No other case can have started it.
    Elimination,
}

/// A process that was still there when its case had ended; it was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// What it was.
    pub process: ProcessFacts,
    /// How it was recognised.
    pub how: Attribution,
    /// Whether it held the output pipe open.
    pub held_output: bool,
    /// Whether it is still there after KILL, stuck in the kernel.
    pub unkillable: bool,
}

/// What is known of a case whose processes may be about.
#[derive(Clone, Debug)]
pub(super) struct Kin {
    /// The process that was started, which is pinned: it isn't reaped before the family is cleared.
    pub(super) leader: Pid,
    /// `RINGSWEEP_TAG=…` as it stands in the environment.
    pub(super) tag_entry: Vec<u8>,
    /// Inode of the output pipe.
    pub(super) pipe: u64,
}

impl Kin {
    fn attribute(&self, process: &ProcessFacts) -> Option<(Attribution, bool)> {
        let leader = self.leader.as_raw_nonzero().get();
        let held_output = proc_fs::holds_pipe(process.pid, self.pipe);
        let how = if process.group == leader || process.session == leader {
            Attribution::Group
        } else if proc_fs::environment_has(process.pid, &self.tag_entry) {
            Attribution::Tag
        } else if held_output {
            Attribution::Output
        } else {
            return None;
        };
        Some((how, held_output))
    }
}

#[derive(Debug, Default)]
struct Registry {
    /// Children that were started on purpose, so that no case takes them for its orphans.
    known: BTreeSet<i32>,
    /// Leaders of the cases that run.
    leaders: BTreeSet<i32>,
    /// Orphans that nobody could name yet, with the leaders of the cases that may have started them.
    unnamed: BTreeMap<(i32, u64), BTreeSet<i32>>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    known: BTreeSet::new(),
    leaders: BTreeSet::new(),
    unnamed: BTreeMap::new(),
});

fn registry() -> MutexGuard<'static, Registry> {
    // The sets stay meaningful whatever a panicking thread was about to add.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child that is no case (the guard) through `start`, so that it is never taken for an orphan.
pub(super) fn adopt_known<T, E>(start: impl FnOnce() -> Result<(T, Pid), E>) -> Result<T, E> {
    let mut registry = registry();
    let (value, pid) = start()?;
    registry.known.insert(pid.as_raw_nonzero().get());
    Ok(value)
}

/// Starts the leader of a case through `start`.
///
/// The lock is held meanwhile: a colleague that lists the harness's children and then takes the
/// lock finds either no such child or a registered one.
pub(super) fn adopt_leader<T, E>(start: impl FnOnce() -> Result<(T, Pid), E>) -> Result<T, E> {
    let mut registry = registry();
    let (value, pid) = start()?;
    let pid = pid.as_raw_nonzero().get();
    registry.known.insert(pid);
    registry.leaders.insert(pid);
    Ok(value)
}

/// Forgets a child; call it right before reaping, while its id can't be given to another process.
pub(super) fn forget(pid: Pid) {
    let mut registry = registry();
    let pid = pid.as_raw_nonzero().get();
    registry.known.remove(&pid);
    registry.leaders.remove(&pid);
    for candidates in registry.unnamed.values_mut() {
        candidates.remove(&pid);
    }
}

/// Sends `signal` to the group of `leader`, and to itself in case it has no group yet.
pub(super) fn signal_group(leader: Pid, signal: Signal) {
    // Neither can miss its target for another reason than that it is gone, which is what is wanted.
    if kill_process_group(leader, signal).is_err() {
        let _ = kill_process(leader, signal);
    }
}

/// How long the passes may go on before what is left is called unkillable.
const CLEAR_LIMIT: Duration = Duration::from_secs(10);

/// Kills all that is left of a case whose leader has ended (and is not reaped yet), and reaps it.
///
/// A killed process can't fork, but it may have forked just before: passes go on until one finds
/// nothing. The zombie leader pins the group's id, so the group kill can't hit a stranger.
///
/// Until `patience` is over, processes that are about to end by themselves (the other half of a
/// pipeline) are waited for instead, and are then no survivors.
pub(super) fn clear(kin: &Kin, patience: Instant) -> Vec<Survivor> {
    let mut seen = strangers();
    while Instant::now() < patience && seen.iter().any(|p| !p.is_zombie() && claim(kin, p).is_some()) {
        thread::sleep(Duration::from_millis(2));
        seen = strangers();
    }
    if seen.is_empty() {
        // The usual end of a case. Nobody was listed; the kill is for whom a listing may miss while it changes.
        signal_group(kin.leader, Signal::KILL);
        return Vec::new();
    }
    let limit = Instant::now() + CLEAR_LIMIT;
    let mut survivors: BTreeMap<(i32, u64), Survivor> = BTreeMap::new();
    let mut pause = Duration::from_micros(200);
    loop {
        // Who is there before the kill: a dead group member can't be told from one that had ended by itself.
        let strangers = strangers();
        let ours: Vec<Survivor> = strangers
            .iter()
            .filter(|p| !p.is_zombie())
            .filter_map(|p| claim(kin, p))
            .collect();
        for survivor in &ours {
            for below in proc_fs::tree(survivor.process.pid, usize::MAX).into_iter().skip(1) {
                let key = (below.pid, below.started_ticks);
                let held_output = proc_fs::holds_pipe(below.pid, kin.pipe);
                survivors.entry(key).or_insert_with(|| Survivor {
                    process: below,
                    how: Attribution::Descent,
                    held_output,
                    unkillable: false,
                });
            }
        }
        signal_group(kin.leader, Signal::KILL);
        for survivor in ours.iter().chain(survivors.values()) {
            // Its parent is this process or one that was found before it, so its id can't have been
            // reused between the look and the kill unless it was reaped; start time guards that.
            if still_there(&survivor.process)
                && let Some(pid) = proc_fs::pid(survivor.process.pid)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let quiet = ours.is_empty();
        for survivor in ours {
            survivors
                .entry((survivor.process.pid, survivor.process.started_ticks))
                .or_insert(survivor);
        }
        reap_zombies(&strangers);
        if quiet && survivors.values().all(|s| !still_there(&s.process)) {
            break;
        }
        if Instant::now() >= limit {
            break;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
    let mut survivors: Vec<Survivor> = survivors.into_values().collect();
    for survivor in &mut survivors {
        survivor.unkillable = still_there(&survivor.process);
    }
    survivors
}

/// Children of the harness that nobody started on purpose.
fn strangers() -> Vec<ProcessFacts> {
    // List first, lock second; see `adopt_leader`.
    let children = proc_fs::own_children();
    let unknown: Vec<i32> = {
        let registry = registry();
        children
            .into_iter()
            .filter(|pid| !registry.known.contains(pid))
            .collect()
    };
    unknown.into_iter().filter_map(ProcessFacts::read).collect()
}

/// Whether `process`, a stranger, belongs to `kin`.
fn claim(kin: &Kin, process: &ProcessFacts) -> Option<Survivor> {
    let survivor = |how, held_output| Survivor {
        process: process.clone(),
        how,
        held_output,
        unkillable: false,
    };
    if let Some((how, held_output)) = kin.attribute(process) {
        return Some(survivor(how, held_output));
    }
    if is_command_of_ours(process) || proc_fs::environment_has_start(process.pid, super::spawn::TAG_START) {
        return None;
    }
    let own = kin.leader.as_raw_nonzero().get();
    let mut registry = registry();
    let running = registry.leaders.clone();
    let candidates = registry
        .unnamed
        .entry((process.pid, process.started_ticks))
        .or_insert(running);
    candidates
        .iter()
        .all(|leader| *leader == own)
        .then(|| survivor(Attribution::Elimination, false))
}

fn still_there(process: &ProcessFacts) -> bool {
    ProcessFacts::read(process.pid).is_some_and(|now| now.started_ticks == process.started_ticks && !now.is_zombie())
}

/// Whether `process` may be a command that the harness runs for itself (cargo, git).
///
/// Those stay in the harness's own group, where no case is ever put; whoever started one waits for it.
fn is_command_of_ours(process: &ProcessFacts) -> bool {
    process.group == getpgrp().as_raw_nonzero().get()
}

/// Reaps strangers that have ended, by id, so that no leader is ever reaped here.
fn reap_zombies(strangers: &[ProcessFacts]) {
    for pid in strangers
        .iter()
        .filter(|p| !is_command_of_ours(p))
        .filter_map(|p| proc_fs::pid(p.pid))
    {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}
