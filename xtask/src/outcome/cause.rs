//! The causes of each outcome, a closed list wherever the field has one.

use std::fmt;
use std::num::NonZeroI32;

/// Declares an enum whose variants have fixed tokens.
macro_rules! causes {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $token:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant),* }

        impl $name {
            /// Every cause, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word for it in every file and report.
            pub const fn token(self) -> &'static str {
                match self { $(Self::$variant => $token),* }
            }

            /// The cause that `token` names.
            pub fn from_token(token: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|cause| cause.token() == token)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.token())
            }
        }
    };
}

causes! {
    /// Which resource of the runtime could not admit more.
    DeadlockCause {
        /// One scope holds all but one of its ring's task slots (code 1).
        Scope = "scope",
        /// No heap bytes for the outputs of the next task (code 2).
        HeapRing = "heap-ring",
        /// No task slot (code 3).
        FlowControl = "flow-control",
        /// Dependency list or fan-in spill pool is full (code 4).
        DepPool = "dep-pool",
        /// No tensor-map entry (code 11).
        TensorMap = "tensormap",
    }
}

causes! {
    /// Why nothing progressed. There is no S2.
    StallCause {
        /// A core runs a task that doesn't end.
        S1 = "S1",
        /// Tasks are ready, every core is idle.
        S3 = "S3",
        /// Tasks wait on dependencies that nobody will fulfil.
        S4 = "S4",
        /// Nothing is left to run and the orchestrator hasn't finished.
        S5 = "S5",
        /// Accounting doesn't add up, or the runtime prints no class.
        Unknown = "unknown",
        /// The orchestrator waited too long for a tensor's data (code 8).
        TensorWait = "tensor-wait",
    }
}

causes! {
    /// Why the runtime rejected the program.
    RejectCause {
        /// Code 5.
        InvalidArgs = "invalid-args",
        /// Code 7.
        RequireSyncStartInvalid = "require-sync-start-invalid",
        /// Code 9.
        ExplicitOrchFatal = "explicit-orch-fatal",
        /// Code 10.
        ScopeTasksOverflow = "scope-tasks-overflow",
        /// Code 101.
        AsyncCompletionInvalid = "async-completion-invalid",
        /// Code 102.
        AsyncWaitOverflow = "async-wait-overflow",
        /// Code 103.
        AsyncRegistrationFailed = "async-registration-failed",
        /// Code 104.
        ReadyQueueOverflow = "ready-queue-overflow",
    }
}

causes! {
    /// Whose non-finite values they are.
    Origin {
        /// The kernel's.
        Output = "output",
        /// The reference's: the golden is broken.
        Golden = "golden",
    }
}

causes! {
    /// Whose memory ran out.
    OomCause {
        /// The device's (207001).
        Device = "device",
        /// The host's.
        Host = "host",
    }
}

causes! {
    /// Which budget ran out.
    Budget {
        /// Waiting for a device or a slot.
        Queue = "queue",
        /// From the start of the process to its first dispatch.
        Setup = "setup",
        /// Dispatches.
        Run = "run",
        /// No output and no report line.
        Silence = "silence",
        /// The whole process.
        Total = "total",
    }
}

causes! {
    /// What did not compile.
    CompilePart {
        /// One kernel.
        Kernel = "kernel",
        /// The program around the kernels.
        Program = "program",
    }
}

causes! {
    /// Why the case could not be started as declared.
    SetupCause {
        /// The program raised before any device run.
        Exception = "exception",
        /// The launch was refused: argument count, missing executable.
        Launch = "launch",
        /// The runtime refused the configuration.
        Configuration = "configuration",
        /// The program found nothing to run.
        NothingSelected = "nothing-selected",
        /// A tool, file or package is missing.
        Environment = "environment",
    }
}

causes! {
    /// Why an end can't be believed.
    NoVerdictCause {
        /// PASS with the validation skipped.
        ValidationSkipped = "validation-skipped",
        /// Exit 0 without a PASS.
        NoPassLine = "no-pass-line",
        /// Unreadable or contradictory output.
        Unreadable = "unreadable",
    }
}

causes! {
    /// How asked and effective ring config relate.
    RingReadback {
        /// The runtime says that it ignored the setting.
        RingIgnored = "ring-ignored",
        /// The runtime reports other sizes.
        RingDiffers = "ring-differs",
    }
}

/// The name of a signal, such as `SIGSEGV`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SignalName(String);

/// Signals that end or stop processes, with their numbers on Linux.
const SIGNALS: &[(i32, &str)] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (10, "SIGUSR1"),
    (11, "SIGSEGV"),
    (12, "SIGUSR2"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
    (16, "SIGSTKFLT"),
    (19, "SIGSTOP"),
    (20, "SIGTSTP"),
    (21, "SIGTTIN"),
    (22, "SIGTTOU"),
    (24, "SIGXCPU"),
    (25, "SIGXFSZ"),
    (26, "SIGVTALRM"),
    (27, "SIGPROF"),
    (29, "SIGIO"),
    (30, "SIGPWR"),
    (31, "SIGSYS"),
];

impl SignalName {
    /// The signal with this number; real-time and unknown ones are `SIG<number>`.
    pub fn from_number(number: i32) -> Self {
        let name = SIGNALS
            .iter()
            .find(|(n, _)| *n == number)
            .map(|(_, name)| (*name).to_owned());
        Self(name.unwrap_or_else(|| format!("SIG{number}")))
    }

    /// The signal that `name` names, such as `SIGSEGV` or `SIG34`.
    pub fn from_name(name: &str) -> Option<Self> {
        let known = SIGNALS.iter().any(|(_, known)| *known == name);
        let numbered = name
            .strip_prefix("SIG")
            .and_then(|n| n.parse::<i32>().ok())
            .is_some_and(|n| n > 0);
        (known || numbered).then(|| Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a process ended abnormally, where nothing better is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CrashCause {
    /// Killed by this signal.
    Signal(SignalName),
    /// Ended with this status.
    Exit(NonZeroI32),
}

impl CrashCause {
    /// `SIGSEGV` or `exit-3`; `exit-0` is no crash.
    pub fn from_token(token: &str) -> Option<Self> {
        if let Some(code) = token.strip_prefix("exit-") {
            return code.parse().ok().and_then(NonZeroI32::new).map(Self::Exit);
        }
        SignalName::from_name(token).map(Self::Signal)
    }
}

impl fmt::Display for CrashCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(signal) => f.pad(signal.as_str()),
            Self::Exit(code) => f.pad(&format!("exit-{code}")),
        }
    }
}
