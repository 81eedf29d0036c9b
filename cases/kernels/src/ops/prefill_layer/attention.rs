//! The attention half of a prefill layer, of either kind, on one rank.

use ring_runtime::{Halted, Orchestrator, Tensor};

use crate::compare::{MappedPool, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::Fixture;
use crate::fixture::prefill::Tile;
use crate::ops::forward::Attention;
use crate::ops::layers::Kind;
use crate::ops::prefill_attention::fixture::pool_rule;
use crate::ops::prefill_attention::{BlockArgs, BlockWeights, TOKENS};
use crate::ops::prefill_attention_csa::case as csa;
use crate::ops::prefill_attention_csa::{CsaArgs, CsaScratch, CsaWeights, prefill_attention_csa};
use crate::ops::prefill_attention_hca::case as hca;
use crate::ops::prefill_attention_hca::{HcaArgs, HcaScratch, HcaWeights, prefill_attention_hca};
use crate::ops::tapped::Tapped;
use crate::scopes::BodyScopes;

/// Weights of a kind.
#[derive(Clone, Debug)]
pub(crate) enum AttentionWeights {
    Hca(Box<HcaWeights>),
    Csa(Box<CsaWeights>),
}

impl AttentionWeights {
    /// As the fixture of the kind has them.
    pub(crate) fn draw(fixture: Fixture, kind: Kind) -> Self {
        match kind {
            Kind::Hca => Self::Hca(Box::new(HcaWeights::draw(fixture))),
            Kind::Csa => Self::Csa(Box::new(CsaWeights::draw(fixture))),
        }
    }

    /// The same with weights drawn elsewhere for what is common to both kinds.
    pub(crate) fn draw_with(fixture: Fixture, kind: Kind, block: &BlockWeights) -> Self {
        match kind {
            Kind::Hca => Self::Hca(Box::new(HcaWeights::draw_with(fixture, block.clone()))),
            Kind::Csa => Self::Csa(Box::new(CsaWeights::draw_with(fixture, block.clone()))),
        }
    }
}

/// Pools that a kind updates, for one request or several. Handles: a clone shares the memory.
#[derive(Clone, Debug)]
pub(crate) enum LayerPools {
    /// In the order of [`HcaArgs::pools`].
    Hca(Box<[Tensor; 3]>),
    /// In the order of [`CsaArgs::pools`].
    Csa(Box<[Tensor; 6]>),
}

impl LayerPools {
    /// Empty ones for so many requests.
    pub(crate) fn empty(kind: Kind, requests: usize) -> Self {
        match kind {
            Kind::Hca => Self::Hca(Box::new(HcaArgs::empty_pools(requests))),
            Kind::Csa => Self::Csa(Box::new(CsaArgs::empty_pools(requests))),
        }
    }

    /// Takes the values of others of the kind.
    pub(crate) fn copy_from(&self, other: &Self) {
        let both = self.all().iter().zip(other.all());
        both.for_each(|(pool, other)| pool.copy_from(other));
    }

    /// All, in the order of the kind.
    pub(crate) fn all(&self) -> &[Tensor] {
        match self {
            Self::Hca(pools) => &**pools,
            Self::Csa(pools) => &**pools,
        }
    }

    /// Names and rules of [`Self::all`], for mappings of which the first `live` entries may name rows.
    pub(crate) fn rules(&self, rules: &PoolRules, live: usize) -> Vec<(&'static str, MappedPool)> {
        let rule = |(atol, rtol, ratio): Tolerance| pool_rule(atol, rtol, ratio, live);
        let rows = [("kv_cache", rules.rows), ("cmp_kv", rules.rows)];
        let rest: &[(&str, Tolerance)] = match self {
            Self::Hca(_) => &[("hca_compress_state", rules.state)],
            Self::Csa(_) => &[
                ("csa_compress_state", rules.state),
                ("csa_inner_compress_state", rules.state),
                ("idx_kv_cache", rules.idx_kv_cache),
                ("idx_kv_scale", rules.idx_kv_scale),
            ],
        };
        rows.iter().chain(rest).map(|(name, t)| (*name, rule(*t))).collect()
    }
}

/// Absolute and relative tolerance, and share of outliers.
pub(crate) type Tolerance = (f64, f64, f64);

/// Tolerances of the rows that a layer may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolRules {
    /// Original and compressed rows.
    pub(crate) rows: Tolerance,
    /// Rolling states of the compressors.
    pub(crate) state: Tolerance,
    /// Index keys and their scales.
    pub(crate) idx_kv_cache: Tolerance,
    pub(crate) idx_kv_scale: Tolerance,
}

/// Activations, pools and metadata of a tile, of a kind.
#[derive(Clone, Debug)]
pub(crate) enum AttentionArgs {
    Hca(Box<HcaArgs>),
    Csa(Box<CsaArgs>),
}

impl AttentionArgs {
    /// Arguments of `tile` of a request in `pools`, from and to these streams.
    pub(crate) fn over(pools: &LayerPools, request: usize, tile: Tile, streams: [Tensor; 2]) -> Self {
        match pools {
            LayerPools::Hca(pools) => Self::Hca(Box::new(HcaArgs::over(pools, request, tile, streams))),
            LayerPools::Csa(pools) => Self::Csa(Box::new(CsaArgs::over(pools, request, tile, streams))),
        }
    }

    pub(crate) fn block(&self) -> &BlockArgs {
        match self {
            Self::Hca(args) => &args.block,
            Self::Csa(args) => &args.block,
        }
    }

