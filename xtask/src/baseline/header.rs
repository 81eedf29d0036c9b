//! The header file of a baseline as it is written.
//!
//! Changelog of the format (whoever bumps [`BaselineVersion::CURRENT`] writes here):
//! - 1.0: first.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Acceptance, BaselineError};

/// Name of the format in the header.
const FORMAT_NAME: &str = "ringsweep-baseline";

/// `major.minor` of the baseline format: a minor adds, a major is refused by older readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BaselineVersion {
    /// Incompatible changes.
    pub major: u32,
    /// Additions.
    pub minor: u32,
}

impl BaselineVersion {
    /// What this harness writes.
    pub const CURRENT: Self = Self { major: 1, minor: 0 };
}

impl fmt::Display for BaselineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The whole header.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeaderWire {
    pub(super) format: String,
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) platform: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) release: Option<String>,
    pub(super) host: BTreeMap<String, String>,
    #[serde(default, rename = "accept")]
    pub(super) accepts: Vec<AcceptWire>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AcceptWire {
    run_id: String,
    accepted: String,
    commit: Option<String>,
    dirty: Option<bool>,
    matrix_hash: String,
    toolchain: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    selection: Vec<String>,
    because: Option<String>,
}

/// The part that every version has.
#[derive(Deserialize)]
struct VersionWire {
    format: String,
    major: u32,
    minor: u32,
}

/// Parses a header; the version is looked at first, so that a newer file is called newer, not broken.
pub(super) fn parse(text: &str) -> Result<HeaderWire, BaselineError> {
    let version: VersionWire = toml::from_str(text)?;
    if version.format != FORMAT_NAME {
        return Err(BaselineError::Foreign(version.format));
    }
    let found = BaselineVersion {
        major: version.major,
        minor: version.minor,
    };
    if found.major > BaselineVersion::CURRENT.major {
        return Err(BaselineError::Newer { found });
    }
    Ok(toml::from_str(text)?)
}

impl HeaderWire {
    pub(super) fn new(platform: &str, release: Option<&String>, host: &BTreeMap<String, String>) -> Self {
        let BaselineVersion { major, minor } = BaselineVersion::CURRENT;
        Self {
            format: FORMAT_NAME.into(),
            major,
            minor,
            platform: platform.into(),
            release: release.cloned(),
            host: host.clone(),
            accepts: Vec::new(),
        }
    }

    pub(super) fn version(&self) -> BaselineVersion {
        BaselineVersion {
            major: self.major,
            minor: self.minor,
        }
    }
}

impl From<&Acceptance> for AcceptWire {
    fn from(accept: &Acceptance) -> Self {
        let accept = accept.clone();
        Self {
            run_id: accept.run_id,
            accepted: accept.accepted,
            commit: accept.commit,
            dirty: accept.dirty,
            matrix_hash: accept.matrix_hash,
            toolchain: accept.toolchain,
            selection: accept.selection,
            because: accept.because,
        }
    }
}

impl From<AcceptWire> for Acceptance {
    fn from(wire: AcceptWire) -> Self {
        Self {
            run_id: wire.run_id,
            accepted: wire.accepted,
            commit: wire.commit,
            dirty: wire.dirty,
            matrix_hash: wire.matrix_hash,
            toolchain: wire.toolchain,
            selection: wire.selection,
            because: wire.because,
        }
    }
}
