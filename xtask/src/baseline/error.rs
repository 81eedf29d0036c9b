//! Why a baseline can't be used.

use super::header::BaselineVersion;

/// Why a baseline file can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The file can't be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Not TOML, or not ours.
    #[error("it is unreadable")]
    Toml(#[from] toml::de::Error),
    /// The header can't be written.
    #[error("its header can't be written")]
    Write(#[from] toml::ser::Error),
    /// Not CSV.
    #[error("it is unreadable")]
    Csv(#[from] csv::Error),
    /// Some other file.
    #[error("it says `format = \"{0}\"`: this is no baseline of ringsweep")]
    Foreign(String),
    /// Written by a newer harness.
    #[error(
        "it has format {found}, this harness reads up to {major}.x: update the checkout, or accept a run again with this one",
        major = BaselineVersion::CURRENT.major
    )]
    Newer {
        /// Its version.
        found: BaselineVersion,
    },
    /// A newer minor would lose fields if it were written back.
    #[error("it has format {found}, which knows more than this harness ({ours}): it may be read but not written over", ours = BaselineVersion::CURRENT)]
    NewerMinor {
        /// Its version.
        found: BaselineVersion,
    },
    /// A row that makes no sense.
    #[error("line {line}: {message}")]
    Row {
        /// Line of the file, from 1.
        line: u64,
        /// What is wrong.
        message: String,
    },
    /// A row of an acceptance that the header doesn't know.
    #[error(
        "case `{case}` is from run `{run_id}`, which no acceptance of the header names: the two files don't belong together"
    )]
    UnknownAcceptance {
        /// The case.
        case: String,
        /// The run it names.
        run_id: String,
    },
    /// The name of the file and its content disagree.
    #[error("it is for `{found}`, its name says `{expected}`")]
    OtherName {
        /// Platform and class of its header.
        found: String,
        /// Platform and class of its name.
        expected: String,
    },
}
