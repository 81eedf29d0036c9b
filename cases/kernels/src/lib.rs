//! Programs of the DeepSeek-V4-Pro model on the four-ring runtime.
//!
//! A kernel is one module in [`ops`] and one line in [`registry`]. It declares itself
//! ([`kernel::KernelInfo`]), makes its arguments from a seed ([`fixture`]), orchestrates tasks over
//! ring memory ([`creates`]), and compares what came out with an independent reference ([`golden`],
//! [`compare`]). Programs compute at block level through [`tile`].
//!
//! # Adding a kernel
//!
//! 1. `ops/<name>.rs` (a folder when it grows beyond some 300 lines): a `static INFO`, an implementation of
//!    [`kernel::Kernel`] that draws the arguments, and one of [`kernel::Instance`]; see [`ops::rmsnorm`] for the
//!    smallest and [`ops::hc_pre`] for one with ring memory. What other programs inline is a function that submits
//!    into the current scope, and a scratch struct that is declared on a [`creates::Creates`].
//! 2. `golden/<name>.rs`: the reference, on plain slices.
//! 3. One line in [`registry::all`].
//! 4. Tests with [`check::check_kernel`] and, where the spec states a total, [`check::two_sided`].
//!
//! Ring memory holds whatever was there before: rows that a spec leaves undefined may be NaN. A task's `write`
//! argument waits for its owner only, so two tasks that write one tensor need an order from elsewhere, and a later
//! writer does not wait for earlier readers.
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
mod scopes;
pub mod simd;
pub mod tile;
