//! What the layer, forward and multi-token-prediction programs share: the schedule of the main model's layers, and the
//! head behind them.

use half::bf16;
use ring_runtime::{DType, Halted, Orchestrator, Tensor};

use super::hc_head::{HcHeadScratch, HcHeadWeights, hc_head};
use super::rmsnorm::rms_norm;
use crate::fixture::{Dist, Fixture};
use crate::golden;
use crate::kernel::{ParamSpec, Params};
use crate::model::{HIDDEN, VOCAB};
use crate::scopes::BodyScopes;

/// Pairs of a CSA and an HCA layer in the whole model.
const ALL_PAIRS: usize = 29;

/// How many layers a forward pass has: 3 and two for each pair.
///
/// Rings 1 to 3 need the same from one pair on; ring 0 holds what goes from layer to layer, and grows with each.
pub(crate) const PAIRS: ParamSpec = ParamSpec::int(
    "pairs",
    1,
    ALL_PAIRS as i64,
    1,
    "Pairs of a CSA and an HCA layer between the two leading HCA layers and the closing CSA layer; 29 is the full model of 61 layers",
);

/// Attention of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Window and all rows of compress ratio 128.
    Hca,
    /// Window and chosen rows of compress ratio 4.
    Csa,
}

impl Kind {
    /// As the programs of the blocks are called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hca => "HCA",
            Self::Csa => "CSA",
        }
    }
}

/// A layer of the main model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// Its number, from 0.
    pub(crate) id: usize,
}

impl Layer {
    /// Its attention: the first two are HCA, then CSA and HCA take turns. No layer has the window only.
    pub(crate) const fn kind(self) -> Kind {
        if self.id < 2 || self.id % 2 == 1 {
            Kind::Hca
        } else {
            Kind::Csa
        }
    }

    /// Number of its call on the windows of the mixture of experts, within one pass: from 1.
    pub(crate) const fn epoch(self) -> i32 {
        self.id as i32 + 1
    }
}

/// The layers of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    pairs: usize,
}

impl Schedule {
    /// As [`PAIRS`] says.
    pub(crate) fn of_params(params: &Params) -> Self {
        Self {
            pairs: params.count(PAIRS.name),
        }
    }

    /// Pairs of a CSA and an HCA layer.
    pub(crate) const fn pairs(self) -> usize {
        self.pairs
    }

    /// Number of layers.
    pub(crate) const fn len(self) -> usize {
        2 * self.pairs + 3
    }

    /// The layers in their order.
    pub(crate) fn layers(self) -> impl Iterator<Item = Layer> {
        (0..self.len()).map(|id| Layer { id })
    }
}

/// The hyper-connection head and the norm behind it.
#[derive(Clone, Debug)]
pub(crate) struct FinalHead {
    pub(crate) head: HcHeadWeights,
    /// Gain, \[7168\] bf16.
    pub(crate) norm: Tensor,
}

impl FinalHead {
    /// The weights of the head's spec, and gains of 1 + 0.1 · normal (the forward specs leave theirs open); streams are named after `name`.
    pub(crate) fn draw(fixture: Fixture, name: &str) -> Self {
        let gain = Dist::normal(0.1, 1.0);
        Self {
            head: HcHeadWeights::draw(fixture, &format!("{name}hc_head_fn")),
            norm: fixture.real(&format!("{name}norm_w"), DType::Bf16, &[HIDDEN], gain),
        }
    }

    /// Submits head and norm: `hidden_out` [T, 7168] bf16 of `pre_hc` [T, 4, 7168] f32, by way of `x_head`.
    pub(crate) fn submit(
        &self,
        o: &mut Orchestrator<'_>,
        bodies: BodyScopes,
        pre_hc: &Tensor,
        x_head: &Tensor,
        hidden_out: &Tensor,
        scratch: &HcHeadScratch,
    ) -> Result<(), Halted> {
        hc_head(o, bodies, pre_hc, &self.head, x_head, scratch)?;
        rms_norm(o, x_head, &self.norm, hidden_out)?;
        Ok(())
    }

    /// The reference's rows.
    pub(crate) fn reference(&self, pre_hc: &[f32]) -> Vec<bf16> {
        let (weight, base) = (self.head.weight.read::<f32>(), self.head.base.read::<f32>());
        let row = golden::hc_head::hc_head(pre_hc, &weight, self.head.scale.get::<f32>(0), &base);
        golden::rmsnorm::rms_norm(&row, &self.norm.read::<bf16>())
    }
}

/// A standard normal embedding, [129280, 7168] bf16, in which only the rows of `ids` are drawn.
///
/// Each has the values that it would have in a whole draw. The others stay zero, and so take no memory: a lookup of a
/// wrong row shows.
pub(crate) fn embedding(fixture: Fixture, name: &str, ids: &[i64]) -> Tensor {
    let table = Tensor::zeros(DType::Bf16, &[VOCAB, HIDDEN]);
    let stream = fixture.stream(name);
    for id in ids {
        let row = usize::try_from(*id).expect("ids are in the vocabulary");
        let values = table.rows(row..row + 1);
        Dist::normal(1.0, 0.0).draw(stream, (row * HIDDEN) as u64, &mut values.write::<bf16>());
    }
    table
}

/// The same tensor of every rank on top of each other, [ranks, …], for rules that span the ranks.
pub(crate) fn stack(ranks: &[&Tensor]) -> Tensor {
    let dims = ranks[0].dims();
    let stacked = Tensor::zeros(ranks[0].dtype(), &[&[ranks.len()], dims].concat());
    for (rank, tensor) in ranks.iter().enumerate() {
        rank_of(&stacked, rank).copy_from(tensor);
    }
    stacked
}

/// What `rank` has of a stacked tensor.
pub(crate) fn rank_of(stacked: &Tensor, rank: usize) -> Tensor {
    stacked.rows(rank..rank + 1).reshape(&stacked.dims()[1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_model_has_31_hca_and_30_csa_layers() {
        let whole = Schedule { pairs: ALL_PAIRS };
        let kinds: Vec<Kind> = whole.layers().map(Layer::kind).collect();
        let count = |kind| kinds.iter().filter(|k| **k == kind).count();
        assert_eq!((kinds.len(), count(Kind::Hca), count(Kind::Csa)), (61, 31, 30));
        assert_eq!(
            kinds[..4],
            [Kind::Hca, Kind::Hca, Kind::Csa, Kind::Hca],
            "two HCA layers lead"
        );
        assert_eq!(kinds[60], Kind::Csa);
        assert_eq!(whole.layers().last().map(Layer::epoch), Some(61));
    }

    #[test]
    fn rows_of_an_embedding_do_not_depend_on_which_are_drawn() {
        let row = |ids: &[i64]| {
            let table = embedding(Fixture::new(5), "embed", ids);
            table.rows(3..4).read::<bf16>().to_vec()
        };
        assert_eq!(row(&[3]), row(&[0, 3, 7]));
        assert!(row(&[2, 4]).iter().all(|v| *v == bf16::ZERO));
    }
}
