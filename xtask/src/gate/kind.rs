//! The kinds of finding that a policy speaks about.

/// Declares the enum with its tokens, and the order in which documentation lists them.
macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $token:literal),* $(,)?) => {
        /// A kind of finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $variant),* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word for it in `gate.toml` and in every verdict.
            pub const fn token(self) -> &'static str {
                match self { $(Self::$variant => $token),* }
            }

            /// The kind that `token` names.
            pub fn from_token(token: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.token() == token)
            }
        }
    };
}

kinds! {
    /// Nothing was held against anything; always fails.
    NothingCompared = "nothing-compared",
    /// Planned cases have no record; always fails.
    Incomplete = "incomplete",
    /// Passed in the reference, doesn't now.
    Regressed = "regressed",
    /// Declared or in the reference, and without a record.
    Missing = "missing",
    /// Fails in another way than in the reference.
    ChangedCause = "changed-cause",
    /// Not in the reference, and fails.
    NewFailing = "new-failing",
    /// Its declared failure is past its date.
    Expired = "expired",
    /// Passes although a failure is declared.
    UnexpectedPass = "unexpected-pass",
    /// Ran in the reference, is skipped now.
    NewlySkipped = "newly-skipped",
    /// Is skipped, as before or not.
    Skipped = "skipped",
    /// Fails as its suite declares, and not as in the reference.
    DeclaredFailure = "declared-failure",
    /// Fails as in the reference.
    KnownFailure = "known-failure",
    /// Not in the reference, and passes.
    New = "new",
    /// Passes, and didn't in the reference.
    Fixed = "fixed",
    /// Process runs of one case disagree, or it took several attempts.
    Flaky = "flaky",
    /// Slower, and again when it was measured again.
    Slower = "slower",
    /// Slower, and not measured again.
    SlowerUnconfirmed = "slower-unconfirmed",
    /// The ratio of medians is beyond the plain threshold; no test could be made.
    PlainSlower = "plain-slower",
    /// Can't be said.
    Undecided = "undecided",
    /// Too good to be true.
    Implausible = "implausible",
    /// Faster.
    Faster = "faster",
    /// Suspected, measured again, and not so.
    Cleared = "cleared",
    /// Suspected, measured again, and still not to be said.
    Unclear = "unclear",
    /// Too noisy to show small changes.
    Noisy = "noisy",
    /// All cases moved together.
    CommonMode = "common-mode",
    /// More of a ring was in use than in the reference.
    RingGrew = "ring-grew",
    /// Less of a ring was in use than in the reference.
    RingShrank = "ring-shrank",
    /// A ring has another size than in the reference.
    RingResized = "ring-resized",
    /// The reference has peaks of the rings, the run has none.
    RingsNotReported = "rings-not-reported",
    /// Half of a ring would not do.
    LowHeadroom = "low-headroom",
    /// Worse than the last release.
    Drift = "drift",
    /// There is no last release.
    NoRelease = "no-release",
    /// The hosts are of different classes: latencies were not compared.
    OtherHostClass = "other-host-class",
    /// The run doesn't cover everything that is declared.
    Partial = "partial",
    /// The run's source is not a clean commit.
    Dirty = "dirty",
    /// The run is of another commit than the tree.
    OtherCommit = "other-commit",
    /// The run is of another matrix than the tree declares.
    OtherMatrix = "other-matrix",
    /// The command line of the run changed what cases mean.
    Overridden = "overridden",
    /// The baseline is older than it should be.
    OldBaseline = "old-baseline",
}

impl Kind {
    /// True for what every policy fails on, whatever its file says.
    pub const fn always_fails(self) -> bool {
        matches!(self, Self::NothingCompared | Self::Incomplete)
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.token())
    }
}
