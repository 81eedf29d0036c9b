//! Comparison rules: does an output match its golden, and if not, how.
//!
//! Every rule ends in a [`TensorVerdict`]. A non-finite value on either side fails whatever the
//! tolerance, and is told apart from a finite mismatch: it has another cause. A non-finite golden is
//! told apart from both, since then the reference is broken and says nothing of the program.

#![expect(
    clippy::float_cmp,
    reason = "exact equality is what the rules ask for where they use it"
)]
#![expect(
    clippy::neg_cmp_op_on_partial_ord,
    reason = "a NaN must count as outside of a tolerance"
)]

mod elementwise;
mod logits;
mod pool;
mod quantised;
mod received;
mod router;
mod scan;
mod topk;
mod verdict;

pub use elementwise::{Allclose, Exact, RatioAllclose, RatioReldiff, Tail};
pub use logits::{SampledIds, VectorDistance};
pub use pool::{FiniteRule, MappedPool, PoolRule};
pub use quantised::{Int8Codes, QrScale};
pub use received::ReceivedRows;
pub use router::{GateIndices, GateWeights};
pub use topk::{HardBound, ScoreRegion, TopkPairs};
pub use verdict::{Mismatch, Outcome, TensorVerdict};
