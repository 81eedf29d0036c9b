//! Launchers: where the process of a foreign runner is placed, and how its end is to be read there.

pub mod task_submit;

use crate::classify::EndStatus;
use crate::outcome::Outcome;
use crate::platform::Launcher;
use crate::process::ChildSpec;
use crate::record::Evidence;
use crate::runner::{Assignment, LaunchError, Observation};

/// `child` as the platform's launcher starts it.
pub fn place(child: ChildSpec, assignment: &Assignment<'_>) -> Result<ChildSpec, LaunchError> {
    match &assignment.platform.launcher {
        Launcher::Local => Ok(child),
        Launcher::TaskSubmit { program, args } => task_submit::wrap(child, program, args, assignment),
    }
}

/// The end of the program itself, where the launcher's own exit status doesn't tell it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// How the program ended.
    pub status: EndStatus,
    /// What happened in the launcher before the program ran, or instead.
    pub instead: Option<(Outcome, Evidence)>,
}

/// Reads how the program ended from the launcher's `status` and its lines in `log`.
pub fn resolve(assignment: &Assignment<'_>, status: EndStatus, log: &[u8]) -> Resolved {
    match &assignment.platform.launcher {
        Launcher::Local => Resolved { status, instead: None },
        Launcher::TaskSubmit { .. } => task_submit::resolve(status, log),
    }
}

/// What happened in the launcher takes the place of what the log of a program that never ran seems to say.
pub fn add(observation: &mut Observation, resolved: Resolved) {
    if resolved.instead.is_some() {
        observation.finding = resolved.instead;
    }
}
