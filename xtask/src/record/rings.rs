//! Ring config and occupancy as a record keeps them.

/// Sizes of one ring config: per resource, rings 0 to 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceSizes {
    /// Bytes.
    pub heap: [u64; 4],
    /// Slots.
    pub task_window: [u64; 4],
    /// Entries.
    pub dep_pool: [u64; 4],
}

/// Name of the tier that a value came from: `command-line`, `case`, `suite`, `platform`, `runtime-default`.
pub type TierName = String;

/// One asked value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedValue {
    /// Bytes, slots or entries.
    pub value: u64,
    /// The tier.
    pub tier: TierName,
}

/// What was asked for: every value is absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedRings {
    /// Bytes.
    pub heap: [AskedValue; 4],
    /// Slots.
    pub task_window: [AskedValue; 4],
    /// Entries.
    pub dep_pool: [AskedValue; 4],
}

impl AskedRings {
    /// The values without their tiers.
    pub fn sizes(&self) -> ResourceSizes {
        let values = |asked: &[AskedValue; 4]| std::array::from_fn(|ring| asked[ring].value);
        ResourceSizes {
            heap: values(&self.heap),
            task_window: values(&self.task_window),
            dep_pool: values(&self.dep_pool),
        }
    }
}

/// Occupancy of one ring over a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RingUsage {
    /// Bytes in force.
    pub heap_capacity_bytes: u64,
    /// Most bytes in use at once.
    pub heap_high_water_bytes: u64,
    /// Slots in force.
    pub task_window: u64,
    /// Most live tasks at once.
    pub tasks_high_water: u64,
    /// Entries in force.
    pub dep_pool: u64,
    /// Most entries in use at once.
    pub dep_pool_high_water: u64,
    /// Tasks submitted over the dispatch.
    pub tasks_submitted: u64,
}

impl RingUsage {
    /// Share of the heap that was in use at its peak, 0 to 1; `None` for a heap of no bytes.
    pub fn heap_fill(&self) -> Option<f64> {
        (self.heap_capacity_bytes > 0).then(|| self.heap_high_water_bytes as f64 / self.heap_capacity_bytes as f64)
    }
}

/// Ring config asked for, in force, and used.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RingRecord {
    /// `None` where the case never got to a ring config (skipped, blocked).
    pub asked: Option<AskedRings>,
    /// Read back from the runtime; `None` where it can't tell.
    pub effective: Option<ResourceSizes>,
    /// Occupancy, the maximum over dispatches and ranks per ring; `None` where the runtime reports none.
    pub usage: Option<[RingUsage; 4]>,
}
