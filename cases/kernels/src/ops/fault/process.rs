//! Misbehaviour of the process: what no report tells.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use ring_runtime::{DType, Tensor};
use rustix::process::{Signal, getpid, kill_process};

/// Longer than any budget of a fault; a harness that loses the process is rid of it in the end.
const LONG: Duration = Duration::from_mins(2);

/// Longer than another case is ready to wait.
const SLOW: Duration = Duration::from_secs(4);

/// A setup that leaves too little of a total of eight seconds.
const LATE: Duration = Duration::from_secs(4);

/// Faults of the setup, before the program's first dispatch.
pub(super) fn before_the_first_dispatch(kind: &str) {
    match kind {
        "hang-setup" => std::thread::sleep(LONG),
        "silence" => {
            say("the last words");
            std::thread::sleep(LONG);
        }
        "chatter" => chat(LATE),
        // Nothing wrong with it, but that others wait for its device.
        "slow" => std::thread::sleep(SLOW),
        // The limit that refuses it is the suite's.
        "memory" => drop(Tensor::zeros(DType::I8, &[4 << 30])),
        "leak" => leave_a_child_behind(),
        _ => {}
    }
}

/// Faults while the program orchestrates.
pub(super) fn during_a_dispatch(kind: &str) {
    match kind {
        "hang-run" | "chatter" => chat(LONG),
        "stopped" => kill_process(getpid(), Signal::STOP).expect("a process may stop itself"),
        "garbled-report" => scribble(),
        "panic" => panic!("the program panics on purpose"),
        "abort" => std::process::abort(),
        "segv" => loop {
            // The first one may only take the handler for stack overflows away.
            kill_process(getpid(), Signal::SEGV).expect("a process may signal itself");
            std::thread::sleep(Duration::from_millis(1));
        },
        #[expect(clippy::exit, reason = "ending without a word is the fault")]
        "exit" => std::process::exit(3),
        _ => {}
    }
}

/// Talks for `time`: neither silent nor done.
fn chat(time: Duration) {
    let start = std::time::Instant::now();
    while start.elapsed() < time {
        say("still here");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts a child that outlives this process and holds its output.
#[expect(
    clippy::disallowed_methods,
    reason = "the harness is not there to start it: that is the fault"
)]
#[expect(clippy::zombie_processes, reason = "nobody waits for it: that is the fault")]
fn leave_a_child_behind() {
    let survivor = Command::new("sleep")
        .arg(LONG.as_secs().to_string())
        .stdin(Stdio::null())
        .spawn();
    survivor.expect("`sleep` starts");
}

/// Writes what is no event into the middle of the report of this process.
fn scribble() {
    let report = std::env::var_os("RINGSWEEP_REPORT").expect("the harness names the report");
    let file = std::fs::OpenOptions::new().append(true).open(report);
    let written = file.and_then(|mut file| file.write_all(b"{\"event\": \"dispa\n"));
    written.expect("the report can be appended to");
}

/// One line at once, whatever stands behind stdout.
fn say(line: &str) {
    let mut out = std::io::stdout();
    // Nobody to tell: the fault is what happens next.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
