//! The producers of the task that is being submitted.

use crate::ids::TaskId;

/// One producer. However often a submission names it, it makes one edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) producer: TaskId,
    /// Whether the producer is kept alive until the consumer completes, or only until it is linked.
    pub(crate) retain: bool,
}

/// The edges so far.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    pub(crate) list: Vec<Edge>,
    submission: u64,
}

impl Edges {
    /// Begins another submission; returns its number, from 1.
    pub(crate) fn begin(&mut self) {
        self.list.clear();
        self.submission += 1;
    }

    pub(crate) fn submission(&self) -> u64 {
        self.submission
    }

    /// Forgets everything; keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.submission = 0;
    }
}
