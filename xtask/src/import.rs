//! Suites from directories of pypto-lib programs: what is there, the suite for it, and how the two drift apart.

mod drift;
mod program;
mod source;
mod write;

pub use drift::{Drift, DriftError, drift};
pub use program::{Discovery, Program, Skipped, discover};
pub use write::suite;
