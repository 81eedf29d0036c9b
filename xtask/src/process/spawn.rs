//! Starting a child. The only place in the harness that calls `Command::new`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::environment::Environment;
use super::family::{self, Kin};
use super::launcher;
use super::spec::{ChildSpec, Placement};

/// Variable by which descendants of a case are recognised; see [`super::family`].
pub(super) const TAG_NAME: &str = "RINGSWEEP_TAG";

/// How an environment entry with the tag begins.
pub(super) const TAG_START: &[u8] = b"RINGSWEEP_TAG=";

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program.
    #[error("program `{}` not found{}", .program.display(), searched(*.in_path))]
    NotFound {
        /// As declared.
        program: PathBuf,
        /// Whether `PATH` was searched.
        in_path: bool,
    },
    /// The log could not be created.
    #[error("failed to create log `{}`", .path.display())]
    Log {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system refused to start it.
    #[error("failed to start `{}`", .program.display())]
    Start {
        /// Which.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system refused to let it be watched.
    #[error("failed to supervise `{}`", .program.display())]
    Watch {
        /// Which.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn searched(in_path: bool) -> &'static str {
    if in_path { " in the child's PATH" } else { "" }
}

/// A running child and the ends of its channels.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    /// Becomes readable when it ends.
    pub(super) pidfd: OwnedFd,
    /// Output and errors in the order of writing; never blocks.
    pub(super) output: OwnedFd,
    pub(super) kin: Kin,
}

/// A command for the modules of `process` that start something which is no case.
#[expect(
    clippy::disallowed_methods,
    reason = "this function is the exception that the ban refers to"
)]
pub(super) fn command(program: &Path) -> Command {
    Command::new(program)
}

/// Starts `spec` with `tag` in its environment. `harness` is this program, for the launcher.
pub(super) fn spawn(spec: &ChildSpec, tag: &str, harness: &Path) -> Result<Started, SpawnError> {
    let program = find(&spec.program, &spec.directory, &spec.environment)?;
    let start_error = |source| SpawnError::Start {
        program: program.clone(),
        source,
    };
    // One pipe for both streams: the log keeps the order in which lines were written.
    let (reader, writer) = io::pipe().map_err(start_error)?;
    let errors = writer.try_clone().map_err(start_error)?;
    let output = OwnedFd::from(reader);
    set_nonblocking(&output).map_err(start_error)?;
    // The default of 64 KiB makes a flood switch tasks on every page; a refusal (per-user limit) costs only that.
    let _ = rustix::pipe::fcntl_setpipe_size(&output, 1 << 20);
    let pipe = fstat(&output).map_err(|errno| start_error(errno.into()))?.st_ino;

    let mut command = match (spec.placement, spec.memory_limit_bytes) {
        (Placement::Group, None) => {
            let mut command = command(&program);
            command.process_group(0);
            command
        }
        // A limit that is set from outside (prlimit on the pid) comes too late on a busy machine: the
        // program may have allocated by then. The launcher takes it before the program begins.
        (Placement::Session, _) | (Placement::Group, Some(_)) => {
            let mut command = command(harness);
            command.args(launcher::arguments(&program, spec.memory_limit_bytes));
            command
        }
    };
    command
        .args(&spec.arguments)
        .current_dir(&spec.directory)
        .env_clear()
        .envs(spec.environment.iter())
        .env(TAG_NAME, tag)
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(errors);
    let child = family::adopt_leader(|| {
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        Ok::<_, io::Error>((child, pid))
    })
    .map_err(start_error)?;
    // The command holds the write ends of the pipe: while they are open, the pipe never ends.
    drop(command);

    let leader = Pid::from_child(&child);
    let kin = Kin {
        leader,
        tag_entry: format!("{TAG_NAME}={tag}").into_bytes(),
        pipe,
    };
    let started = match pidfd_open(leader, PidfdFlags::empty()) {
        Ok(pidfd) => Started {
            child,
            pidfd,
            output,
            kin,
        },
        Err(errno) => {
            let mut child = child;
            family::signal_group(leader, rustix::process::Signal::KILL);
            family::forget(leader);
            let _ = child.wait();
            return Err(SpawnError::Watch {
                program,
                source: errno.into(),
            });
        }
    };
    Ok(started)
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = fcntl_getfl(fd)?;
    Ok(fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// The file that `program` names in the eyes of the child: relative to its directory, or in its `PATH`.
fn find(program: &Path, directory: &Path, environment: &Environment) -> Result<PathBuf, SpawnError> {
    let in_path = program.components().count() == 1 && !program.is_absolute() && !program.starts_with(".");
    let found = if in_path {
        let path = environment.get("PATH").unwrap_or_default();
        std::env::split_paths(path)
            .map(|entry| directory.join(entry).join(program))
            .find(|file| is_executable(file))
    } else {
        Some(directory.join(program)).filter(|file| is_executable(file))
    };
    found.ok_or_else(|| SpawnError::NotFound {
        program: program.to_owned(),
        in_path,
    })
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
