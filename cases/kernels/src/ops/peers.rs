//! How the ranks of a program reach each other: windows that all may put into, and signals.
//!
//! A rank's own window is tracked like any tensor, so that its readers wait for the local puts. A
//! peer's is not: nothing in this rank reads it, and the peer is told by a signal, which a block
//! raises once it has let go of what it wrote.

use ring_runtime::{Block, Cmp, Halted, Signals, TaskBuilder, Tensor};

use crate::model::RANKS;

/// The other ranks, ascending.
pub(super) fn peers(rank: usize) -> impl Iterator<Item = usize> {
    (0..RANKS).filter(move |other| *other != rank)
}

/// What `rank` puts into: `part` of every rank, its own among them.
pub(super) fn targets(rank: usize, part: impl Fn(usize) -> Tensor) -> [Tensor; RANKS] {
    std::array::from_fn(|member| {
        let tensor = part(member);
        if member == rank { tensor } else { tensor.untracked() }
    })
}

/// Declares that the task writes all of `tensors`.
pub(super) fn write_all(task: TaskBuilder, tensors: &[Tensor]) -> TaskBuilder {
    tensors.iter().fold(task, TaskBuilder::write)
}

/// Tells every peer: adds one to the signal that counts for `rank` there.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    rank: usize,
    signals: Vec<Signals>,
}

impl Notice {
    /// A notice of `rank`; `signals` are those of each rank.
    pub(super) fn of(rank: usize, signals: impl Fn(usize) -> Signals) -> Self {
        Self {
            rank,
            signals: peers(rank).map(signals).collect(),
        }
    }

    /// Sends it. Guards of what was written for the peers have to be dropped before.
    pub(super) fn send(&self) {
        self.signals.iter().for_each(|signals| signals.add(self.rank, 1));
    }
}

/// Waits until every peer has counted to `value`; ends early, in error, when the run is stopping.
pub(super) fn wait_for_peers(block: &Block<'_>, rank: usize, signals: &Signals, value: i32) -> Result<(), Halted> {
    peers(rank).try_for_each(|source| block.wait_signal(signals, source, Cmp::Ge, value))
}
