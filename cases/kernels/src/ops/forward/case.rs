//! Fixture and instance of a pass.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::{Attention, Pass, Rank, Tail, Taps, check};
use crate::compare::TensorVerdict;
use crate::fixture::{Fixture, poison};
use crate::kernel::{Instance, OutputInfo, Purpose};
use crate::model::{HASH_LAYERS, HIDDEN, RANKS, STREAMS, VOCAB};
use crate::ops::layers::{FinalHead, Kind, Schedule, embedding, rank_of};
use crate::ops::lm_head::{self, LmHeadArgs, LmHeadWindows};
use crate::ops::moe::fixture::{consecutive_ids, cyclic_table};
use crate::ops::moe::{MoeWeights, MoeWindows};

/// Shorthand of the declarations.
pub(crate) const fn output(
    name: &'static str,
    dtype: DType,
    shape: &'static [usize],
    rule: &'static str,
) -> OutputInfo {
    OutputInfo {
        name,
        dtype,
        shape,
        rule,
    }
}

/// Pairs up to which the pass is compared: the streams of every stage are kept, and the references cost as much as the pass.
const GOLDEN_PAIRS: usize = 1;

/// Pools before the pass. Those of a kind are the same in all layers, so each rank has one copy of each kind.
pub(crate) struct Initial {
    pub(crate) hca: [Vec<Tensor>; RANKS],
    pub(crate) csa: [Vec<Tensor>; RANKS],
}

impl Initial {
    /// In the order of the kind.
    pub(super) fn of(&self, rank: usize, kind: Kind) -> &[Tensor] {
        match kind {
            Kind::Hca => &self.hca[rank],
            Kind::Csa => &self.csa[rank],
        }
    }
}

/// What a decode step and a prefill tile have of their own.
pub(crate) struct Setup<A: Attention> {
    pub(crate) schedule: Schedule,
    /// Tokens of a rank, and how many of them are live.
    pub(crate) tokens: usize,
    pub(crate) num_tokens: usize,
    /// Distinct routed experts of a rank.
    pub(crate) stored_experts: usize,
    /// Arguments of each layer, per rank, between any streams.
    pub(crate) attention: [Vec<A>; RANKS],
    /// One slice of weights of each kind serves all layers.
    pub(crate) hca: A::Weights,
    pub(crate) csa: A::Weights,
    pub(crate) initial: Initial,
    /// Row of each logit row, −1 for none.
    pub(crate) logit_rows: [i32; lm_head::ROWS],
    pub(crate) tail: Tail,
}

/// Outputs of all ranks.
pub(super) struct Outputs {
    pub(super) pre_hc: Tensor,
    pub(super) hidden: Tensor,
    pub(super) logits: Tensor,
    pub(super) sampled: Tensor,
}

/// A pass with its arguments.
pub(crate) struct Case<A: Attention> {
    pub(super) schedule: Schedule,
    pub(super) ranks: [Rank<A>; RANKS],
    pub(super) initial: Initial,
    tail: Tail,
    windows: MoeWindows,
    lm_windows: LmHeadWindows,
    pub(super) outputs: Outputs,
    /// Streams of the last dispatch that was to be validated; none where the pass is not compared.
    taps: Option<[Taps; RANKS]>,
    keep: AtomicBool,
    /// On that dispatch.
    verdicts: Mutex<Option<Vec<TensorVerdict>>>,
}

/// Experts of each layer: the tables of the layers that look into one; the others have any, and read none.
fn experts_of_layers(weights: &MoeWeights, tables: &[Tensor], schedule: Schedule) -> Vec<MoeWeights> {
    schedule
        .layers()
        .map(|layer| {
            let mut weights = weights.clone();
            weights.gate.table = tables[layer.id.min(tables.len() - 1)].clone();
            weights
        })
        .collect()
}

