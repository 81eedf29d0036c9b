//! Rules that judge each element by itself and then count.

mod allclose;
mod reldiff;
#[cfg(test)]
mod tests;
mod valid;

pub use allclose::{Allclose, Exact, RatioAllclose};
pub use reldiff::RatioReldiff;
pub use valid::Tail;
pub(super) use valid::allowance;
