//! Layers of wishes and the configuration that they resolve to.

use super::{RINGS, Resource, RingEntry, RingSetting, Tier};
use crate::size::Bytes;

/// What one tier asks for; `None` leaves a resource to the next tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RingLayer {
    /// Heap bytes.
    pub heap: Option<RingSetting>,
    /// Task window slots.
    pub task_window: Option<RingSetting>,
    /// Dependency pool entries.
    pub dep_pool: Option<RingSetting>,
}

impl RingLayer {
    /// The wish for one resource.
    pub fn get(&self, resource: Resource) -> Option<RingSetting> {
        match resource {
            Resource::Heap => self.heap,
            Resource::TaskWindow => self.task_window,
            Resource::DepPool => self.dep_pool,
        }
    }

    /// True when it asks for nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The settings of `self`, and those of `weaker` where `self` asks for nothing or, ring by ring, inherits.
    #[must_use]
    pub fn over(self, weaker: Self) -> Self {
        let merge = |strong: Option<RingSetting>, weak: Option<RingSetting>| match (strong, weak) {
            (Some(RingSetting::Each(entries)), Some(weak)) => {
                let mut merged = entries;
                for (ring, entry) in merged.iter_mut().enumerate() {
                    if *entry == RingEntry::Inherit {
                        *entry = weak.entry(ring);
                    }
                }
                Some(RingSetting::Each(merged))
            }
            (strong, weak) => strong.or(weak),
        };
        Self {
            heap: merge(self.heap, weaker.heap),
            task_window: merge(self.task_window, weaker.task_window),
            dep_pool: merge(self.dep_pool, weaker.dep_pool),
        }
    }
}

/// One ring's value and who decided it.
///
/// A `default` that a tier writes has that tier: the tier decided, though it chose the runtime's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingValue {
    /// Bytes, slots or entries.
    pub value: u64,
    /// The strongest tier that said so.
    pub tier: Tier,
}

/// The absolute configuration of the four rings: what every dispatch of the case gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingConfig {
    /// Heap bytes per ring.
    pub heap: [RingValue; RINGS],
    /// Task window slots per ring.
    pub task_window: [RingValue; RINGS],
    /// Dependency pool entries per ring.
    pub dep_pool: [RingValue; RINGS],
}

/// The plain numbers of a [`RingConfig`], or those that a runtime reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingNumbers {
    /// Heap bytes per ring.
    pub heap: [u64; RINGS],
    /// Task window slots per ring.
    pub task_window: [u64; RINGS],
    /// Dependency pool entries per ring.
    pub dep_pool: [u64; RINGS],
}

/// Why a resolved configuration can't be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The heaps don't add up in 64 bits.
    #[error("the heaps of the four rings add up to more than 64 bits hold")]
    Overflow,
    /// The heaps of all ranks don't fit the platform.
    #[error("{ranks} × {per_rank} of ring heaps is {total}, more than the {limit} of platform `{platform}`", total = total.human(), per_rank = per_rank.human(), limit = limit.human())]
    Memory {
        /// How many ranks have rings of their own.
        ranks: u32,
        /// The sum over the rings of one rank.
        per_rank: Bytes,
        /// The sum over the ranks.
        total: Bytes,
        /// What the platform has.
        limit: Bytes,
        /// The platform's name.
        platform: String,
    },
}

impl RingConfig {
    /// Resolves each ring of each resource through `layers`, strongest first; what none decides is the runtime's default.
    pub fn resolve(layers: &[(Tier, RingLayer)]) -> Self {
        let resource = |resource: Resource| {
            std::array::from_fn(|ring| {
                let decided = layers.iter().find_map(|(tier, layer)| {
                    let value = match layer.get(resource)?.entry(ring) {
                        RingEntry::Inherit => return None,
                        RingEntry::Default => resource.runtime_default(),
                        RingEntry::Value(value) => value,
                    };
                    Some(RingValue { value, tier: *tier })
                });
                decided.unwrap_or(RingValue {
                    value: resource.runtime_default(),
                    tier: Tier::Runtime,
                })
            })
        };
        Self {
            heap: resource(Resource::Heap),
            task_window: resource(Resource::TaskWindow),
            dep_pool: resource(Resource::DepPool),
        }
    }

    /// The four values of one resource.
    pub fn get(&self, resource: Resource) -> [RingValue; RINGS] {
        match resource {
            Resource::Heap => self.heap,
            Resource::TaskWindow => self.task_window,
            Resource::DepPool => self.dep_pool,
        }
    }

