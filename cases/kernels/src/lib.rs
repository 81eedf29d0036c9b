//! Programs of the DeepSeek-V4-Pro model on the four-ring runtime.
//!
//! A kernel is one module in [`ops`] and one line in [`registry`]. It declares itself
//! ([`kernel::KernelInfo`]), makes its arguments from a seed ([`fixture`]), orchestrates tasks over
//! ring memory ([`creates`]), and compares what came out with an independent reference ([`golden`],
//! [`compare`]). Programs compute at block level through [`tile`].
//!
//! What this crate does not do: choose ring sizes, time limits or repetitions. Those come from the
//! caller of the `kernel` binary and reach every dispatch unchanged.

pub mod check;
pub mod compare;
pub mod creates;
pub mod dispatch;
pub mod fixture;
pub mod golden;
pub mod kernel;
pub mod model;
pub mod ops;
pub mod params;
pub mod registry;
pub mod tile;
