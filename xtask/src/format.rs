//! The results format on disk: wire structs, their version, and the conversions to and from `record`.
//!
//! `run.json` is one object; `records.jsonl` is a header line and then one line per terminal record.
//! Both carry [`FormatVersion::CURRENT`].
//!
//! Changelog of the format (the constant carries it, so that whoever bumps it writes here):
//! - 1.0: first.
//! - 1.1: `expected` of a record has `ring` and `shows`.

use std::fmt;

use serde::{Deserialize, Serialize};

pub mod read;
mod record_wire;
mod run_wire;

pub use record_wire::RecordWire;
pub use run_wire::RunWire;

/// Name of the format in every file.
pub const FORMAT_NAME: &str = "ringsweep-results";

/// `major.minor` of the results format.
///
/// A minor adds fields that older readers ignore; a major is refused by older readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FormatVersion {
    /// Incompatible changes.
    pub major: u32,
    /// Additions.
    pub minor: u32,
}

impl FormatVersion {
    /// What this harness writes.
    pub const CURRENT: Self = Self { major: 1, minor: 1 };
}

impl fmt::Display for FormatVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The part of every file that says what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT_NAME`].
    pub format: String,
    /// See [`FormatVersion`].
    pub major: u32,
    /// See [`FormatVersion`].
    pub minor: u32,
}

impl Header {
    /// The header that this harness writes.
    pub fn current() -> Self {
        let FormatVersion { major, minor } = FormatVersion::CURRENT;
        Self {
            format: FORMAT_NAME.into(),
            major,
            minor,
        }
    }

    /// The version, if this harness can read it.
    pub fn check(&self) -> Result<FormatVersion, FormatError> {
        if self.format != FORMAT_NAME {
            return Err(FormatError::Foreign {
                found: self.format.clone(),
            });
        }
        let version = FormatVersion {
            major: self.major,
            minor: self.minor,
        };
        if self.major > FormatVersion::CURRENT.major {
            return Err(FormatError::Newer { found: version });
        }
        Ok(version)
    }
}

/// Why a results file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// Some other file.
    #[error("it says `format: {found}`, not `{FORMAT_NAME}`: this is no results file of ringsweep")]
    Foreign {
        /// What it says.
        found: String,
    },
    /// Written by a newer harness.
    #[error(
        "it has format {found}, this harness reads up to {major}.x: update the checkout that reads it, or sweep again with this one",
        major = FormatVersion::CURRENT.major
    )]
    Newer {
        /// Its version.
        found: FormatVersion,
    },
    /// Not JSON, or not ours.
    #[error("line {line} is unreadable")]
    Json {
        /// Line in the file, from 1.
        line: usize,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// A value that no version has written.
    #[error("line {line}: {message}")]
    Value {
        /// Line in the file, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// No header line.
    #[error("it is empty: not even the header is there")]
    Empty,
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Two files of one run disagree on whose they are.
    #[error("`records.jsonl` belongs to run `{records}`, `run.json` to run `{run}`: don't mix files of two runs")]
    OtherRun {
        /// Id in the records' header.
        records: String,
        /// Id in `run.json`.
        run: String,
    },
}
