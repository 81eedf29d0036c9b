//! The attention half of a prefill layer, of either kind, on one rank.

use ring_runtime::{Halted, Orchestrator, Tensor};

use crate::compare::MappedPool;
use crate::creates::Creates;
use crate::fixture::Fixture;
use crate::fixture::prefill::Tile;
use crate::ops::layers::Kind;
use crate::ops::prefill_attention::fixture::pool_rule;
use crate::ops::prefill_attention::{BlockArgs, BlockWeights, TOKENS};
use crate::ops::prefill_attention_csa::case as csa;
use crate::ops::prefill_attention_csa::{CsaArgs, CsaScratch, CsaWeights, prefill_attention_csa};
use crate::ops::prefill_attention_hca::case as hca;
use crate::ops::prefill_attention_hca::{HcaArgs, HcaScratch, HcaWeights, prefill_attention_hca};
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

impl PoolRules {
    /// Any finite values in the rows that the layer may change: the others are still compared.
    pub(crate) const OTHERS_ONLY: Self = {
        const ANY: Tolerance = (0.0, 0.0, 1.0);
        Self {
            rows: ANY,
            state: ANY,
            idx_kv_cache: ANY,
            idx_kv_scale: ANY,
        }
    };
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

    /// The same tile from `x` to `x_out`.
    pub(crate) fn between(&self, x: &Tensor, x_out: &Tensor) -> Self {
        let mut args = self.clone();
        *args.block_mut() = self.block().between(x, x_out);
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

    /// Allocates in the current scope, and submits the block.
    pub(crate) fn submit(
        &self,
        o: &mut Orchestrator<'_>,
        bodies: BodyScopes,
        weights: &AttentionWeights,
    ) -> Result<(), Halted> {
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

    /// The reference's streams and pools, from pools as they were before the tile.
    pub(crate) fn reference(&self, weights: &AttentionWeights, before: &LayerPools) -> (Tensor, LayerPools) {
        match (self, weights, before) {
            (Self::Hca(args), AttentionWeights::Hca(weights), LayerPools::Hca(before)) => {
                let r = hca::reference(args, weights, before);
                (
                    r.block.x_out,
                    LayerPools::Hca(Box::new([r.block.kv_cache, r.cmp_kv, r.state])),
                )
            }
            (Self::Csa(args), AttentionWeights::Csa(weights), LayerPools::Csa(before)) => {
                let r = csa::reference(args, weights, before);
                let pools = [r.block.kv_cache, r.cmp_kv, r.state, r.inner_state, r.keys, r.key_scales];
                (r.block.x_out, LayerPools::Csa(Box::new(pools)))
            }
            _ => unreachable!("arguments, weights and pools are of one kind"),
        }
    }
}

/// Rows of a whole tile, live or not.
pub(crate) const TILE: usize = TOKENS;
