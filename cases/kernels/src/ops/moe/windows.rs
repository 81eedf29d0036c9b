//! Memory and signals by which the ranks of a mixture of experts reach each other.

use ring_runtime::{DType, Halted, Orchestrator, Signals, Task, Tensor, Unit};

use super::Shape;
use crate::model::{CHOSEN, HIDDEN, LOCAL_EXPERTS, RANKS};
use crate::ops::peers::peers;

/// Columns of a row that carries one or two values: the least that a put moves.
const PUT_COLUMNS: usize = 8;

/// What the peers of one rank write into.
#[derive(Clone, Debug)]
pub(super) struct RankWindows {
    /// Rows for each local expert, by source, [2, 48] i32.
    pub(super) meta: Tensor,
    /// Rows of codes, [48 · M, 7168] i8: expert after expert, in it a lane of T rows per source.
    pub(super) x: Tensor,
    /// Scale and route weight of each row, in columns 0 and 1, [48 · M, 8] f32.
    pub(super) aux: Tensor,
    /// Route of each row at its source, in column 0, [48 · M, 8] i32.
    pub(super) route: Tensor,
    /// What the experts made of each route of this rank, [6 · T, 7168] bf16.
    pub(super) routed_y: Tensor,
    /// Notices per source: counts have arrived, 1 a call.
    pub(super) arrived: Signals,
    /// Rows have arrived, 48 a call.
    pub(super) data_arrived: Signals,
    /// Results have arrived, 48 a call, and 1 more once the source has consumed what it got. The rank's own
    /// signal counts its own consumption.
    pub(super) combine_arrived: Signals,
}

/// The windows of all ranks, for one number of tokens. They are zero at first and outlive a call;
/// calls are told apart by their epoch.
#[derive(Clone, Debug)]
pub(crate) struct MoeWindows {
    ranks: [RankWindows; RANKS],
    pub(super) shape: Shape,
}

impl MoeWindows {
    /// Windows and signals of zeros, for calls with `tokens` tokens per rank.
    pub(crate) fn new(tokens: usize) -> Self {
        let shape = Shape { tokens };
        let rows = LOCAL_EXPERTS * shape.most();
        let window = |name, dtype, dims: [usize; 2]| Tensor::zeros(dtype, &dims).named(name);
        let ranks = std::array::from_fn(|_| RankWindows {
            meta: window("recv_meta", DType::I32, [RANKS, LOCAL_EXPERTS]),
            x: window("recv_x", DType::I8, [rows, HIDDEN]),
            aux: window("recv_aux", DType::F32, [rows, PUT_COLUMNS]),
            route: window("recv_route", DType::I32, [rows, PUT_COLUMNS]),
            routed_y: window("routed_y", DType::Bf16, [tokens * CHOSEN, HIDDEN]),
            arrived: Signals::new(RANKS),
            data_arrived: Signals::new(RANKS),
            combine_arrived: Signals::new(RANKS),
        });
        Self { ranks, shape }
    }

    /// Those that `rank` reads.
    pub(super) fn of(&self, rank: usize) -> &RankWindows {
        &self.ranks[rank]
    }

    /// Puts everything back to zero, between dispatches, for programs that don't retire their credits and after dispatches that failed.
    pub(crate) fn clear(&self) {
        for w in &self.ranks {
            w.meta.write::<i32>().fill(0);
            w.x.write::<i8>().fill(0);
            w.aux.write::<f32>().fill(0.0);
            w.route.write::<i32>().fill(0);
            w.routed_y.write::<half::bf16>().fill(half::bf16::ZERO);
            for signals in w.signals() {
                (0..RANKS).for_each(|source| signals.set(source, 0));
            }
        }
    }

    /// Whether every signal of every rank is zero.
    pub(crate) fn at_rest(&self) -> bool {
        let zero = |signals: &Signals| (0..RANKS).all(|source| signals.get(source) == 0);
        self.ranks.iter().flat_map(RankWindows::signals).all(zero)
    }

    /// Bytes of one rank's windows and signals.
    #[cfg(test)]
    fn bytes_per_rank(&self) -> u64 {
        let w = self.of(0);
        let signals = w.signals().into_iter().map(|signals| 4 * signals.len() as u64);
        [&w.meta, &w.x, &w.aux, &w.route, &w.routed_y]
            .into_iter()
            .map(Tensor::bytes)
            .chain(signals)
            .sum()
    }
}

impl RankWindows {
    fn signals(&self) -> [&Signals; 3] {
        [&self.arrived, &self.data_arrived, &self.combine_arrived]
    }
}

/// Submits the task that takes the credits of `calls` calls back from the signals of `rank`, so that the next dispatch may count from 1 again.
///
/// `anchor` is the program's last result: the task comes after it. A peer's last credit may still be
/// on its way then; the signal is negative until it comes.
pub(crate) fn moe_retire(
    o: &mut Orchestrator<'_>,
    rank: usize,
    calls: i32,
    anchor: &Tensor,
    windows: &MoeWindows,
) -> Result<(), Halted> {
    let own = windows.of(rank).clone();
    let task = Task::new("moe_retire", Unit::Scalar).input(anchor).run(move |_| {
        own.combine_arrived.add(rank, -calls);
        for source in peers(rank) {
            own.arrived.add(source, -calls);
            own.data_arrived.add(source, -super::NOTICES * calls);
            own.combine_arrived.add(source, -(super::NOTICES + 1) * calls);
        }
    });
    o.submit(task)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_have_the_bytes_of_the_spec() {
        assert_eq!(MoeWindows::new(8).bytes_per_rank(), 6_242_712);
        assert_eq!(MoeWindows::new(128).bytes_per_rank(), 99_877_272);
        assert!(MoeWindows::new(8).at_rest());
    }
}
