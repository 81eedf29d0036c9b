//! How a case is started: the declarations of the three runners.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::template::{Parameter, Template};
use crate::ring::Resource;

/// The three ways to start a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunnerKind {
    /// The `kernel` binary of this repository.
    Embedded,
    /// A program of a pypto-lib checkout.
    Pypto,
    /// Any program.
    Command,
}

impl RunnerKind {
    /// Every runner.
    pub const ALL: [Self; 3] = [Self::Embedded, Self::Pypto, Self::Command];

    /// The word in suites and records.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Pypto => "pypto",
            Self::Command => "command",
        }
    }
}

impl fmt::Display for RunnerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.token())
    }
}

/// What the runner of a case needs to know.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerSpec {
    /// The `kernel` binary.
    Embedded(EmbeddedSpec),
    /// A pypto-lib program.
    Pypto(Arc<PyptoSpec>),
    /// Any program.
    Command(Arc<CommandSpec>),
}

impl RunnerSpec {
    /// Which of the three it is.
    pub fn kind(&self) -> RunnerKind {
        match self {
            Self::Embedded(_) => RunnerKind::Embedded,
            Self::Pypto(_) => RunnerKind::Pypto,
            Self::Command(_) => RunnerKind::Command,
        }
    }
}

/// A run of the `kernel` binary.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedSpec {
    /// The kernel's name.
    pub kernel: String,
    /// Tolerances that the case changes, by the kernel's names for them.
    pub tolerances: BTreeMap<String, f64>,
}

/// A run of a program in a pypto-lib checkout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PyptoSpec {
    /// The program, relative to the checkout, e.g. `models/deepseek_v4_pro/rmsnorm.py`.
    pub program: String,
    /// Further arguments, e.g. `["--mode", "decode"]`.
    pub args: Vec<Template>,
    /// Whether its dispatches write scope statistics, whose first line tells the rings in force.
    pub scope_stats: ScopeStats,
    /// The `# ci:` markers that the program had when the suite was written; drift is reported against them.
    pub markers: Vec<String>,
}

/// Whether dispatches write scope statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScopeStats {
    /// They cost nothing; only a log line can tell the rings.
    Off,
    /// Every dispatch collects them, the timed ones too: sizes are certain, latencies are not those of a plain run.
    On,
}

/// A run of any program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommandSpec {
    /// Program and arguments; at least the program.
    pub argv: Vec<Template>,
    /// The working directory, relative to the workspace root; the root itself when absent.
    pub cwd: Option<String>,
    /// Variables of the caller's environment that are passed on, beside the harness's own allow-list.
    pub env_pass: Vec<String>,
    /// The classification rules, by name.
    pub rules: Option<String>,
    /// How the ring config reaches the program.
    pub rings: RingChannel,
    /// Where the effective ring config is read back.
    pub read_back: ReadBack,
    /// Where the samples come from.
    pub samples: SampleSource,
}

/// How the ring config reaches a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RingChannel {
    /// It doesn't: a case of such a program may declare no rings.
    None,
    /// Environment variables, each with the four numbers and commas.
    Env(BTreeMap<Resource, String>),
    /// The argv names `{ring_heap}` and its like.
    Argv(Vec<Resource>),
    /// A JSON file whose path `{ring_file}` in the argv or this variable names.
    JsonFile {
        /// The variable that holds the path.
        env: Option<String>,
    },
}

impl RingChannel {
    /// True when the program can be told about `resource`.
    pub fn carries(&self, resource: Resource) -> bool {
        match self {
            Self::None => false,
            Self::Env(names) => names.contains_key(&resource),
            Self::Argv(resources) => resources.contains(&resource),
            Self::JsonFile { .. } => true,
        }
    }

    /// The resources that an argv carries by naming them.
    pub fn named_in(argv: &[Template]) -> Vec<Resource> {
        let named: Vec<_> = argv.iter().flat_map(Template::parameters).collect();
        let carries = |resource| {
            let own = match resource {
                Resource::Heap => Parameter::RingHeap,
                Resource::TaskWindow => Parameter::RingTaskWindow,
                Resource::DepPool => Parameter::RingDepPool,
            };
            named.iter().any(|&p| *p == own || *p == Parameter::RingJson)
        };
        Resource::ALL
            .into_iter()
            .filter(|&resource| carries(resource))
            .collect()
    }
}

/// Where the effective ring config is read back from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReadBack {
    /// Nowhere: the program can't tell.
    None,
    /// The `rings` events of the report file.
    Report,
    /// The line `Ring buffer sizes: task_window=[..] heap=[..] dep_pool=[..]` of the output.
    Log,
    /// The first line of a scope statistics file, relative to the working directory.
    ScopeStats(Template),
}

/// Where the samples of a program come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SampleSource {
    /// It has none.
    None,
    /// The `sample` events of the report file.
    Report,
    /// Output lines.
    Log {
        /// A regular expression whose capture `value` is one sample.
        pattern: String,
        /// The unit of the number.
        unit: TimeUnit,
        /// The clock that took it.
        clock: Clock,
    },
    /// A JSON file that the program writes.
    Json {
        /// Its path, from the working directory.
        file: Template,
        /// JSON pointer to a number or a list of numbers; `*` stands for every entry of a list.
        pointer: String,
        /// The unit of the numbers.
        unit: TimeUnit,
        /// The clock that took them.
        clock: Clock,
    },
}

/// The unit of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// Nanoseconds.
    Ns,
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

impl TimeUnit {
    /// Every unit.
    pub const ALL: [Self; 4] = [Self::Ns, Self::Us, Self::Ms, Self::S];

    /// The word in suites.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::S => "s",
        }
    }

    /// Nanoseconds in one unit.
    pub const fn nanos(self) -> u64 {
        match self {
            Self::Ns => 1,
            Self::Us => 1000,
            Self::Ms => 1_000_000,
            Self::S => 1_000_000_000,
        }
    }
}

/// The clock of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The device's own.
    Device,
    /// The host's monotonic clock.
    Host,
}

impl Clock {
    /// Both clocks.
    pub const ALL: [Self; 2] = [Self::Device, Self::Host];

    /// The word in suites and reports.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
        }
    }
}
