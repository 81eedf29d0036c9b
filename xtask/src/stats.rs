//! Statistics of a few process runs: order statistics, a rank test, intervals, corrections for many tests.
//!
//! Everything here is a pure function of its numbers. Nothing here knows cases, units or verdicts:
//! what a number means is `compare`'s matter. Callers hand in finite numbers; a function that can't
//! answer (no numbers, too few for a level) returns `None` rather than a number that looks like an answer.

mod adjust;
mod bootstrap;
mod interval;
mod proportion;
mod rank;
mod rng;
mod signed_rank;
mod summary;

pub use adjust::{benjamini_hochberg, holm};
pub use bootstrap::bootstrap_interval;
pub use interval::{Shift, hodges_lehmann};
pub use proportion::{Rate, wilson, wilson_of};
pub use rank::{EXACT_LIMIT, RankTest, mann_whitney, runs_needed, smallest_p};
pub use rng::SplitMix;
pub use signed_rank::{paired_shift, signed_rank};
pub use summary::{mad, median, quantile, sorted};
