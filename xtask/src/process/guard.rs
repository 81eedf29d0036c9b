//! The guard: one small process a sweep, which ends all kernel processes when the harness dies without a word.
//!
//! `kill -9` of the harness leaves no code of it to clean up. The guard (this program started as
//! `xtask __guard`) blocks reading a pipe whose only writer is the harness. The harness writes a
//! line when a case starts (`+pid`) and before it is reaped (`-pid`), and `done` at the end. When
//! the pipe ends without `done`, the guard kills the groups of the cases that were running, then
//! every process whose environment carries the sweep's tag, until none is found.
//!
//! Against a parent-death signal per child alone: that one reaches the direct child only and is
//! lost on exec of a privileged program; the guard reaches grandchildren in other sessions as well.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{family, proc_fs, spawn};

/// The first argument that makes this program a guard.
pub const WORD: &str = "__guard";

/// The harness's end of a guard.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
    pipe: Mutex<Option<ChildStdin>>,
}

impl Guard {
    /// Starts a guard for the processes whose tag begins with `token`.
    pub(super) fn start(harness: &Path, token: &str) -> io::Result<Self> {
        let mut child = family::adopt_known(|| {
            let child = spawn::command(harness)
                .args([WORD, token])
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
        let pipe = Mutex::new(child.stdin.take());
        Ok(Self { child, pipe })
    }

    pub(super) fn case_started(&self, pid: Pid) {
        self.tell(&format!("+{}\n", pid.as_raw_nonzero()));
    }

    pub(super) fn case_ended(&self, pid: Pid) {
        self.tell(&format!("-{}\n", pid.as_raw_nonzero()));
    }

    fn tell(&self, line: &str) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = pipe.as_mut() {
            // A guard that somebody killed is missed only if the harness is killed too; the sweep goes on.
            let _ = pipe.write_all(line.as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.tell("done\n");
        drop(self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take());
        family::forget(Pid::from_child(&self.child));
        let _ = self.child.wait();
    }
}

/// Is the guard; `arguments` (behind [`WORD`]) are the token.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(token) = arguments
        .next()
        .and_then(|token| token.into_string().ok())
        .filter(|token| token.len() >= 8)
    else {
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
    let mut running: BTreeSet<i32> = BTreeSet::new();
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if line == "done" {
            return ExitCode::SUCCESS;
        }
        match (
            line.strip_prefix('+').map(str::parse),
            line.strip_prefix('-').map(str::parse),
        ) {
            (Some(Ok(pid)), _) => running.insert(pid),
            (_, Some(Ok(pid))) => running.remove(&pid),
            _ => false,
        };
    }
    end_all(&running, &token);
    ExitCode::SUCCESS
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
