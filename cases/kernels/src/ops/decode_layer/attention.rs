//! The attention half of a decode layer, of either kind, on one rank.

use ring_runtime::{Halted, Orchestrator, Tensor};

use crate::compare::{FiniteRule, MappedPool, TensorVerdict};
use crate::creates::Creates;
use crate::fixture::{DecodeBatch, Family, Fixture};
use crate::ops::decode_attention::{BlockArgs, BlockWeights};
use crate::ops::decode_attention_csa::{
    self as csa, CsaBlockArgs, CsaBlockScratch, CsaReference, CsaWeights, decode_attention_csa,
};
use crate::ops::decode_attention_hca::{
    self as hca, HcaBlockArgs, HcaBlockScratch, HcaReference, HcaWeights, decode_attention_hca,
};
use crate::ops::forward::Attention;
use crate::ops::layers::Kind;
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

/// Activations, pools and metadata of a kind.
#[derive(Clone, Debug)]
pub(crate) enum AttentionArgs {
    Hca(Box<HcaBlockArgs>),
    Csa(Box<CsaBlockArgs>),
}

/// Rules of the pools of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolRules {
    /// Original and compressed rows.
    pub(crate) kv_cache: MappedPool,
    pub(crate) cmp_kv: MappedPool,
    /// Rolling states of the compressors.
    pub(crate) state: MappedPool,
    /// Index keys and their scales.
    pub(crate) idx_kv_cache: MappedPool,
    pub(crate) idx_kv_scale: MappedPool,
}

impl PoolRules {
    /// From the (absolute, relative, share) tolerances of each. States may start at −∞, so only the mapped rows need be finite.
    pub(crate) fn new(tolerances: [(f64, f64, f64); 5]) -> Self {
        let [kv_cache, cmp_kv, state, idx_kv_cache, idx_kv_scale] =
            tolerances.map(|(atol, rtol, ratio)| MappedPool::allclose(atol, rtol, ratio, FiniteRule::Mapped));
        Self {
            kv_cache,
            cmp_kv,
            state,
            idx_kv_cache,
            idx_kv_scale,
        }
    }
}

/// A pool that a step changes.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    pub(crate) name: &'static str,
    pub(crate) tensor: &'a Tensor,
    /// Rows that the step may change, −1 for none.
    pub(crate) mapping: &'a Tensor,
    pub(crate) rule: MappedPool,
}

impl AttentionArgs {
    /// As the fixture of the kind has them, for requests at these positions.
    pub(crate) fn draw(fixture: Fixture, kind: Kind, batch: impl FnOnce(Family) -> DecodeBatch) -> Self {
        match kind {
            Kind::Hca => Self::Hca(Box::new(HcaBlockArgs::draw(fixture, &batch(Family::Hca)))),
            Kind::Csa => Self::Csa(Box::new(CsaBlockArgs::draw(fixture, &batch(Family::Csa)))),
        }
    }

    pub(crate) fn block(&self) -> &BlockArgs {
        match self {
            Self::Hca(args) => &args.block,
            Self::Csa(args) => &args.block,
        }
    }

    /// The same step on pools of its own, with the values that these have now.
    pub(crate) fn with_own_pools(&self) -> Self {
        let mut args = self.clone();
        let own = |pool: &mut Tensor| *pool = pool.snapshot();
        match &mut args {
            Self::Hca(args) => [&mut args.block.kv_cache, &mut args.cmp_kv, &mut args.compress_state]
                .into_iter()
                .for_each(own),
            Self::Csa(args) => [
                &mut args.block.kv_cache,
                &mut args.cmp_kv,
                &mut args.main.state,
                &mut args.inner.state,
                &mut args.idx_kv_cache,
                &mut args.idx_kv_scale,
            ]
            .into_iter()
            .for_each(own),
        }
        args
    }

