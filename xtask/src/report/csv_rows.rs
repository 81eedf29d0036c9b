//! CSV for spreadsheets: one row a case, numbers in the unit of their column.

use std::io::{self, Write};

use rayon::prelude::*;

use super::{Report, escape::spreadsheet, words};
use crate::compare::{CaseDiff, LatencySummary, LatencyVerdict, RingPeak, RingResource};

const HEADER: [&str; 21] = [
    "case",
    "outcome",
    "cause",
    "change",
    "reference_outcome",
    "latency",
    "latency_detail",
    "confirmation",
    "median_ns",
    "reference_median_ns",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p_raw",
    "p_adjusted",
    "process_runs",
    "fullest_ring_share",
    "fullest_ring",
    "what_happened",
    "tags",
    "log",
];

/// Rows that are made at once, in parallel with other such blocks.
const BLOCK: usize = 1024;

/// Rows that are held at once.
const WAVE: usize = 16 * BLOCK;

pub(super) fn render(report: &Report<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut header = csv::Writer::from_writer(Vec::new());
    header.write_record(HEADER)?;
    out.write_all(&header.into_inner().map_err(csv::IntoInnerError::into_error)?)?;
    // In waves, so that a large sweep's rows don't all stand in memory.
    for wave in report.cases().chunks(WAVE) {
        let blocks: Vec<io::Result<Vec<u8>>> = wave
            .par_chunks(BLOCK)
            .map(|cases| {
                let mut writer = csv::Writer::from_writer(Vec::new());
                for diff in cases {
                    writer.write_record(row(report, diff))?;
                }
                writer.into_inner().map_err(csv::IntoInnerError::into_error)
            })
            .collect();
        for block in blocks {
            out.write_all(&block?)?;
        }
    }
    out.flush()
}

fn row(report: &Report<'_>, diff: &CaseDiff) -> [String; HEADER.len()] {
    let evidence = report.evidence(diff);
    let outcome = diff.outcome();
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let now = diff.now.as_ref().and_then(|now| now.latency.as_ref());
    let base = diff.base.as_ref().and_then(|base| base.latency.as_ref());
    let verdict = diff.final_latency();
    let effect = match verdict {
        LatencyVerdict::Slower(effect) | LatencyVerdict::Faster(effect) | LatencyVerdict::Unchanged(effect) => {
            Some(effect)
        }
        LatencyVerdict::None | LatencyVerdict::Undecided(..) | LatencyVerdict::Implausible(..) => None,
    };
    let latency = match verdict {
        LatencyVerdict::None => "",
        verdict => verdict.token(),
    };
    [
        spreadsheet(diff.case.as_str()),
        outcome.kind().token().into(),
        spreadsheet(&outcome.cause()),
        diff.change.token().into(),
        diff.base
            .as_ref()
            .map(|base| spreadsheet(&base.outcome.to_string()))
            .unwrap_or_default(),
        latency.into(),
        if latency.is_empty() {
            String::new()
        } else {
            spreadsheet(&verdict.to_string())
        },
        diff.confirmation
            .as_ref()
            .map(|c| c.token().to_owned())
            .unwrap_or_default(),
        number(now.and_then(LatencySummary::median_ns)),
        number(base.and_then(LatencySummary::median_ns)),
        number(verdict.ratio()),
        number(effect.map(|e| e.low)),
        number(effect.map(|e| e.high)),
        number(effect.map(|e| e.p_raw)),
        number(effect.map(|e| e.p_adjusted)),
        now.map(|now| now.run_medians_ns.len().to_string()).unwrap_or_default(),
        number(diff.now.as_ref().and_then(|now| fullest(now.rings?))),
        words::fullest_ring(diff),
        spreadsheet(super::why(evidence)),
        spreadsheet(&diff.tags().join(" ")),
        spreadsheet(evidence.and_then(|record| record.log.as_deref()).unwrap_or_default()),
    ]
}

fn fullest(peaks: [RingPeak; 4]) -> Option<f64> {
    let fills = peaks
        .iter()
        .flat_map(|peak| RingResource::ALL.map(|resource| words::fill(peak, resource)));
    fills.flatten().max_by(f64::total_cmp)
}