impl<A: Attention> Case<A> {
    /// Draws what both kinds of pass have.
    pub(crate) fn new(fixture: Fixture, setup: Setup<A>) -> Self {
        let (schedule, tokens) = (setup.schedule, setup.tokens);
        let ids = consecutive_ids(tokens, 0);
        let embed = embedding(fixture, "embed_weight", &ids.read::<i64>());
        let tables: Vec<Tensor> = (0..HASH_LAYERS as usize).map(|layer| cyclic_table(6 * layer)).collect();
        let experts = MoeWeights::draw(fixture, tables[0].clone(), setup.stored_experts);
        let head = FinalHead::draw(fixture, "");
        let zeros = |name, dtype, dims: &[usize]| Tensor::zeros(dtype, &[&[RANKS], dims].concat()).named(name);
        let outputs = Outputs {
            pre_hc: zeros("pre_hc_hidden_out", DType::F32, &[tokens, STREAMS, HIDDEN]),
            hidden: zeros("hidden_out", DType::Bf16, &[tokens, HIDDEN]),
            logits: zeros("logits", DType::F32, &[lm_head::ROWS, VOCAB]),
            sampled: zeros("sampled_ids", DType::I32, &[lm_head::ROWS, lm_head::SAMPLE_PAD]),
        };
        let rank = |rank: usize, attention| Rank {
            input_ids: ids.clone(),
            embed: embed.clone(),
            attention,
            hca: setup.hca.clone(),
            csa: setup.csa.clone(),
            experts: experts_of_layers(&experts[rank], &tables, schedule),
            num_tokens: setup.num_tokens,
            head: head.clone(),
            lm_head: LmHeadArgs {
                hidden: rank_of(&outputs.hidden, rank),
                rows: Tensor::from_vec(&[lm_head::ROWS], setup.logit_rows.to_vec()),
                weight: lm_head::draw_shard(fixture, rank),
                logits: rank_of(&outputs.logits, rank),
                sampled: rank_of(&outputs.sampled, rank),
            },
            pre_hc: rank_of(&outputs.pre_hc, rank),
        };
        let [first, second] = setup.attention;
        let compared = schedule.pairs() <= GOLDEN_PAIRS;
        Self {
            schedule,
            ranks: [rank(0, first), rank(1, second)],
            initial: setup.initial,
            tail: setup.tail,
            windows: MoeWindows::new(tokens),
            lm_windows: LmHeadWindows::new(),
            taps: compared.then(|| std::array::from_fn(|_| Taps::new(schedule, tokens))),
            keep: AtomicBool::new(true),
            verdicts: Mutex::new(None),
            outputs,
        }
    }

    /// Where copies of the streams of `rank` go in this dispatch.
    fn taps_of(&self, rank: usize) -> Option<&Taps> {
        let keep = self.keep.load(Ordering::Relaxed);
        self.taps.as_ref().filter(|_| keep).map(|taps| &taps[rank])
    }

    /// The verdicts on the last dispatch that was to be validated.
    fn verdicts(&self) -> Vec<TensorVerdict> {
        let Some(taps) = &self.taps else {
            return Vec::new();
        };
        let mut known = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(|| check::verdicts(self, taps)).clone()
    }
}

impl<A: Attention> Instance for Case<A> {
    fn ranks(&self) -> usize {
        RANKS
    }

    fn announce(&self, purpose: Purpose) {
        self.keep.store(purpose == Purpose::Validation, Ordering::Relaxed);
    }

    /// The signals are left as the last dispatch left them: that it retired and cleared them is part of the program.
    fn reset(&self) {
        let o = &self.outputs;
        [&o.pre_hc, &o.hidden, &o.logits, &o.sampled]
            .into_iter()
            .for_each(poison);
        *self.verdicts.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // Whatever the dispatch is for: streams of another one must not pass.
        self.taps.iter().flatten().flat_map(Taps::all).for_each(poison);
        assert!(
            self.windows.at_rest() && self.lm_windows.at_rest(),
            "a dispatch leaves its signals at zero"
        );
        for (rank, args) in self.ranks.iter().enumerate() {
            for (layer, attention) in self.schedule.layers().zip(&args.attention) {
                let initial = self.initial.of(rank, layer.kind());
                for (pool, initial) in attention.pools().into_iter().zip(initial) {
                    pool.copy_from(initial);
                }
            }
        }
    }

    fn recover(&self) {
        self.windows.clear();
        self.lm_windows.clear();
    }

    fn orchestrate(&self, rank: usize, o: &mut Orchestrator<'_>) -> Result<(), Halted> {
        let pass = Pass {
            rank,
            schedule: self.schedule,
            args: &self.ranks[rank],
            windows: &self.windows,
            lm_windows: &self.lm_windows,
            tail: self.tail,
            taps: self.taps_of(rank),
        };
        pass.submit(o)
    }

    /// References are made of the program's own streams, and compared at once: they are not kept.
    fn golden(&self) {
        self.verdicts();
    }

    fn has_golden(&self) -> bool {
        self.taps.is_some()
    }

    fn validate(&self) -> Vec<TensorVerdict> {
        self.verdicts()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
