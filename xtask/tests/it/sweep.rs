//! Runs made by hand, for tests of what is done with runs.

use std::collections::BTreeMap;
use std::time::Duration;

use xtask::case_id::CaseId;
use xtask::outcome::Outcome;
use xtask::record::{
    CaseRecord, Clock, Evidence, Expectation, Expected, Latency, Nanos, PhaseTimes, Provenance, RingRecord, RingUsage,
    Run, RunStatus, Subject, WorkCounters,
};

/// The id that `text` is.
#[track_caller]
pub(crate) fn id(text: &str) -> CaseId {
    text.parse().unwrap()
}

/// A complete, clean run without records.
pub(crate) fn run(run_id: &str) -> Run {
    let host = [
        ("cpu", "Example 9000"),
        ("cores", "2"),
        ("memory", "32GiB"),
        ("os", "linux-x86_64"),
    ];
    Run {
        provenance: Provenance {
            run_id: run_id.into(),
            started: "2026-12-01T10:00:00Z".into(),
            ended: Some("2026-12-01T10:05:00Z".into()),
            status: RunStatus::Complete,
            command_line: vec!["cargo".into(), "xtask".into(), "sweep".into()],
            harness_version: "0.1.0".into(),
            matrix_hash: "aa".repeat(32),
            planned: Vec::new(),
            deselected: 0,
            selection: Vec::new(),
            shard: None,
            seed: 0,
            git_commit: Some("0123456789abcdef0123456789abcdef01234567".into()),
            git_dirty: Some(false),
            platform: "host".into(),
            host: host.map(|(name, value)| (name.into(), value.into())).into(),
            toolchain: "rustc 1.95.0".into(),
            environment: BTreeMap::new(),
            overrides: BTreeMap::new(),
        },
        records: Vec::new(),
    }
}

/// A passing record without latency.
pub(crate) fn record(case: &str) -> CaseRecord {
    CaseRecord {
        case: id(case),
        attempt: 1,
        repeat: 0,
        outcome: Outcome::Pass,
        evidence: Evidence {
            summary: "every output within its tolerance".into(),
            source: "report".into(),
            ..Evidence::default()
        },
        expectation: Expectation::None,
        rings: RingRecord::default(),
        latency: None,
        phases: PhaseTimes {
            queue: Duration::ZERO,
            setup: Some(Duration::from_millis(20)),
            total: Duration::from_millis(300),
        },
        declared_memory_bytes: Some(1 << 30),
        peak_memory_bytes: Some(1 << 29),
        work: Some(WorkCounters {
            tasks_submitted: 100,
            tasks_dispatched: 90,
        }),
        subject: Subject {
            kernel: case.split('/').nth(1).unwrap().into(),
            seed: Some(0),
            kernel_hash: Some("ab".repeat(32)),
            ..Subject::default()
        },
        log: Some(format!("logs/{}.log", case.replace('/', "__"))),
    }
}

/// Steps that turn a record into the one that a test needs.
pub(crate) trait With: Sized {
    /// With this outcome: `deadlock/heap-ring`.
    fn outcome(self, text: &str) -> Self;
    /// With these timed dispatches, ns.
    fn samples(self, samples: &[u64]) -> Self;
    /// As this process run.
    fn repeat(self, repeat: u32) -> Self;
    /// With this peak of ring 1's heap and its capacity, bytes.
    fn heap(self, high_water: u64, capacity: u64) -> Self;
    /// With this expectation.
    fn expecting(self, make: fn(Expected) -> Expectation) -> Self;
    /// With these tags.
    fn tags(self, tags: &[&str]) -> Self;
}

impl With for CaseRecord {
    fn outcome(mut self, text: &str) -> Self {
        let (kind, cause) = text.split_once('/').unwrap_or((text, ""));
        self.outcome = Outcome::from_tokens(kind, cause).unwrap();
        if self.outcome != Outcome::Pass {
            self.latency = None;
        }
        self
    }

    fn samples(mut self, samples: &[u64]) -> Self {
        let samples = samples.iter().map(|&ns| Nanos::new(ns).unwrap()).collect();
        self.latency = Latency::new(Clock::Device, samples);
        self
    }

    fn repeat(mut self, repeat: u32) -> Self {
        self.repeat = repeat;
        self
    }

    fn heap(mut self, high_water: u64, capacity: u64) -> Self {
        let mut usage = [RingUsage {
            heap_capacity_bytes: 1 << 28,
            task_window: 16384,
            dep_pool: 16384,
            ..RingUsage::default()
        }; 4];
        usage[1].heap_high_water_bytes = high_water;
        usage[1].heap_capacity_bytes = capacity;
        self.rings.usage = Some(usage);
        self
    }

    fn expecting(mut self, make: fn(Expected) -> Expectation) -> Self {
        self.expectation = make(Expected {
            outcome: "deadlock".into(),
            cause: Some("heap-ring".into()),
            ring: None,
            shows: Vec::new(),
            issue: Some("#17".into()),
            until: Some("2026-12-31".into()),
        });
        self
    }

    fn tags(mut self, tags: &[&str]) -> Self {
        self.subject.tags = tags.iter().map(|tag| (*tag).into()).collect();
        self
    }
}

/// The run with these records, each planned.
pub(crate) fn with(mut run: Run, records: impl IntoIterator<Item = CaseRecord>) -> Run {
    run.records.extend(records);
    run.provenance.planned = run.records.iter().map(|record| record.case.clone()).collect();
    run.provenance.planned.sort();
    run.provenance.planned.dedup();
    run
}

/// One record per process run of a case, one timed dispatch trio each around its median.
pub(crate) fn repeats(case: &str, medians: &[u64]) -> Vec<CaseRecord> {
    let each = medians.iter().zip(0..);
    each.map(|(&ns, repeat)| record(case).repeat(repeat).samples(&[ns - ns / 50, ns, ns + ns / 50]))
        .collect()
}
