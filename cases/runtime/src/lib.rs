//! A task-graph runtime with four ring heaps.

mod argument;
mod block;
mod claims;
mod config;
mod element;
mod guard;
mod halt;
mod ids;
mod layout;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod region;
mod signal;
mod spec;
mod sync;
mod tensor;
mod tile;

pub use argument::Direction;
pub use block::Block;
pub use config::{ConfigError, DEFAULT_TENSORMAP_ENTRIES, MIN_COUNT, MIN_HEAP, RingLimits, RuntimeConfig, Timeouts};
pub use element::{DType, Element};
pub use guard::{ReadGuard, TileGuard, TileMutGuard, WriteGuard};
pub use halt::Halted;
pub use ids::{RINGS, RingId, TaskId};
pub use layout::MAX_RANK;
pub use memory::MapError;
pub use signal::{Cmp, Signals};
pub use spec::TensorSpec;
pub use tensor::Tensor;
pub use tile::{Tile, TileMut};
