//! A program that does what supervised programs must not do: `misbehave MODE [ARGUMENT…]`.
//!
//! Every mode ends by itself within [`LIFE`], so that a supervisor which lets one escape leaves
//! nothing on the machine for long.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process, setsid};

/// How long the longest mode lives.
const LIFE: Duration = Duration::from_secs(40);

fn main() -> ExitCode {
    if let Some(code) = xtask::process::helper_role() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mode = arguments.first().map_or("", String::as_str);
    let argument = arguments.get(1).map_or("", String::as_str);
    match act(mode, argument) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "misbehave {mode}: {error}");
            ExitCode::from(99)
        }
    }
}

fn act(mode: &str, argument: &str) -> io::Result<u8> {
    let mut out = io::stdout();
    match mode {
        "exit" => return Ok(argument.parse().unwrap_or(0)),
        "print" => writeln!(out, "{argument}")?,
        "pass" => writeln!(out, "[RUN] PASS (0.01s)")?,
        // A claim of success, and a status that denies it.
        "pass-then-exit" => {
            writeln!(out, "[RUN] PASS (0.01s)")?;
            return Ok(argument.parse().unwrap_or(1));
        }
        "signal" => {
            let number: i32 = argument.parse().unwrap_or(9);
            let signal = Signal::from_named_raw(number).ok_or_else(|| io::Error::other("no such signal"))?;
            // Rust handles the first SIGSEGV to look for a stack overflow; the second one has the default effect.
            for _ in 0..2 {
                kill_process(getpid(), signal)?;
            }
            live();
        }
        "abort" => {
            writeln!(out, "about to abort")?;
            std::process::abort();
        }
        "hang" => {
            writeln!(out, "hanging")?;
            out.flush()?;
            live();
        }
        "ignore-term" => {
            ignore_term()?;
            writeln!(out, "TERM is ignored")?;
            out.flush()?;
            live();
        }
        // Ends at once; a grandchild in the same group lives on. `null`: without the output pipe.
        "grandchild" => spawn_self("hang", |command| {
            if argument == "null" {
                command.stdout(Stdio::null()).stderr(Stdio::null());
            }
        })?,
        "grandchild-ignore-term" => spawn_self("ignore-term", |_| {})?,
        "daemon" => spawn_self("in-own-session", |_| {})?,
        // No tag in the environment, no pipe, another session, and the parent is gone: only elimination is left.
        "hidden-daemon" => spawn_self("in-own-session", |command| {
            command.env_clear().stdout(Stdio::null()).stderr(Stdio::null());
        })?,
        "in-own-session" => {
            setsid()?;
            spawn_self("hang", |_| {})?;
            return Ok(0);
        }
        "daemon-and-hang" => {
            spawn_self("in-own-session", |_| {})?;
            live();
        }
        "stop-self" => {
            writeln!(out, "stopping")?;
            out.flush()?;
            kill_process(getpid(), Signal::STOP)?;
            live();
        }
        "read-stdin" => {
            let mut text = String::new();
            let n = io::stdin().read_to_string(&mut text)?;
            writeln!(out, "read {n} bytes")?;
        }
        "open-terminal" => match std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty") {
            Ok(_) => writeln!(out, "terminal opened")?,
            Err(error) => writeln!(out, "no terminal: {error}")?,
        },
        "environment" => {
            let mut pairs: Vec<_> = std::env::vars().collect();
            pairs.sort();
            for (name, value) in pairs {
                writeln!(out, "{name}={value}")?;
            }
        }
        "directory" => writeln!(out, "{}", std::env::current_dir()?.display())?,
        "flood" => flood(argument.parse().unwrap_or(0))?,
        "long-line" => {
            let chunk = vec![b'x'; 1 << 20];
            for _ in 0..argument.parse().unwrap_or(1) {
                out.write_all(&chunk)?;
            }
            writeln!(out, "\nafter the long line")?;
        }
        "odd-bytes" => out.write_all(b"\xff\xfe\0nul\x1b[31mred\x1b[0m ]]> 10%\r50%\r100%\nlast line without end")?,
        "fork-storm" => storm(argument.parse().unwrap_or(100))?,
        // Prints, then is silent.
        "silent-after" => {
            for n in 0..argument.parse().unwrap_or(3) {
                writeln!(out, "line {n}")?;
                out.flush()?;
                thread::sleep(Duration::from_millis(100));
            }
            live();
        }
        "chatter" => {
            let end = Instant::now() + LIFE;
            while Instant::now() < end {
                writeln!(out, "still here")?;
                out.flush()?;
                thread::sleep(Duration::from_millis(20));
            }
        }
        "phases" => {
            writeln!(out, "[queue] waiting")?;
            out.flush()?;
            thread::sleep(Duration::from_millis(150));
            writeln!(out, "[RUN] compile ...")?;
            out.flush()?;
            thread::sleep(Duration::from_millis(250));
            writeln!(out, "[RUN] runtime ...")?;
            out.flush()?;
            live();
        }
        // Fails until a file counts `limit` earlier tries.
        "fail-first" => {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open("tries")?;
            file.write_all(b".")?;
            return Ok(u8::from(file.metadata()?.len() <= argument.parse().unwrap_or(1)));
        }
        "sleep" => thread::sleep(Duration::from_millis(argument.parse().unwrap_or(100))),
        // A harness of its own, for tests that kill the harness: supervises a child that daemonises and hangs.
        "supervise" => {
            let harness = std::path::Path::new(argument);
            let supervisor = xtask::process::Supervisor::start(harness)?;
            let mut spec = xtask::process::ChildSpec::new(std::env::current_exe()?, std::env::current_dir()?, "log");
            spec.arguments = vec!["daemon-and-hang".into()];
            if arguments_contain("session") {
                spec.placement = xtask::process::Placement::Session;
            }
            let control = xtask::process::Control::new()?;
            supervisor.run(&spec, &control).map_err(io::Error::other)?;
        }
        "allocate" => {
            let bytes: usize = argument.parse().unwrap_or(1 << 30);
            let mut block: Vec<u8> = Vec::new();
            if block.try_reserve_exact(bytes).is_err() {
                writeln!(out, "no memory for {bytes} bytes")?;
                return Ok(12);
            }
            block.resize(bytes, 1);
            writeln!(out, "allocated {}", block.len())?;
        }
        _ => return Err(io::Error::other("unknown mode")),
    }
    Ok(0)
}

