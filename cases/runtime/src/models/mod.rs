//! loom models: every interleaving of small programs over the real synchronisation code.
//!
//! See [`sync`](crate::sync) for how to run them.

mod claims;
mod signals;
