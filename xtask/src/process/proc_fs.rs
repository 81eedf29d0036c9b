//! Reading `/proc`: who descends from whom, who holds a pipe, whose environment names a case.
//!
//! Every answer is a snapshot of processes that come and go; a process that vanished meanwhile is
//! simply not there. Callers repeat until nothing is left.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rustix::process::Pid;

/// What `/proc/<pid>/stat` says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Its id.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// `R` running, `S` sleeping, `D` in the kernel, `T` stopped, `Z` ended but not reaped.
    pub state: char,
    /// Clock ticks from boot to its start: with the pid, an identity that is never reused.
    pub started_ticks: u64,
    /// Its command line, or its name in brackets when it has none; at most 200 characters.
    pub command: String,
}

impl ProcessFacts {
    /// The facts of `pid`, or `None` when there is no such process.
    pub fn read(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name stands in parentheses and may itself contain spaces and parentheses.
        let (before, after) = (stat.find('(')?, stat.rfind(')')?);
        let name = &stat[before + 1..after];
        let fields: Vec<&str> = stat[after + 1..].split_ascii_whitespace().collect();
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started_ticks: fields.get(19)?.parse().ok()?,
            command: command_line(pid).unwrap_or_else(|| format!("[{name}]")),
        })
    }

    /// Whether it has ended and only waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

fn command_line(pid: i32) -> Option<String> {
    let raw = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&raw);
    let line = text
        .split('\0')
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    (!line.is_empty()).then(|| line.chars().take(200).collect())
}

/// The children of this process, those of all its threads.
pub(super) fn own_children() -> Vec<i32> {
    children_of_tasks(PathBuf::from("/proc/self/task"))
}

/// The children of `pid`.
pub(super) fn children(pid: i32) -> Vec<i32> {
    children_of_tasks(PathBuf::from(format!("/proc/{pid}/task")))
}

fn children_of_tasks(tasks: PathBuf) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(tasks) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for task in entries.flatten() {
        if let Ok(list) = fs::read_to_string(task.path().join("children")) {
            found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    found
}

/// `root` and everything below it, parents first, at most `limit` processes.
pub(super) fn tree(root: i32, limit: usize) -> Vec<ProcessFacts> {
    let mut found: Vec<ProcessFacts> = ProcessFacts::read(root).into_iter().collect();
    let mut next = 0;
    while next < found.len() && found.len() < limit {
        let below = children(found[next].pid);
        found.extend(below.into_iter().filter_map(ProcessFacts::read));
        next += 1;
    }
    found.truncate(limit);
    found
}

/// Whether the environment that `pid` was started with contains exactly `entry` (`NAME=value`).
pub(super) fn environment_has(pid: i32, entry: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|e| e == entry))
}

/// Whether the environment that `pid` was started with contains an entry that begins with `start`.
pub(super) fn environment_has_start(pid: i32, start: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|e| e.starts_with(start)))
}

/// Whether `pid` has the pipe with this inode open.
pub(super) fn holds_pipe(pid: i32, inode: u64) -> bool {
    let wanted = format!("pipe:[{inode}]");
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    entries
        .flatten()
        .any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str()))
}

/// Ids of all processes that can be seen.
pub(super) fn all_pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// How many processes the kernel has killed for lack of memory since boot.
fn out_of_memory_kills() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Whether the kernel has killed a process for lack of memory since this was asked last.
///
/// The count is the whole machine's and reading it takes a tenth of a millisecond, so it is asked
/// only about a process that somebody else has killed.
pub(super) fn out_of_memory_kill_since() -> bool {
    static SEEN: Mutex<Option<u64>> = Mutex::new(None);
    let now = out_of_memory_kills();
    let before = std::mem::replace(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner), now);
    before.is_some() && now > before
}

/// `pid` as the type that system calls take; `None` for what can't be a process.
pub(super) fn pid(raw: i32) -> Option<Pid> {
    if raw > 0 { Pid::from_raw(raw) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_described() {
        let own = std::process::id() as i32;
        let facts = ProcessFacts::read(own).unwrap();
        assert_eq!(facts.pid, own);
        assert!(facts.parent > 0 && facts.started_ticks > 0 && !facts.is_zombie());
        assert!(all_pids().contains(&own));
        assert_eq!(ProcessFacts::read(i32::MAX), None);
    }
}
