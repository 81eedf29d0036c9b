//! `results.csv`: one row a case, for spreadsheets. The records are the source; nothing reads this back.

use std::io;

use crate::record::{CaseRecord, Run};

const HEADER: [&str; 25] = [
    "case",
    "outcome",
    "cause",
    "expectation",
    "attempts",
    "process_runs",
    "samples",
    "clock",
    "median_ns",
    "min_ns",
    "max_ns",
    "setup_ns",
    "total_ns",
    "peak_memory_bytes",
    "ring0_heap_high_water_bytes",
    "ring0_heap_capacity_bytes",
    "ring1_heap_high_water_bytes",
    "ring1_heap_capacity_bytes",
    "ring2_heap_high_water_bytes",
    "ring2_heap_capacity_bytes",
    "ring3_heap_high_water_bytes",
    "ring3_heap_capacity_bytes",
    "tasks_submitted",
    "summary",
    "log",
];

/// The table of `run`: planned cases in the order of the plan, then others by id.
pub(super) fn table(run: &Run) -> io::Result<Vec<u8>> {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(HEADER)?;
    for case in &run.provenance.planned {
        let records: Vec<&CaseRecord> = run.records.iter().filter(|record| record.case == *case).collect();
        writer.write_record(row(case.as_str(), &records))?;
    }
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

fn row(case: &str, records: &[&CaseRecord]) -> Vec<String> {
    let Some(last) = records
        .iter()
        .copied()
        .max_by_key(|record| (record.repeat, record.attempt))
    else {
        let mut row = vec![case.to_owned(), "missing".into()];
        row.resize(HEADER.len(), String::new());
        return row;
    };
    let attempts = records.len();
    let repeats: std::collections::BTreeSet<u32> = records.iter().map(|record| record.repeat).collect();
    let mut samples: Vec<u64> = records
        .iter()
        .filter_map(|record| record.latency.as_ref())
        .flat_map(|latency| latency.samples().iter().map(|sample| sample.get()))
        .collect();
    samples.sort_unstable();
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let mut row = vec![
        case.to_owned(),
        last.outcome.kind().to_string(),
        last.outcome.cause(),
        expectation(last).to_owned(),
        attempts.to_string(),
        repeats.len().to_string(),
        samples.len().to_string(),
        last.latency
            .as_ref()
            .map(|latency| latency.clock().token().to_owned())
            .unwrap_or_default(),
        number(median(&samples)),
        number(samples.first().copied()),
        number(samples.last().copied()),
        number(last.phases.setup.map(|setup| setup.as_nanos() as u64)),
        (last.phases.total.as_nanos() as u64).to_string(),
        number(last.peak_memory_bytes),
    ];
    for ring in 0..4 {
        let usage = last.rings.usage.map(|usage| usage[ring]);
        row.push(number(usage.map(|usage| usage.heap_high_water_bytes)));
        row.push(number(usage.map(|usage| usage.heap_capacity_bytes)));
    }
    row.push(number(last.work.map(|work| work.tasks_submitted)));
    row.push(last.evidence.summary.clone());
    row.push(last.log.clone().unwrap_or_default());
    row
}

fn expectation(record: &CaseRecord) -> &'static str {
    use crate::record::Expectation;
    match &record.expectation {
        Expectation::None => "",
        Expectation::Met(_) => "met",
        Expectation::NotMet(_) => "not-met",
        Expectation::UnexpectedPass(_) => "unexpected-pass",
        Expectation::Expired(_) => "expired",
    }
}

/// The middle of `sorted`; of an even number the mean of the two middle ones, rounded down.
fn median(sorted: &[u64]) -> Option<u64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(sorted[middle - 1].midpoint(sorted[middle])),
    }
}
