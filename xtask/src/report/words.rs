//! The short texts of one case, the same in every format.

use crate::compare::{
    CaseDiff, Confirmation, Direction, LatencySummary, LatencyVerdict, OutcomeChange, RingPeak, RingResource, Undecided,
};
use crate::record::Nanos;
use crate::size::Bytes;

/// `regressed`, or nothing for a case that is as it was.
pub(super) fn change(diff: &CaseDiff) -> &'static str {
    match diff.change {
        OutcomeChange::Same => "",
        change => change.token(),
    }
}

/// A number of nanoseconds as people read it; nothing for one that is no latency.
pub(super) fn nanos(ns: f64) -> String {
    Nanos::from_f64(ns).map(|ns| ns.to_string()).unwrap_or_default()
}

/// Median over process runs.
pub(super) fn median(diff: &CaseDiff) -> String {
    let latency = diff.now.as_ref().and_then(|now| now.latency.as_ref());
    latency
        .and_then(LatencySummary::median_ns)
        .map(nanos)
        .unwrap_or_default()
}

/// The latency verdict in a few words: `slower +10.2 % [+8.9, +11.4]`.
pub(super) fn latency(diff: &CaseDiff) -> String {
    let text = verdict(diff.final_latency());
    match &diff.confirmation {
        Some(Confirmation::Confirmed(_)) => format!("{text}, again"),
        Some(Confirmation::Cleared(_)) => format!("{text}, cleared of {}", diff.latency.token()),
        Some(Confirmation::Unclear(_)) => format!("{text}, measured again"),
        Some(Confirmation::Explained(_)) => format!("{text}, as the machine"),
        Some(Confirmation::NotMeasured) => format!("{text}, not measured again"),
        None => text,
    }
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn verdict(verdict: &LatencyVerdict) -> String {
    match verdict {
        LatencyVerdict::None => String::new(),
        LatencyVerdict::Slower(e) | LatencyVerdict::Faster(e) | LatencyVerdict::Unchanged(e) => format!(
            "{} {} [{:+.1}, {:+.1}]",
            verdict.token(),
            percent(e.ratio),
            (e.low - 1.0) * 100.0,
            (e.high - 1.0) * 100.0
        ),
        LatencyVerdict::Implausible(_, reading) => format!("implausible {}", percent(reading.ratio)),
        LatencyVerdict::Undecided(why, reading) => {
            let why = match why {
                Undecided::TooFewRuns { base, now, .. } => format!("{now} vs {base} runs"),
                Undecided::SpreadTooWide { .. } => "spread too wide".into(),
                Undecided::OtherHostClass(_) => "other host class".into(),
                Undecided::OtherSubject { .. } => "other inputs".into(),
                Undecided::NotSure { .. } => "not sure over the sweep".into(),
                Undecided::Identical => "identical samples".into(),
                Undecided::OneSample
                | Undecided::NotFinite
                | Undecided::Negative
                | Undecided::Zero
                | Undecided::Denormal
                | Undecided::OtherStatistic(_)
                | Undecided::OtherUnit(_)
                | Undecided::OtherClock { .. }
                | Undecided::OtherRounds { .. }
                | Undecided::NoReference
                | Undecided::NotTimed => why.to_string(),
            };
            match reading {
                Some(reading) if reading.beyond == Some(Direction::Slower) => {
                    format!("undecided {} (plain threshold; {why})", percent(reading.ratio))
                }
                Some(reading) => format!("undecided {} ({why})", percent(reading.ratio)),
                None => format!("undecided ({why})"),
            }
        }
    }
}

/// The fullest ring: `ring 1 heap 292.7 of 512 MiB, 57 %`.
pub(super) fn fullest_ring(diff: &CaseDiff) -> String {
    let Some(peaks) = diff.now.as_ref().and_then(|now| now.rings) else {
        return String::new();
    };
    let all = (0..4).flat_map(|ring| RingResource::ALL.map(|resource| (ring, resource)));
    let used = all.filter_map(|(ring, resource)| {
        let fill = fill(&peaks[ring], resource)?;
        Some((ring, resource, fill))
    });
    let Some((ring, resource, fill)) = used.max_by(|a, b| a.2.total_cmp(&b.2)) else {
        return String::new();
    };
    let (capacity, high_water) = resource.of(&peaks[ring]);
    let (capacity, high_water) = match resource {
        RingResource::Heap => (bytes(capacity), bytes(high_water)),
        RingResource::TaskWindow | RingResource::DepPool => (capacity.to_string(), high_water.to_string()),
    };
    format!(
        "ring {ring} {} {high_water} of {capacity}, {:.0} %",
        resource.token(),
        fill * 100.0
    )
}

/// Share of a resource that was in use at its peak; `None` where nothing was.
pub(super) fn fill(peak: &RingPeak, resource: RingResource) -> Option<f64> {
    let (capacity, high_water) = resource.of(peak);
    (high_water > 0 && capacity > 0).then(|| high_water as f64 / capacity as f64)
}

/// Bytes as people read them, in binary units.
pub(super) fn bytes(bytes: u64) -> String {
    Bytes::new(bytes).human()
}
