//! Child processes: started, watched and ended so that nothing escapes and nothing is left behind.
//!
//! A kernel never runs in the harness's own process. This module is the only one that starts
//! programs (clippy enforces it), and it knows nothing of cases, verdicts or devices: it takes a
//! [`ChildSpec`] and gives back what happened, as [`Ended`].
//!
//! What a child can do, and what happens then:
//! - *hang, ignore TERM*: budgets (queue, setup, run, silence, total), TERM, grace, KILL. What it waits for another
//!   child, see [`Waits`], is no part of them.
//! - *leave processes behind*, in its group, in another session, holding its output: found through
//!   the subreaper, killed, reported as [`Survivor`]s; reading stops after a bounded time.
//! - *fork without end*: kill passes until one finds nobody, bounded.
//! - *stop itself*: continued by nobody within two seconds, it is ended.
//! - *read standard input, grab the terminal*: there is no input; foreign programs have no terminal.
//! - *flood*: the log keeps head and tail, memory is bounded.
//! - *set the clock*: intervals are monotonic.
//! - *outlive a killed harness*: the [`guard`] ends it.

mod budget;
mod capture;
mod control;
mod ended;
mod environment;
mod family;
pub mod guard;
pub mod launcher;
mod proc_fs;
mod report_tail;
mod spawn;
mod spec;
mod waits;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getpid, getrlimit, set_child_subreaper, setrlimit};

pub use budget::{Phase, PhasePlan, Sign, TimeLimits};
pub use capture::{OMISSION_MARK, Omission, OutputLimits, OutputSummary};
pub use control::{Control, Request};
pub use ended::{Ended, ExitState, Stop};
pub use environment::{Environment, PASSED_ON};
pub use family::{Attribution, Survivor};
pub use proc_fs::ProcessFacts;
pub use spawn::SpawnError;
pub use spec::{ChildSpec, Placement};
pub use waits::Waits;

/// What this program is when it was started by itself as a helper: the launcher or the guard.
///
/// `main` calls it before anything else and returns the code, if there is one.
pub fn helper_role() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next()?;
    match word.to_str()? {
        launcher::WORD => Some(launcher::run(arguments)),
        guard::WORD => Some(guard::run(arguments)),
        _ => None,
    }
}

/// The harness as the parent of its cases. While it lives, this process is a child subreaper.
#[derive(Debug)]
pub struct Supervisor {
    harness: PathBuf,
    token: String,
    next: AtomicU64,
    guard: guard::Guard,
}

impl Supervisor {
    /// Prepares this process for children: subreaper, no core dumps, and a guard against its own death.
    ///
    /// `harness` is a program that calls [`helper_role`]: this one, unless a test says otherwise.
    pub fn start(harness: &Path) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        // A dump of a kernel with gigabytes of rings takes longer than the case and fills the disk.
        let hard = getrlimit(Resource::Core).maximum;
        setrlimit(
            Resource::Core,
            Rlimit {
                current: Some(0),
                maximum: hard,
            },
        )?;
        // The count from here on.
        proc_fs::out_of_memory_kill_since();
        let token = format!("{}-{:x}", std::process::id(), crate::wall_clock::now().as_nanosecond());
        let guard = guard::Guard::start(harness, &token)?;
        Ok(Self {
            harness: harness.to_owned(),
            token,
            next: AtomicU64::new(0),
            guard,
        })
    }

    /// The program that runs now, by a path that stays valid when its file is replaced.
    pub fn this_program() -> PathBuf {
        PathBuf::from("/proc/self/exe")
    }

    /// Runs a child from start to the end of the last of its descendants.
    ///
    /// Blocks the calling thread; `control` ends the child from another one.
    pub fn run(&self, spec: &ChildSpec, control: &Control) -> Result<Ended, SpawnError> {
        let tag = format!("{}.{}", self.token, self.next.fetch_add(1, Ordering::Relaxed));
        let start = Instant::now();
        let started = spawn::spawn(spec, &tag, &self.harness)?;
        let leader = started.kin.leader;
        self.guard.case_started(leader);
        let ended = watch::watch(spec, started, control, start);
        self.guard.case_ended(leader);
        ended
    }
}
