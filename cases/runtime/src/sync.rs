//! The one place that chooses between `std` and `loom`.
//!
//! Everything in the crate that synchronises threads takes its locks, atomics and thread functions
//! from here, so that the models in `models/` run the very code that ships. Run them with
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ring-runtime --release --lib models
//! ```
//!
//! Plain reference counts (`std::sync::Arc`) stay with `std`: they order nothing but the drop.

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
