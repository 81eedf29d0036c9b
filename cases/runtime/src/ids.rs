//! Names of rings and tasks.

use std::fmt;

/// Number of ring sets.
pub const RINGS: usize = 4;

/// One of the four ring sets. A scope at depth `d` uses ring `min(d, 3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RingId(u8);

impl RingId {
    /// All rings, in order.
    pub const ALL: [Self; RINGS] = [Self(0), Self(1), Self(2), Self(3)];

    /// Ring `index`, or `None` above 3.
    pub const fn new(index: usize) -> Option<Self> {
        if index < RINGS { Some(Self(index as u8)) } else { None }
    }

    /// The ring that tasks submitted at scope depth `depth` use.
    pub const fn of_depth(depth: usize) -> Self {
        if depth < RINGS {
            Self(depth as u8)
        } else {
            Self(RINGS as u8 - 1)
        }
    }

    /// Position in an array of four, 0 to 3.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for RingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a task within one run: its ring, and its position in the sequence of that ring's tasks.
///
/// Local ids grow without gaps from 0, so a task's slot is its local id modulo the ring's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    ring: RingId,
    local: u32,
}

impl TaskId {
    /// Task `local` of `ring`.
    pub const fn new(ring: RingId, local: u32) -> Self {
        Self { ring, local }
    }

    /// The ring whose slot and heap the task holds.
    pub const fn ring(self) -> RingId {
        self.ring
    }

    /// Position in the ring's sequence of tasks, from 0.
    pub const fn local(self) -> u32 {
        self.local
    }

    /// `(ring << 32) | local`.
    pub const fn as_u64(self) -> u64 {
        ((self.ring.0 as u64) << 32) | self.local as u64
    }

    /// Inverse of [`Self::as_u64`]; the ring is taken modulo 4, so every value names some task.
    pub(crate) const fn from_u64(raw: u64) -> Self {
        Self {
            ring: RingId((raw >> 32) as u8 % RINGS as u8),
            local: raw as u32,
        }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ring, self.local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_maps_to_the_last_ring_from_three_on() {
        let rings: Vec<usize> = (0..6).map(|depth| RingId::of_depth(depth).index()).collect();
        assert_eq!(rings, [0, 1, 2, 3, 3, 3]);
        assert_eq!(RingId::new(4), None);
    }

    #[test]
    fn a_task_id_survives_its_number() {
        let id = TaskId::new(RingId::ALL[3], 70_000);
        assert_eq!(TaskId::from_u64(id.as_u64()), id);
        assert_eq!(id.as_u64(), 3 * (1 << 32) + 70_000);
        assert_eq!(id.to_string(), "3:70000");
    }
}
