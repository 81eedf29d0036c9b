//! Tests of the runtime through its public API: real threads, real heaps.

mod dependencies;
mod ends;
mod limits;
mod placement;
mod processors;
mod programs;
mod reruns;
mod stalls;
mod support;
mod untracked;
