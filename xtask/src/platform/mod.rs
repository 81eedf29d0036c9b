//! Platforms: what a case runs on.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use crate::{
    diagnostic::{Problem, Source},
    ring::RingLayer,
    size::Bytes,
    suite::{runner::RunnerKind, template::Template},
};

mod read;

/// The name of a platform.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlatformName(String);

impl PlatformName {
    /// The platform that needs nothing but the Rust toolchain.
    pub const HOST: &'static str = "host";

    /// The name, if it is one word of letters, digits, `_`, `-`, `.`.
    pub fn new(name: &str) -> Option<Self> {
        crate::case_id::is_word(name).then(|| Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PlatformName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// One platform as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Its name.
    pub name: PlatformName,
    /// One sentence for listings.
    pub description: String,
    /// The runner of cases that name none.
    pub runner: RunnerKind,
    /// Where a runner's process is placed.
    pub launcher: Launcher,
    /// The memory that rings and cases have to fit in.
    pub memory: PlatformMemory,
    /// The device ids that cases may be given.
    pub devices: Vec<u32>,
    /// What the platform says of the rings: the tier above the runtime's defaults.
    pub ring: RingLayer,
    /// Variables that every case of it gets.
    pub env: BTreeMap<String, String>,
    /// Variables of the caller that every case of it gets.
    pub env_pass: Vec<String>,
    /// Decides whether a suspect device is used again; without one it is quarantined.
    pub health_check: Option<Probe>,
    /// Run on a suspect device before its health check.
    pub reset: Option<Probe>,
}

/// Where the memory limit of a platform comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlatformMemory {
    /// What this machine has.
    Machine,
    /// What each device has.
    PerDevice(Bytes),
    /// Not known: only overflow is checked.
    Unknown,
}

/// Where a runner's process is placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// On this machine, in slots of the harness.
    Local,
    /// Through the device queue's client.
    TaskSubmit {
        /// The client program.
        program: String,
        /// Further options, before the command.
        args: Vec<String>,
    },
}

/// A command about one device; its template may name `{device}` and `{platform}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Program and arguments.
    pub argv: Vec<Template>,
    /// Its time limit; running out of it counts as unhealthy.
    pub budget: Duration,
}

/// The platforms of a workspace by name.
pub type Platforms = BTreeMap<PlatformName, Platform>;

/// The platforms that exist everywhere, with those that `file` declares in their place or beside them.
pub fn load(file: Option<&Arc<Source>>) -> (Platforms, Vec<Problem>) {
    let builtin = Source::new("builtin.toml", include_str!("builtin.toml"));
    let (mut platforms, problems) = read::read(&builtin);
    assert!(
        problems.is_empty(),
        "the built-in platforms have no mistakes: {problems:?}"
    );
    let (declared, problems) = file.map(read::read).unwrap_or_default();
    platforms.extend(declared);
    (platforms, problems)
}

impl PlatformMemory {
    /// The limit in bytes for a case of `devices` devices, given what this machine has.
    pub fn limit(self, devices: u32, machine: Option<Bytes>) -> Option<Bytes> {
        match self {
            Self::Machine => machine,
            Self::PerDevice(each) => each.get().checked_mul(u64::from(devices.max(1))).map(Bytes::new),
            Self::Unknown => None,
        }
    }
}

/// The memory of this machine, or `None` where it doesn't tell.
pub fn machine_memory() -> Option<Bytes> {
    let text = fs_err::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes::new(kib << 10))
}
