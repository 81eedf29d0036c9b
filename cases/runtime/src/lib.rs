//! A task-graph runtime with four ring heaps.

mod element;
mod tile;

pub use element::{DType, Element};
pub use tile::{Tile, TileMut};
