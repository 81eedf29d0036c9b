//! Tests of the runtime through its public API: real threads, real heaps.

mod programs;
mod reruns;
mod support;
mod untracked;