fn arguments_contain(word: &str) -> bool {
    std::env::args().any(|argument| argument == word)
}

fn live() {
    let end = Instant::now() + LIFE;
    while let Some(left) = end
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
    {
        thread::sleep(left);
    }
}

fn ignore_term() -> io::Result<()> {
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false)))?;
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "this program is the one that is to be supervised"
)]
fn spawn_self(mode: &str, adjust: impl FnOnce(&mut Command)) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(mode);
    adjust(&mut command);
    command.spawn()?;
    Ok(())
}

fn flood(bytes: u64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut line = [b'f'; 128];
    line[127] = b'\n';
    let chunk = line.repeat(8192);
    let mut left = bytes;
    writeln!(out, "first line")?;
    while left > 0 {
        let n = (chunk.len() as u64).min(left) as usize;
        out.write_all(&chunk[..n])?;
        left -= n as u64;
    }
    writeln!(out, "last line")
}

/// Forks processes in sessions of their own, which fork on, until a file in the directory counts `limit`.
fn storm(limit: u64) -> io::Result<()> {
    let count = std::path::Path::new("storm-count");
    let end = Instant::now() + Duration::from_secs(8);
    while Instant::now() < end {
        // One byte a process: appending is atomic, and the length bounds the storm whatever happens.
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(count)?;
        if file.metadata()?.len() >= limit {
            break;
        }
        file.write_all(b".")?;
        storm_child()?;
    }
    live();
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "this program is the one that is to be supervised"
)]
fn storm_child() -> io::Result<()> {
    let limit = std::env::args().nth(2).unwrap_or_default();
    Command::new(std::env::current_exe()?)
        .args(["fork-storm", &limit])
        .process_group(0)
        .spawn()?;
    Ok(())
}
