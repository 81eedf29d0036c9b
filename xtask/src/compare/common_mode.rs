//! When all cases move together, the environment is the first suspect.

use super::{CaseDiff, Rules};
use crate::stats;

/// All cases moved in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CommonMode {
    /// Median over cases of run / reference.
    pub ratio: f64,
    /// Cases with a latency on both sides.
    pub cases: usize,
    /// How many of them moved in that direction.
    pub same_direction: usize,
}

/// Fewer cases than this say nothing about a common cause.
pub(super) const LEAST_CASES: usize = 5;

/// Looks at the median ratio over all cases whose latencies may be compared.
pub(super) fn detect(cases: &[CaseDiff], rules: &Rules) -> Option<CommonMode> {
    let logs: Vec<f64> = cases
        .iter()
        .filter_map(|diff| Some(diff.latency.ratio()?.ln()))
        .collect();
    if logs.len() < LEAST_CASES {
        return None;
    }
    let middle = stats::median(&logs)?;
    // A median beyond the threshold says that half of the cases are; that most agree in direction
    // keeps two equal and opposite groups from looking like one.
    let same_direction = logs.iter().filter(|log| log.signum() == middle.signum()).count();
    let together = same_direction * 4 >= logs.len() * 3;
    (middle.abs() > rules.common_mode.ln_1p() && together).then_some(CommonMode {
        ratio: middle.exp(),
        cases: logs.len(),
        same_direction,
    })
}

impl std::fmt::Display for CommonMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} of {} cases moved together, by {:+.1} % in the median: suspect the machine or a change below all kernels before any one case",
            self.same_direction,
            self.cases,
            (self.ratio - 1.0) * 100.0
        )
    }
}
