//! A task-graph runtime with four ring heaps.

mod config;
mod element;
mod ids;
mod tile;

pub use config::{ConfigError, DEFAULT_TENSORMAP_ENTRIES, MIN_COUNT, MIN_HEAP, RingLimits, RuntimeConfig, Timeouts};
pub use element::{DType, Element};
pub use ids::{RINGS, RingId, TaskId};
pub use tile::{Tile, TileMut};
