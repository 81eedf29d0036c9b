//! Memory and signals by which the ranks of a language-model head reach each other.

use ring_runtime::{DType, Signals, Tensor};

use super::{GROUP_ROWS, ROWS};
use crate::model::{HIDDEN, RANKS, VOCAB};

/// What the peers of one rank write into.
#[derive(Clone, Debug)]
pub(crate) struct RankWindows {
    /// Selected rows of every source, [16, 7168] bf16.
    pub(super) hidden: Tensor,
    /// Rows of the selected hidden states that have arrived, per source.
    pub(super) hidden_done: Signals,
    /// This rank's rows over the whole vocabulary, [8, 129280] f32.
    pub(super) logits: Tensor,
    /// Blocks of logit slices that have arrived, per source.
    pub(super) logits_done: Signals,
}

/// The windows of all ranks. They outlive a dispatch: a rank puts its signals back to zero at the end of each.
#[derive(Clone, Debug)]
pub(crate) struct LmHeadWindows([RankWindows; RANKS]);

impl LmHeadWindows {
    /// Windows and signals of zeros.
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| RankWindows {
            hidden: Tensor::zeros(DType::Bf16, &[GROUP_ROWS, HIDDEN]).named("hidden_window"),
            hidden_done: Signals::new(RANKS),
            logits: Tensor::zeros(DType::F32, &[ROWS, VOCAB]).named("logits_window"),
            logits_done: Signals::new(RANKS),
        }))
    }

    /// Those that `rank` reads.
    pub(super) fn of(&self, rank: usize) -> &RankWindows {
        &self.0[rank]
    }

    fn signals(&self) -> impl Iterator<Item = &Signals> {
        self.0.iter().flat_map(|w| [&w.hidden_done, &w.logits_done])
    }

    /// Puts the signals back to zero, after a dispatch that failed.
    pub(crate) fn clear(&self) {
        self.signals()
            .for_each(|signals| (0..RANKS).for_each(|source| signals.set(source, 0)));
    }

    /// Whether every signal of every rank is zero: nothing is under way.
    pub(crate) fn at_rest(&self) -> bool {
        self.signals()
            .all(|signals| (0..RANKS).all(|source| signals.get(source) == 0))
    }
}