    /// The pools with what is to hold for them, in the same order.
    pub(crate) fn rules(&self, rules: &PoolRules) -> Vec<Pool<'_>> {
        let kv_slots = &self.block().slot_mapping;
        let rows = [("kv_cache", kv_slots, rules.kv_cache)];
        let rest: Vec<(&'static str, &Tensor, MappedPool)> = match self {
            Self::Hca(args) => vec![
                ("cmp_kv", &args.cmp_slot_mapping, rules.cmp_kv),
                ("hca_compress_state", &args.state_slot_mapping, rules.state),
            ],
            Self::Csa(args) => vec![
                ("cmp_kv", &args.cmp_slot_mapping, rules.cmp_kv),
                ("csa_compress_state", &args.main.slot_mapping, rules.state),
                ("csa_inner_compress_state", &args.inner.slot_mapping, rules.state),
                ("idx_kv_cache", &args.idx_slot_mapping, rules.idx_kv_cache),
                ("idx_kv_scale", &args.idx_slot_mapping, rules.idx_kv_scale),
            ],
        };
        let rules = rows.into_iter().chain(rest);
        let pool = |(tensor, (name, mapping, rule))| Pool {
            name,
            tensor,
            mapping,
            rule,
        };
        self.pools().into_iter().zip(rules).map(pool).collect()
    }
}

impl Attention for AttentionArgs {
    type Weights = AttentionWeights;
    type Reference = Reference;

    fn between(&self, x: &Tensor, x_out: impl Into<Tapped>) -> Self {
        let mut args = self.clone();
        let block = match &mut args {
            Self::Hca(args) => &mut args.block,
            Self::Csa(args) => &mut args.block,
        };
        (block.x_hc, block.x_out) = (x.clone(), x_out.into());
        args
    }

    fn pools(&self) -> Vec<&Tensor> {
        match self {
            Self::Hca(args) => args.pools().to_vec(),
            Self::Csa(args) => args.pools().to_vec(),
        }
    }

    fn submit(&self, o: &mut Orchestrator<'_>, bodies: BodyScopes, weights: &AttentionWeights) -> Result<(), Halted> {
        let mut creates = Creates::new();
        match (self, weights) {
            (Self::Hca(args), AttentionWeights::Hca(weights)) => {
                let scratch = HcaBlockScratch::declare(&mut creates);
                creates.alloc(o)?;
                decode_attention_hca(o, args, weights, &scratch)
            }
            (Self::Csa(args), AttentionWeights::Csa(weights)) => {
                let scratch = CsaBlockScratch::declare(&mut creates);
                creates.alloc(o)?;
                decode_attention_csa(o, args, weights, &scratch, bodies)
            }
            _ => unreachable!("arguments and weights are drawn for one kind"),
        }
    }

    fn reference(&self, weights: &AttentionWeights, before: &[Tensor]) -> Reference {
        const COUNT: &str = "a kind has as many initial pools as pools";
        match (self, weights) {
            (Self::Hca(args), AttentionWeights::Hca(weights)) => {
                let before = before.try_into().expect(COUNT);
                Reference::Hca(Box::new(hca::block_reference(args, weights, before)))
            }
            (Self::Csa(args), AttentionWeights::Csa(weights)) => {
                let before = before.try_into().expect(COUNT);
                Reference::Csa(Box::new(csa::block_reference(args, weights, before)))
            }
            _ => unreachable!("arguments and weights are drawn for one kind"),
        }
    }

    fn compare(&self, reference: &Reference) -> Vec<TensorVerdict> {
        match (self, reference) {
            (Self::Hca(args), Reference::Hca(reference)) => reference.compare(args),
            (Self::Csa(args), Reference::Csa(reference)) => reference.compare(args),
            _ => unreachable!("a reference is of the kind of its arguments"),
        }
    }
}

/// What a block should leave behind.
pub(crate) enum Reference {
    Hca(Box<HcaReference>),
    Csa(Box<CsaReference>),
}

impl Reference {
    /// The streams.
    pub(crate) fn x_out(&self) -> &Tensor {
        match self {
            Self::Hca(reference) => &reference.x_out,
            Self::Csa(reference) => reference.x_out(),
        }
    }

    /// The pools, in the order of the kind.
    pub(crate) fn pools(&self) -> Vec<&Tensor> {
        match self {
            Self::Hca(reference) => reference.pools.iter().collect(),
            Self::Csa(reference) => reference.pools().to_vec(),
        }
    }
}
