//! How much a case's latency moves by itself.

use crate::compare::CaseSummary;
use crate::stats;

/// Draws of the bootstrap; the floor needs no third digit.
const RESAMPLES: usize = 400;

/// Share that an old floor keeps per acceptance: what was once seen is forgotten slowly.
const MEMORY: f64 = 0.8;

/// The most that may be learnt: a case noisier than this is not measured at all.
const MOST: f64 = 0.5;

/// The noise floor of a case whose new runs are `summary`, after what `before` (its last row) knew.
///
/// Two sources: the bootstrap interval of the median over process runs, and, where the same executable
/// ran the same inputs in an earlier session, how far its median moved since then: between those two
/// nothing but noise can have changed. `None` where neither says anything.
pub fn learnt_floor(summary: &CaseSummary, before: Option<&super::Row>) -> Option<f64> {
    let latency = summary.latency.as_ref()?;
    let median = latency.median_ns()?;
    let within = stats::bootstrap_interval(&latency.run_medians_ns, stats::median, 0.95, RESAMPLES, 0)
        .filter(|_| latency.run_medians_ns.len() >= 3)
        .map(|(low, high)| (high - low) / 2.0 / median);
    let before = before.filter(|row| row.summary.subject == summary.subject);
    let between = before
        .filter(|row| row.summary.kernel_hash.is_some() && row.summary.kernel_hash == summary.kernel_hash)
        .and_then(|row| row.summary.latency.as_ref()?.median_ns())
        .map(|earlier| (median / earlier).ln().abs());
    let remembered = before.and_then(|row| row.noise_floor).map(|floor| floor * MEMORY);
    let floors = [within, between, remembered].into_iter().flatten();
    let finite = floors.filter(|floor| floor.is_finite());
    finite.reduce(f64::max).map(|floor| floor.min(MOST))
}