    /// The values without their tiers.
    pub fn numbers(&self) -> RingNumbers {
        let plain = |values: [RingValue; RINGS]| values.map(|value| value.value);
        RingNumbers {
            heap: plain(self.heap),
            task_window: plain(self.task_window),
            dep_pool: plain(self.dep_pool),
        }
    }

    /// The heap bytes of one rank, or an error when they don't add up.
    pub fn heap_total(&self) -> Result<Bytes, RingError> {
        let total = self
            .heap
            .iter()
            .try_fold(Bytes::ZERO, |sum, ring| sum.checked_add(Bytes::new(ring.value)));
        total.ok_or(RingError::Overflow)
    }

    /// Checks that the rings of `ranks` ranks fit `limit` on `platform`.
    pub fn check_fits(&self, ranks: u32, limit: Option<Bytes>, platform: &str) -> Result<(), RingError> {
        let per_rank = self.heap_total()?;
        let total = per_rank
            .get()
            .checked_mul(u64::from(ranks))
            .map(Bytes::new)
            .ok_or(RingError::Overflow)?;
        match limit {
            Some(limit) if total > limit => Err(RingError::Memory {
                ranks,
                per_rank,
                total,
                limit,
                platform: platform.into(),
            }),
            _ => Ok(()),
        }
    }
}

impl RingNumbers {
    /// The four numbers of one resource.
    pub fn get(&self, resource: Resource) -> [u64; RINGS] {
        match resource {
            Resource::Heap => self.heap,
            Resource::TaskWindow => self.task_window,
            Resource::DepPool => self.dep_pool,
        }
    }

    /// The numbers of one resource with commas: what `--ring-heap` of the kernel binary takes.
    pub fn list(&self, resource: Resource) -> String {
        self.get(resource).map(|value| value.to_string()).join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn heap(text: &str) -> RingLayer {
        RingLayer {
            heap: Some(RingSetting::parse(Resource::Heap, text).unwrap()),
            ..RingLayer::default()
        }
    }

    #[track_caller]
    fn check(layers: &[(Tier, &str)], expected: [(u64, Tier); RINGS]) {
        let layers: Vec<_> = layers.iter().map(|&(tier, text)| (tier, heap(text))).collect();
        let config = RingConfig::resolve(&layers);
        assert_eq!(config.heap.map(|value| (value.value / MIB, value.tier)), expected);
        assert!(
            config
                .task_window
                .iter()
                .all(|v| v.value == 16384 && v.tier == Tier::Runtime)
        );
    }

    #[test]
    fn each_ring_is_resolved_through_the_tiers() {
        use Tier::{Case, CommandLine, Platform, Runtime, Suite};
        check(&[], [(256, Runtime); RINGS]);
        check(&[(Case, "1GiB")], [(1024, Case); RINGS]);
        check(
            &[(CommandLine, "0,0,2GiB,0"), (Case, "0,1GiB,0,0"), (Platform, "512MiB")],
            [(512, Platform), (1024, Case), (2048, CommandLine), (512, Platform)],
        );
        check(
            &[(CommandLine, "default,512MiB,default,default"), (Suite, "1GiB")],
            [
                (256, CommandLine),
                (512, CommandLine),
                (256, CommandLine),
                (256, CommandLine),
            ],
        );
    }

    #[test]
    fn layers_of_one_tier_merge_ring_by_ring() {
        let merged = heap("0,0,2GiB,0").over(heap("1GiB"));
        assert_eq!(
            merged.heap.unwrap().show(Resource::Heap).to_string(),
            "1GiB,1GiB,2GiB,1GiB"
        );
        assert_eq!(heap("1GiB").over(heap("2GiB")), heap("1GiB"));
        assert_eq!(RingLayer::default().over(heap("2GiB")), heap("2GiB"));
    }

    #[test]
    fn heaps_that_do_not_fit_are_refused() {
        let config = RingConfig::resolve(&[(Tier::Case, heap("4GiB"))]);
        assert_eq!(config.check_fits(1, Some(Bytes::new(16 << 30)), "host"), Ok(()));
        let error = config.check_fits(2, Some(Bytes::new(16 << 30)), "host").unwrap_err();
        assert_eq!(
            error.to_string(),
            "2 × 16 GiB of ring heaps is 32 GiB, more than the 16 GiB of platform `host`"
        );
        let config = RingConfig::resolve(&[(Tier::Case, heap("8388608TiB"))]);
        assert_eq!(config.heap_total(), Err(RingError::Overflow));
    }
}
