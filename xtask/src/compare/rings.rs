//! Ring occupancy against the reference's, and against capacity.

use std::fmt;

use super::{CaseSummary, RingPeak, Rules};
use crate::outcome::Outcome;

/// One of the three resources of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RingResource {
    /// Bytes.
    Heap,
    /// Slots.
    TaskWindow,
    /// Entries.
    DepPool,
}

impl RingResource {
    /// Every resource.
    pub const ALL: [Self; 3] = [Self::Heap, Self::TaskWindow, Self::DepPool];

    /// The word for it in every file and report.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::TaskWindow => "task-window",
            Self::DepPool => "dep-pool",
        }
    }

    /// Capacity and high-water of this resource: bytes or entries.
    pub const fn of(self, peak: &RingPeak) -> (u64, u64) {
        match self {
            Self::Heap => (peak.heap_capacity_bytes, peak.heap_high_water_bytes),
            Self::TaskWindow => (peak.task_window, peak.tasks_high_water),
            Self::DepPool => (peak.dep_pool, peak.dep_pool_high_water),
        }
    }
}

/// Something to know about one resource of one ring. Bytes for the heap, entries else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingFinding {
    /// More was in use at the peak than in the reference.
    Grew {
        /// Ring, 0 to 3.
        ring: u8,
        /// Resource.
        resource: RingResource,
        /// High-water of the reference.
        base: u64,
        /// High-water of the run.
        now: u64,
    },
    /// Less was in use.
    Shrank {
        /// Ring, 0 to 3.
        ring: u8,
        /// Resource.
        resource: RingResource,
        /// High-water of the reference.
        base: u64,
        /// High-water of the run.
        now: u64,
    },
    /// The ring has another size than in the reference.
    Resized {
        /// Ring, 0 to 3.
        ring: u8,
        /// Resource.
        resource: RingResource,
        /// Capacity of the reference.
        base: u64,
        /// Capacity of the run.
        now: u64,
    },
    /// The reference knows the peaks of the rings, the run passed and doesn't: nothing says what is left of them.
    NotReported,
    /// The peak is so near to the capacity that half of it would not do.
    LowHeadroom {
        /// Ring, 0 to 3.
        ring: u8,
        /// Resource.
        resource: RingResource,
        /// High-water of the run.
        high_water: u64,
        /// Capacity of the run.
        capacity: u64,
    },
}

/// Everything to know about the rings of a case.
pub(super) fn findings(base: Option<&CaseSummary>, now: Option<&CaseSummary>, rules: &Rules) -> Vec<RingFinding> {
    let before = base.and_then(|base| base.rings);
    let Some(now) = now.and_then(|now| now.rings) else {
        let passed = now.is_some_and(|now| now.outcome == Outcome::Pass);
        return if before.is_some() && passed {
            vec![RingFinding::NotReported]
        } else {
            Vec::new()
        };
    };
    let base = before;
    let mut findings = Vec::new();
    for index in 0..4u8 {
        for resource in RingResource::ALL {
            let (capacity, high_water) = resource.of(&now[usize::from(index)]);
            if let Some(base) = base {
                let (base_capacity, base_high_water) = resource.of(&base[usize::from(index)]);
                findings.extend(moved(index, resource, base_high_water, high_water, rules));
                if base_capacity != capacity {
                    findings.push(RingFinding::Resized {
                        ring: index,
                        resource,
                        base: base_capacity,
                        now: capacity,
                    });
                }
            }
            if high_water > 0 && (capacity as f64) < high_water as f64 * rules.headroom {
                findings.push(RingFinding::LowHeadroom {
                    ring: index,
                    resource,
                    high_water,
                    capacity,
                });
            }
        }
    }
    findings
}

fn moved(ring: u8, resource: RingResource, base: u64, now: u64, rules: &Rules) -> Option<RingFinding> {
    let limit = base.max(now) as f64 * rules.ring_tolerance;
    if base.abs_diff(now) as f64 <= limit {
        return None;
    }
    Some(if now > base {
        RingFinding::Grew {
            ring,
            resource,
            base,
            now,
        }
    } else {
        RingFinding::Shrank {
            ring,
            resource,
            base,
            now,
        }
    })
}

impl fmt::Display for RingFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Grew {
                ring,
                resource,
                base,
                now,
            }
            | Self::Shrank {
                ring,
                resource,
                base,
                now,
            } => write!(f, "ring {ring} {} high-water {base} → {now}", resource.token()),
            Self::Resized {
                ring,
                resource,
                base,
                now,
            } => write!(f, "ring {ring} {} size {base} → {now}", resource.token()),
            Self::NotReported => f.write_str("ring peaks are not reported, though the reference has them"),
            Self::LowHeadroom {
                ring,
                resource,
                high_water,
                capacity,
            } => write!(
                f,
                "ring {ring} {} peaks at {high_water} of {capacity}: less than one doubling of headroom",
                resource.token()
            ),
        }
    }
}
