//! The one place that chooses between `std` and `loom`.
//!
//! Everything in the crate that synchronises threads takes its locks, atomics and thread functions
//! from here, so that the models in `models/` run the very code that ships. Run them with
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p ring-runtime --release --lib models
//! ```
//!
//! loom takes sequentially consistent accesses for acquire/release ones; where the order of a store
//! and a later load of something else matters, the code says so with `fence(SeqCst)`, which it models.
//!
//! Plain reference counts (`std::sync::Arc`) stay with `std`: they order nothing but the drop.

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, RwLock, atomic};
#[cfg(loom)]
pub(crate) use loom::thread::{self, yield_now};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, RwLock, atomic};
#[cfg(not(loom))]
pub(crate) use std::thread::{self, park_timeout, yield_now};

/// Without the time-out, so that a lost wake-up is a deadlock, which loom reports.
#[cfg(loom)]
pub(crate) fn park_timeout(_: std::time::Duration) {
    thread::park();
}
