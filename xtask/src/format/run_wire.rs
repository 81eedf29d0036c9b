//! `run.json` as it is written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{FormatError, Header};
use crate::record::{Provenance, RunStatus};

/// The one object of `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "each field is documented at the field of `Provenance` with the same name"
)]
pub struct RunWire {
    pub format: String,
    pub major: u32,
    pub minor: u32,
    pub run_id: String,
    pub status: StatusWire,
    pub started: String,
    pub ended: Option<String>,
    pub command_line: Vec<String>,
    pub harness_version: String,
    pub matrix_hash: String,
    pub planned: Vec<String>,
    pub deselected: usize,
    #[serde(default)]
    pub selection: Vec<String>,
    pub shard: Option<ShardWire>,
    pub seed: u64,
    pub git_commit: Option<String>,
    pub git_dirty: Option<bool>,
    pub platform: String,
    pub host: BTreeMap<String, String>,
    pub toolchain: String,
    pub environment: BTreeMap<String, String>,
    #[serde(default)]
    pub overrides: BTreeMap<String, String>,
}

/// Whether the run was closed in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatusWire {
    Complete,
    Incomplete,
}

/// Shard `index` of `count`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardWire {
    pub index: u32,
    pub count: u32,
}

impl RunWire {
    /// The wire form of `provenance`.
    pub fn new(provenance: &Provenance) -> Self {
        let header = Header::current();
        Self {
            format: header.format,
            major: header.major,
            minor: header.minor,
            run_id: provenance.run_id.clone(),
            status: match provenance.status {
                RunStatus::Complete => StatusWire::Complete,
                RunStatus::Incomplete => StatusWire::Incomplete,
            },
            started: provenance.started.clone(),
            ended: provenance.ended.clone(),
            command_line: provenance.command_line.clone(),
            harness_version: provenance.harness_version.clone(),
            matrix_hash: provenance.matrix_hash.clone(),
            planned: provenance.planned.iter().map(ToString::to_string).collect(),
            deselected: provenance.deselected,
            selection: provenance.selection.clone(),
            shard: provenance.shard.map(|(index, count)| ShardWire { index, count }),
            seed: provenance.seed,
            git_commit: provenance.git_commit.clone(),
            git_dirty: provenance.git_dirty,
            platform: provenance.platform.clone(),
            host: provenance.host.clone(),
            toolchain: provenance.toolchain.clone(),
            environment: provenance.environment.clone(),
            overrides: provenance.overrides.clone(),
        }
    }

    /// The domain form, after a check of the version.
    pub fn into_provenance(self) -> Result<Provenance, FormatError> {
        Header {
            format: self.format,
            major: self.major,
            minor: self.minor,
        }
        .check()?;
        let planned = self.planned.iter().map(|id| {
            id.parse().map_err(|error| FormatError::Value {
                line: 1,
                message: format!("planned case `{id}`: {error}"),
            })
        });
        Ok(Provenance {
            run_id: self.run_id,
            started: self.started,
            ended: self.ended,
            status: match self.status {
                StatusWire::Complete => RunStatus::Complete,
                StatusWire::Incomplete => RunStatus::Incomplete,
            },
            command_line: self.command_line,
            harness_version: self.harness_version,
            matrix_hash: self.matrix_hash,
            planned: planned.collect::<Result<_, _>>()?,
            deselected: self.deselected,
            selection: self.selection,
            shard: self.shard.map(|shard| (shard.index, shard.count)),
            seed: self.seed,
            git_commit: self.git_commit,
            git_dirty: self.git_dirty,
            platform: self.platform,
            host: self.host,
            toolchain: self.toolchain,
            environment: self.environment,
            overrides: self.overrides,
        })
    }
}
