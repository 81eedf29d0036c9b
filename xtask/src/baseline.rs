//! Baselines: the reviewed expectation of a platform on a class of hosts.
//!
//! A baseline is two committed files beside each other. `<platform>.<host-class>.csv` holds one row a
//! case, sorted by id, so that a review reads as a list of cases that moved.
//! `<platform>.<host-class>.toml` holds what the rows stand on: the host's facts and every acceptance
//! that a row refers to. The last release is the same pair with `.release` before the ending.
//! Nothing writes them but `baseline accept` and `baseline tag`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::case_id::CaseId;
use crate::compare::CaseSummary;
use crate::host_class::HostClass;

mod accept;
mod error;
mod header;
mod noise;
mod rows;
mod store;

pub use accept::{Accepted, Move, MoveKind, Refusal, Request, accept};
pub use error::BaselineError;
pub use header::BaselineVersion;
pub use noise::learnt_floor;
pub use store::{Found, Reference, file_stem, find, load, save};

/// The expectation of one platform on one host class.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Platform.
    pub platform: String,
    /// Host class that the latencies are from.
    pub host: HostClass,
    /// Name of the release, for a baseline that `tag` made.
    pub release: Option<String>,
    /// Acceptances that rows refer to, oldest first.
    pub accepts: Vec<Acceptance>,
    /// Rows by case.
    pub rows: BTreeMap<CaseId, Row>,
}

/// One `baseline accept`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The run whose results were accepted.
    pub run_id: String,
    /// When, RFC 3339 UTC.
    pub accepted: String,
    /// Commit of the run.
    pub commit: Option<String>,
    /// Uncommitted changes were present.
    pub dirty: Option<bool>,
    /// Matrix hash of the run.
    pub matrix_hash: String,
    /// Compiler of the run.
    pub toolchain: String,
    /// Selection of the acceptance; empty for the whole run.
    pub selection: Vec<String>,
    /// Why a run was accepted that would have been refused, or why it is accepted at all.
    pub because: Option<String>,
}

/// The expectation of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// What is expected.
    pub summary: Arc<CaseSummary>,
    /// Share by which this case's latency moves by itself, as learnt over acceptances; `None` where too little is known.
    pub noise_floor: Option<f64>,
    /// What the latency numbers are: [`Row::STATISTIC`].
    pub statistic: String,
    /// Their unit: [`Row::UNIT`].
    pub unit: String,
    /// The run that the row is from.
    pub run_id: String,
}

impl Row {
    /// The statistic that is compared: the median of each process run.
    pub const STATISTIC: &'static str = "run-median";
    /// Its unit.
    pub const UNIT: &'static str = "ns";

    /// A row straight from a run, which has learnt nothing yet.
    pub fn fresh(summary: Arc<CaseSummary>, run_id: &str) -> Self {
        Self {
            noise_floor: None,
            summary,
            statistic: Self::STATISTIC.into(),
            unit: Self::UNIT.into(),
            run_id: run_id.into(),
        }
    }
}

impl Baseline {
    /// A baseline without rows.
    pub fn empty(platform: &str, host: HostClass) -> Self {
        Self {
            platform: platform.into(),
            host,
            release: None,
            accepts: Vec::new(),
            rows: BTreeMap::new(),
        }
    }

    /// How reports name it.
    pub fn label(&self) -> String {
        match &self.release {
            Some(release) => format!("release {release} ({}, {})", self.platform, self.host),
            None => format!("baseline {} ({})", self.platform, self.host),
        }
    }

    /// The newest acceptance.
    pub fn latest(&self) -> Option<&Acceptance> {
        self.accepts.last()
    }
}

impl Acceptance {
    /// Whole days from the acceptance to `today`; `None` for a time that can't be read.
    pub fn age_days(&self, today: jiff::civil::Date) -> Option<i64> {
        // The date stands first in RFC 3339, and the time is in UTC.
        let then: jiff::civil::Date = self.accepted.get(..10)?.parse().ok()?;
        then.until(today).ok().map(|span| i64::from(span.get_days()))
    }
}
