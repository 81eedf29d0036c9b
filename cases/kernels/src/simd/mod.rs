//! Instruction paths of the machine: which there are, and safe loops that are compiled for each.
//!
//! Tile code, fixtures and goldens share this and nothing else that computes.

mod path;
mod vectorised;

pub use path::Path;
pub(crate) use path::Supported;
pub(crate) use vectorised::vectorised;
