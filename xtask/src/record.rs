//! What one sweep leaves behind, as the rest of the harness sees it: a run, its provenance and one
//! terminal record per case attempt.
//!
//! These are domain types: how they look in a file is `format`'s matter, so none of them derives
//! `Serialize`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::case_id::CaseId;
use crate::outcome::Outcome;

mod evidence;
mod latency;
mod rings;

pub use evidence::{Detail, Evidence, EvidenceLine, MAX_LINE_BYTES, MAX_LINES, RingShortage, StallFacts, TensorFacts};
pub use latency::{Clock, Latency, LatencyError, Nanos, Sample};
pub use rings::{AskedRings, AskedValue, ResourceSizes, RingRecord, RingUsage, TierName};

/// One terminal record: how one attempt of one case ended.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseRecord {
    /// The case.
    pub case: CaseId,
    /// 1 for the first try; more where the case declares a retry.
    pub attempt: u32,
    /// Process run within the sweep (`--repeat`), from 0.
    pub repeat: u32,
    /// The verdict.
    pub outcome: Outcome,
    /// What shows it.
    pub evidence: Evidence,
    /// What the suite expected instead of `pass`, and whether that held.
    pub expectation: Expectation,
    /// Ring config asked for, in force, and used.
    pub rings: RingRecord,
    /// Timed dispatches; `None` where none was taken (not passed, no rounds asked for).
    pub latency: Option<Latency>,
    /// Where the time of the attempt went.
    pub phases: PhaseTimes,
    /// Memory declared by the case, bytes.
    pub declared_memory_bytes: Option<u64>,
    /// Peak resident memory that the process reported, bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Counters of the correctness dispatch; they shouldn't move between runs of the same source.
    pub work: Option<WorkCounters>,
    /// What ran: program, parameters, seed, tags.
    pub subject: Subject,
    /// Log file, relative to the run's directory.
    pub log: Option<String>,
}

/// What ran.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Subject {
    /// Kernel or program.
    pub kernel: String,
    /// Resolved parameters.
    pub params: BTreeMap<String, String>,
    /// Seed of the fixture.
    pub seed: Option<u64>,
    /// Content hash of the executable, hex.
    pub kernel_hash: Option<String>,
    /// Tags of the case, sorted.
    pub tags: Vec<String>,
    /// Devices or slots that it ran on.
    pub devices: Vec<String>,
}

/// Work that a dispatch did, as the runtime counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WorkCounters {
    /// Tasks submitted over all rings and ranks.
    pub tasks_submitted: u64,
    /// Tasks that reached a core.
    pub tasks_dispatched: u64,
}

/// Where the time of an attempt went, on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PhaseTimes {
    /// Waiting for a slot or device.
    pub queue: Duration,
    /// From the start of the process to its first dispatch.
    pub setup: Option<Duration>,
    /// The whole process.
    pub total: Duration,
}

/// What the suite said would happen, against what did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Nothing special declared: `pass` is expected.
    None,
    /// The declared failure happened.
    Met(Expected),
    /// Something else happened.
    NotMet(Expected),
    /// The declared failure is gone: the case passes.
    UnexpectedPass(Expected),
    /// The declaration is past its date, whatever happened.
    Expired(Expected),
}

/// A declared failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Kind token and, where declared, cause token.
    pub outcome: String,
    /// Cause token; `None` accepts any.
    pub cause: Option<String>,
    /// Ring that the evidence names; `None` accepts any.
    pub ring: Option<u8>,
    /// What the evidence shows, each somewhere.
    pub shows: Vec<String>,
    /// Where it is tracked.
    pub issue: Option<String>,
    /// Last day on which it holds, `YYYY-MM-DD`.
    pub until: Option<String>,
}

/// One execution of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Who, when, where, with what.
    pub provenance: Provenance,
    /// Terminal records in the order in which cases ended.
    pub records: Vec<CaseRecord>,
}

/// Whether every planned case has its terminal record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// All ended; the run was closed in order.
    Complete,
    /// Stopped, killed or still running.
    Incomplete,
}

/// Everything that must be known to trust, compare or repeat a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Provenance {
    /// Unique id, also the name of the run's directory.
    pub run_id: String,
    /// Start, RFC 3339 UTC.
    pub started: String,
    /// End, RFC 3339 UTC; `None` for a run that was not closed.
    pub ended: Option<String>,
    /// Complete or not.
    pub status: RunStatus,
    /// Command line as typed.
    pub command_line: Vec<String>,
    /// Version of the harness.
    pub harness_version: String,
    /// Hash of the declared matrix (all cases of the suites in question, before selection), hex.
    pub matrix_hash: String,
    /// Cases that the plan held: the denominator.
    pub planned: Vec<CaseId>,
    /// Cases of the declared matrix that the selection left out.
    pub deselected: usize,
    /// Selection as typed; empty for the full matrix.
    pub selection: Vec<String>,
    /// Shard `k` of `n`.
    pub shard: Option<(u32, u32)>,
    /// Seed that was asked for, or drawn.
    pub seed: u64,
    /// Commit, hex; `None` outside of a repository.
    pub git_commit: Option<String>,
    /// Uncommitted changes were present.
    pub git_dirty: Option<bool>,
    /// Platform.
    pub platform: String,
    /// Stable, bucketed facts of the host: name → value.
    pub host: BTreeMap<String, String>,
    /// Compiler that built the kernels.
    pub toolchain: String,
    /// Environment variables that children were given.
    pub environment: BTreeMap<String, String>,
    /// Overrides that change what a case means (ring tiers of the command line, rounds, …): name → value.
    pub overrides: BTreeMap<String, String>,
}

impl Run {
    /// The last attempt of each case and repeat, in order of case and repeat.
    pub fn terminal(&self) -> Vec<&CaseRecord> {
        // A stable sort, since records stand nearly in this order already; then the last of each stays.
        let mut records: Vec<&CaseRecord> = self.records.iter().collect();
        records.sort_by(|a, b| {
            let key = |record: &CaseRecord| (record.repeat, record.attempt);
            a.case.cmp(&b.case).then_with(|| key(a).cmp(&key(b)))
        });
        let mut last: Vec<&CaseRecord> = Vec::with_capacity(records.len());
        for record in records {
            match last.last_mut() {
                Some(slot) if slot.case == record.case && slot.repeat == record.repeat => *slot = record,
                _ => last.push(record),
            }
        }
        last
    }

    /// Planned cases without a terminal record.
    pub fn missing(&self) -> Vec<&CaseId> {
        let have: std::collections::BTreeSet<&CaseId> = self.records.iter().map(|r| &r.case).collect();
        self.provenance
            .planned
            .iter()
            .filter(|case| !have.contains(case))
            .collect()
    }
}
