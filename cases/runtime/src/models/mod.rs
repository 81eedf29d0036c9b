//! loom models: every interleaving of small programs over the real synchronisation code.
//!
//! See [`sync`](crate::sync) for how to run them.

mod claims;
mod idle;
mod life;
mod queue;
mod scheduler;
mod signals;

/// Explores every interleaving of `model` with at most three preemptions of a running thread
/// (`LOOM_MAX_PREEMPTIONS` overrides): known bugs of such protocols show with two, and without a
/// bound the models of three threads run for hours.
fn check(model: impl Fn() + Send + Sync + 'static) {
    check_bounded(3, model);
}

/// The same with another bound.
fn check_bounded(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 4_000;
    builder.check(model);
}
