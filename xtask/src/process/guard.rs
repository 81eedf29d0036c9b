//! The guard: one small process a sweep, which ends all kernel processes when the harness dies without a word.
//!
//! `kill -9` of the harness leaves no code of it to clean up. The guard (this program started as
//! `xtask __guard`) blocks reading a pipe whose only writer is the harness; the harness writes
//! `done` there at the end. When the pipe ends without it, the guard kills the groups of the cases
//! that were running, then every process whose environment carries the sweep's tag, until none is
//! found. Which cases were running stands in a file, the ledger: a line when a case has started
//! (`+pid`) and one before it is reaped (`-pid`). Telling it through the pipe would wake the guard
//! twice a case, which on a busy machine costs as much as the case.
//!
//! Against a parent-death signal per child alone: that one reaches the direct child only and is
//! lost on exec of a privileged program; the guard reaches grandchildren in other sessions as well.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::NamedTempFile;

use super::{family, proc_fs, spawn};

/// The first argument that makes this program a guard.
pub const WORD: &str = "__guard";

/// The harness's end of a guard.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
    ledger: NamedTempFile,
}

impl Guard {
    /// Starts a guard for the processes whose tag begins with `token`.
    pub(super) fn start(harness: &Path, token: &str) -> io::Result<Self> {
        let ledger = NamedTempFile::with_prefix("ringsweep-ledger-")?;
        let mut child = family::adopt_known(|| {
            let child = spawn::command(harness)
                .args([WORD, token])
                .arg(ledger.path())
                .env_clear()
                // It must not keep a directory busy that somebody wants to remove or unmount.
                .current_dir("/")
                .process_group(0)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            let pid = Pid::from_child(&child);
            Ok::<_, io::Error>((child, pid))
        })?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe, ledger })
    }

    pub(super) fn case_started(&self, pid: Pid) {
        self.note(&format!("+{}\n", pid.as_raw_nonzero()));
    }

    pub(super) fn case_ended(&self, pid: Pid) {
        self.note(&format!("-{}\n", pid.as_raw_nonzero()));
    }

    fn note(&self, line: &str) {
        // A line that can't be written is missed only if the harness is killed too, and the tag still finds the case.
        let _ = (&mut self.ledger.as_file()).write_all(line.as_bytes());
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(b"done\n");
        }
        family::forget(Pid::from_child(&self.child));
        let _ = self.child.wait();
    }
}

/// Is the guard; `arguments` (behind [`WORD`]) are the token and the ledger.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let token = arguments
        .next()
        .and_then(|token| token.into_string().ok())
        .filter(|token| token.len() >= 8);
    let (Some(token), Some(ledger)) = (token, arguments.next()) else {
        return ExitCode::from(2);
    };
    // What ends the harness politely must not end the guard before it.
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        // Without a handler the guard is only less robust.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let mut last_words = String::new();
    // A pipe that can't be read has nobody at its other end.
    let _ = io::stdin().lock().read_to_string(&mut last_words);
    if !last_words.ends_with("done\n") {
        end_all(&running(&std::fs::read_to_string(&ledger).unwrap_or_default()), &token);
        let _ = std::fs::remove_file(ledger);
    }
    ExitCode::SUCCESS
}

/// The cases that had started and not ended.
fn running(ledger: &str) -> BTreeSet<i32> {
    let mut running = BTreeSet::new();
    for line in ledger.lines() {
        match (
            line.strip_prefix('+').map(str::parse),
            line.strip_prefix('-').map(str::parse),
        ) {
            (Some(Ok(pid)), _) => running.insert(pid),
            (_, Some(Ok(pid))) => running.remove(&pid),
            _ => false,
        };
    }
    running
}

/// Kills until three looks in a row found nobody, or ten seconds have passed.
fn end_all(running: &BTreeSet<i32>, token: &str) {
    for pid in running.iter().copied().filter_map(proc_fs::pid) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let start = [spawn::TAG_START, token.as_bytes(), b"."].concat();
    let limit = Instant::now() + Duration::from_secs(10);
    let mut quiet_looks = 0;
    while quiet_looks < 3 && Instant::now() < limit {
        let found: Vec<Pid> = proc_fs::all_pids()
            .into_iter()
            .filter(|pid| proc_fs::environment_has_start(*pid, &start))
            .filter_map(proc_fs::pid)
            .collect();
        quiet_looks = if found.is_empty() { quiet_looks + 1 } else { 0 };
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(20));
    }
}
