//! One case of a run, over its process runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::case_id::CaseId;
use crate::outcome::Outcome;
use crate::record::{CaseRecord, Clock, Expectation, Run, WorkCounters};
use crate::stats;

/// What one side of a comparison knows of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseSummary {
    /// The worst outcome of its process runs.
    pub outcome: Outcome,
    /// The outcomes of its process runs, each once, where they are not all the same.
    pub disagreement: Vec<Outcome>,
    /// Most attempts that a process run took; 1 without a retry.
    pub attempts: u32,
    /// What the suite expected, and whether it held.
    pub expectation: Expectation,
    /// Latency; `None` where no dispatch was timed.
    pub latency: Option<LatencySummary>,
    /// Peaks per ring; `None` where the runtime reports none.
    pub rings: Option<[RingPeak; 4]>,
    /// Work of the correctness dispatch.
    pub work: Option<WorkCounters>,
    /// Content hash of the executable.
    pub kernel_hash: Option<String>,
    /// Seed and parameters, as one text: `seed=0 mode=decode`.
    pub subject: String,
    /// Tags.
    pub tags: Vec<String>,
}

/// The latency of a case: one median per process run, since the process run is what is replicated.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencySummary {
    /// Clock of the samples.
    pub clock: Clock,
    /// Timed dispatches per process run (the fewest of any).
    pub rounds: usize,
    /// Median of each process run, ns. From a run these are positive and finite; from a file they may be anything.
    pub run_medians_ns: Vec<f64>,
}

impl LatencySummary {
    /// Median over the process runs, ns.
    pub fn median_ns(&self) -> Option<f64> {
        stats::median(&self.run_medians_ns)
    }
}

/// Capacity and peak of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RingPeak {
    /// Heap in force, bytes.
    pub heap_capacity_bytes: u64,
    /// Most heap in use, bytes.
    pub heap_high_water_bytes: u64,
    /// Slots in force.
    pub task_window: u64,
    /// Most slots in use.
    pub tasks_high_water: u64,
    /// Entries in force.
    pub dep_pool: u64,
    /// Most entries in use.
    pub dep_pool_high_water: u64,
}

/// Summaries of every case that has a record.
///
/// Shared, since a summary is large, and a comparison, a baseline and a report all hold it.
pub fn summarise(run: &Run) -> BTreeMap<CaseId, Arc<CaseSummary>> {
    let records = run.terminal();
    let of_case: Vec<&[&CaseRecord]> = records.chunk_by(|a, b| a.case == b.case).collect();
    let summaries: Vec<_> = of_case
        .into_par_iter()
        .filter_map(|records| Some((records.first()?.case.clone(), Arc::new(CaseSummary::of(records)?))))
        .collect();
    summaries.into_iter().collect()
}

impl CaseSummary {
    /// The summary of one case's process runs; `None` of none.
    pub fn of(records: &[&CaseRecord]) -> Option<Self> {
        // Severity is the order of the kinds, worst first; the first process run of the worst is the evidence.
        let worst = records.iter().min_by_key(|record| record.outcome.kind())?;
        let mut outcomes: Vec<Outcome> = records.iter().map(|record| record.outcome.clone()).collect();
        outcomes.sort();
        outcomes.dedup();
        Some(Self {
            outcome: worst.outcome.clone(),
            disagreement: if outcomes.len() > 1 { outcomes } else { Vec::new() },
            attempts: records.iter().map(|record| record.attempt).max().unwrap_or(1),
            expectation: worst.expectation.clone(),
            latency: latency_of(records),
            rings: rings_of(records),
            work: worst.work,
            kernel_hash: worst.subject.kernel_hash.clone(),
            subject: subject_text(worst),
            tags: worst.subject.tags.clone(),
        })
    }
}

fn subject_text(record: &CaseRecord) -> String {
    let seed = record.subject.seed.map(|seed| format!("seed={seed}"));
    let params = record
        .subject
        .params
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    seed.into_iter().chain(params).collect::<Vec<_>>().join(" ")
}

fn latency_of(records: &[&CaseRecord]) -> Option<LatencySummary> {
    let timed: Vec<_> = records.iter().filter_map(|record| record.latency.as_ref()).collect();
    let first = timed.first()?;
    // Two clocks in one case can't be summarised together; those of the first process run are kept.
    let same_clock = timed.iter().filter(|latency| latency.clock() == first.clock());
    let medians = same_clock.filter_map(|latency| {
        let samples: Vec<f64> = latency.samples().iter().map(|sample| sample.get() as f64).collect();
        stats::median(&samples)
    });
    Some(LatencySummary {
        clock: first.clock(),
        rounds: timed.iter().map(|latency| latency.samples().len()).min()?,
        run_medians_ns: medians.collect(),
    })
}

fn rings_of(records: &[&CaseRecord]) -> Option<[RingPeak; 4]> {
    let mut peaks: Option<[RingPeak; 4]> = None;
    for usage in records.iter().filter_map(|record| record.rings.usage) {
        let peaks = peaks.get_or_insert_default();
        for (peak, ring) in peaks.iter_mut().zip(usage) {
            peak.heap_capacity_bytes = ring.heap_capacity_bytes;
            peak.heap_high_water_bytes = peak.heap_high_water_bytes.max(ring.heap_high_water_bytes);
            peak.task_window = ring.task_window;
            peak.tasks_high_water = peak.tasks_high_water.max(ring.tasks_high_water);
            peak.dep_pool = ring.dep_pool;
            peak.dep_pool_high_water = peak.dep_pool_high_water.max(ring.dep_pool_high_water);
        }
    }
    peaks
}