    pub(crate) fn block_mut(&mut self) -> &mut BlockArgs {
        match self {
            Self::Hca(args) => &mut args.block,
            Self::Csa(args) => &mut args.block,
        }
    }

    /// The same tile, which names no rows for tokens that are not live: they are not written.
    fn naming_live_rows(&self) -> Self {
        let mut args = self.clone();
        let live = self.block().num_tokens;
        let cut = |slots: &mut Tensor| {
            let rows = slots
                .read::<i64>()
                .iter()
                .enumerate()
                .map(|(t, s)| if t < live { *s } else { -1 })
                .collect();
            *slots = Tensor::from_vec(&[TOKENS], rows);
        };
        cut(&mut args.block_mut().ori_slot_mapping);
        match &mut args {
            Self::Hca(args) => [&mut args.cmp_slots, &mut args.state_slots].into_iter().for_each(cut),
            Self::Csa(args) => [
                &mut args.cmp_slots,
                &mut args.main.slots,
                &mut args.inner.slots,
                &mut args.key_slots,
            ]
            .into_iter()
            .for_each(cut),
        }
        args
    }

    /// Which rows of each pool the tile names, \[128\] i64, in the order of the kind.
    pub(crate) fn mappings(&self) -> Vec<&Tensor> {
        match self {
            Self::Hca(args) => vec![&args.block.ori_slot_mapping, &args.cmp_slots, &args.state_slots],
            Self::Csa(args) => vec![
                &args.block.ori_slot_mapping,
                &args.cmp_slots,
                &args.main.slots,
                &args.inner.slots,
                &args.key_slots,
                &args.key_slots,
            ],
        }
    }
}

impl Attention for AttentionArgs {
    type Weights = AttentionWeights;
    type Reference = Reference;

    fn between(&self, x: &Tensor, x_out: impl Into<Tapped>) -> Self {
        let mut args = self.clone();
        *args.block_mut() = self.block().between(x, x_out);
        args
    }

    fn pools(&self) -> Vec<&Tensor> {
        match self {
            Self::Hca(args) => args.pools().to_vec(),
            Self::Csa(args) => args.pools().to_vec(),
        }
    }

    fn compare(&self, reference: &Reference) -> Vec<TensorVerdict> {
        match (&self.naming_live_rows(), reference) {
            (Self::Hca(args), Reference::Hca(reference)) => reference.compare(args),
            (Self::Csa(args), Reference::Csa(reference)) => reference.compare(args),
            _ => unreachable!("a reference is of the kind of its arguments"),
        }
    }

    fn metadata(&self) -> Option<Vec<&Tensor>> {
        let block = self.block();
        let shared = [&block.block_table, &block.ori_slot_mapping, &block.position_ids];
        let rest = match self {
            Self::Hca(args) => vec![&args.state_table, &args.state_slots, &args.cmp_table, &args.cmp_slots],
            Self::Csa(args) => vec![
                &args.main.table,
                &args.main.slots,
                &args.inner.table,
                &args.inner.slots,
                &args.cmp_table,
                &args.cmp_slots,
                &args.key_table,
                &args.key_slots,
            ],
        };
        Some(shared.into_iter().chain(rest).collect())
    }

    fn submit(&self, o: &mut Orchestrator<'_>, bodies: BodyScopes, weights: &AttentionWeights) -> Result<(), Halted> {
        let mut creates = Creates::new();
        match (self, weights) {
            (Self::Hca(args), AttentionWeights::Hca(weights)) => {
                let scratch = HcaScratch::declare(&mut creates);
                creates.alloc(o)?;
                prefill_attention_hca(o, bodies, args, weights, &scratch)
            }
            (Self::Csa(args), AttentionWeights::Csa(weights)) => {
                let scratch = CsaScratch::declare(&mut creates);
                creates.alloc(o)?;
                prefill_attention_csa(o, bodies, args, weights, &scratch)
            }
            _ => unreachable!("arguments and weights are drawn for one kind"),
        }
    }

    fn reference(&self, weights: &AttentionWeights, before: &[Tensor]) -> Reference {
        const COUNT: &str = "a kind has as many initial pools as pools";
        match (self, weights) {
            (Self::Hca(args), AttentionWeights::Hca(weights)) => {
                let before = before.try_into().expect(COUNT);
                Reference::Hca(Box::new(hca::reference(args, weights, before)))
            }
            (Self::Csa(args), AttentionWeights::Csa(weights)) => {
                let before = before.try_into().expect(COUNT);
                Reference::Csa(Box::new(csa::reference(args, weights, before)))
            }
            _ => unreachable!("arguments and weights are of one kind"),
        }
    }
}

/// What a tile should leave behind.
pub(crate) enum Reference {
    Hca(Box<hca::HcaReference>),
    Csa(Box<csa::CsaReference>),
}

impl Reference {
    /// The streams and the pools.
    pub(crate) fn into_parts(self) -> (Tensor, LayerPools) {
        match self {
            Self::Hca(r) => {
                let pools = [r.block.kv_cache, r.cmp_kv, r.state];
                (r.block.x_out, LayerPools::Hca(Box::new(pools)))
            }
            Self::Csa(r) => {
                let pools = [r.block.kv_cache, r.cmp_kv, r.state, r.inner_state, r.keys, r.key_scales];
                (r.block.x_out, LayerPools::Csa(Box::new(pools)))
            }
        }
    }
}

/// Rows of a whole tile, live or not.
pub(crate) const TILE: usize = TOKENS;
