//! Who decided a ring value.

use std::fmt;

/// The layers that may decide a ring value, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// `--ring-…` of the sweep.
    CommandLine,
    /// The case, its axis point or its platform override.
    Case,
    /// The suite's defaults.
    Suite,
    /// The platform.
    Platform,
    /// The runtime's own default.
    Runtime,
}

impl Tier {
    /// Every tier, strongest first.
    pub const ALL: [Self; 5] = [
        Self::CommandLine,
        Self::Case,
        Self::Suite,
        Self::Platform,
        Self::Runtime,
    ];

    /// The word in records and listings.
    pub const fn token(self) -> &'static str {
        match self {
            Self::CommandLine => "command-line",
            Self::Case => "case",
            Self::Suite => "suite",
            Self::Platform => "platform",
            Self::Runtime => "runtime",
        }
    }

    /// The tier that `token` names.
    pub fn from_token(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.token() == token)
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.token())
    }
}
