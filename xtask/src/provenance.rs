//! Who, when, where and with what: the facts that a run is recorded with.

use std::collections::BTreeMap;
use std::path::Path;

use xshell::{Shell, cmd};

use crate::host_class::HostClass;
use crate::plan::Plan;
use crate::process::PASSED_ON;
use crate::record::{Provenance, RunStatus};
use crate::wall_clock;

/// What the command line adds to the plan.
#[derive(Clone, Debug, Default)]
pub struct Typed {
    /// The command line as typed.
    pub command_line: Vec<String>,
    /// The selection as typed; empty for everything.
    pub selection: Vec<String>,
    /// Shard `k` of `n`, from 1.
    pub shard: Option<(u32, u32)>,
    /// Seed of the inputs.
    pub seed: u64,
    /// Overrides that change what a case means.
    pub overrides: BTreeMap<String, String>,
}

/// The provenance of a run of `plan` that starts now.
pub fn begin(root: &Path, plan: &Plan, typed: Typed) -> Provenance {
    let now = wall_clock::now();
    let git = Git::look(root);
    let commit = git
        .as_ref()
        .map_or("nogit", |git| &git.commit[..git.commit.len().min(8)]);
    Provenance {
        run_id: format!("{}-{}-{commit}", now.strftime("%Y%m%dT%H%M%SZ"), plan.platform.name),
        started: moment(now),
        ended: None,
        status: RunStatus::Incomplete,
        command_line: typed.command_line,
        harness_version: env!("CARGO_PKG_VERSION").into(),
        matrix_hash: plan.matrix.to_string(),
        planned: plan.cases.iter().map(|case| case.id.clone()).collect(),
        deselected: plan.declared.saturating_sub(plan.cases.len()),
        selection: typed.selection,
        shard: typed.shard,
        seed: typed.seed,
        git_dirty: git.as_ref().map(|git| git.dirty),
        git_commit: git.map(|git| git.commit),
        platform: plan.platform.name.to_string(),
        host: host(),
        toolchain: toolchain(root),
        environment: environment(plan),
        overrides: typed.overrides,
    }
}

/// This moment, RFC 3339 UTC.
pub fn now() -> String {
    moment(wall_clock::now())
}

/// To the microsecond: two short runs begin within a second, and one of them is the latest.
fn moment(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

struct Git {
    commit: String,
    dirty: bool,
}

impl Git {
    fn look(root: &Path) -> Option<Self> {
        let shell = Shell::new().ok()?;
        shell.change_dir(root);
        let commit = cmd!(shell, "git rev-parse HEAD").quiet().ignore_stderr().read().ok()?;
        let status = cmd!(shell, "git status --porcelain")
            .quiet()
            .ignore_stderr()
            .read()
            .ok()?;
        Some(Self {
            commit,
            dirty: !status.is_empty(),
        })
    }
}

fn toolchain(root: &Path) -> String {
    let version = Shell::new().and_then(|shell| {
        // The toolchain file of the workspace decides, and it is looked for from the current directory.
        shell.change_dir(root);
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        cmd!(shell, "{rustc} --version").quiet().ignore_stderr().read()
    });
    version.unwrap_or_else(|_| "unknown".into())
}

/// The class of the host, and facts that are worth knowing but make no class.
fn host() -> BTreeMap<String, String> {
    let mut facts = HostClass::detect().facts().clone();
    if let Ok(release) = std::fs::read_to_string("/proc/sys/kernel/osrelease") {
        facts.insert("kernel".into(), release.trim().to_owned());
    }
    facts
}

/// Variables that children of every case get; those of single cases stand in the suite.
fn environment(plan: &Plan) -> BTreeMap<String, String> {
    let passed = PASSED_ON
        .iter()
        .copied()
        .chain(plan.platform.env_pass.iter().map(String::as_str));
    let mut set: BTreeMap<String, String> = passed
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect();
    set.extend(plan.platform.env.clone());
    set
}
