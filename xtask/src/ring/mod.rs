//! Ring configuration: what a layer asks for, how layers resolve, and what is in effect.
//!
//! [`RingLayer`] is one tier's wish; [`RingConfig::resolve`] folds tiers into values that name the
//! tier they came from. A [`RingConfig`] is always absolute: four numbers per resource, nothing left
//! for a runtime to fill in.

mod config;
mod read;
mod tier;
mod value;

pub use config::{RingConfig, RingError, RingLayer, RingNumbers, RingValue};
pub(crate) use read::{read_layer, read_setting};
pub use tier::Tier;
pub use value::{RingEntry, RingSetting, SettingError};

/// The number of rings of a runtime.
pub const RINGS: usize = 4;

/// Something that a runtime has one of per ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Bytes of the ring's heap.
    Heap,
    /// Slots of the ring's task window.
    TaskWindow,
    /// Entries of the ring's dependency pool.
    DepPool,
}

impl Resource {
    /// Every resource, in the order of records and listings.
    pub const ALL: [Self; 3] = [Self::Heap, Self::TaskWindow, Self::DepPool];

    /// The key in suites and records.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::TaskWindow => "task_window",
            Self::DepPool => "dep_pool",
        }
    }

    /// What one unit of it is, in the plural.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Heap => "bytes",
            Self::TaskWindow => "slots",
            Self::DepPool => "entries",
        }
    }

    /// What the runtime takes when nobody asks: 256 MiB, 16384 slots, 16384 entries.
    pub const fn runtime_default(self) -> u64 {
        match self {
            Self::Heap => 256 << 20,
            Self::TaskWindow | Self::DepPool => 16384,
        }
    }
}
