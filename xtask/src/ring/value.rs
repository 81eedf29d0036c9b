//! One resource's wish: a scalar for all rings, or four entries.

use std::fmt;

use super::{RINGS, Resource};
use crate::size::{Bytes, SizeError};

/// What one ring's entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RingEntry {
    /// `0` in a list: the next tier decides.
    Inherit,
    /// `default`: the runtime's default, whatever weaker tiers say.
    Default,
    /// This many bytes, slots or entries.
    Value(u64),
}

/// What one layer asks of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RingSetting {
    /// The same for the four rings; never [`RingEntry::Inherit`].
    All(RingEntry),
    /// Ring by ring.
    Each([RingEntry; RINGS]),
}

/// Why something is no ring setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A list that hasn't four entries.
    #[error("a list of {0}: a ring list has exactly four entries, one per ring 0..3")]
    Length(usize),
    /// A scalar zero.
    #[error(
        "a scalar `0` asks for nothing: leave the setting out to inherit it, or write `default` for the runtime's default"
    )]
    ScalarZero,
    /// An entry that is neither a number nor `default`.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// A count with a unit or another word.
    #[error("`{0}` is neither a number of {1} nor `default`")]
    Count(String, &'static str),
    /// A value that the runtime would refuse.
    #[error("{0}")]
    Range(String),
}

impl RingEntry {
    /// The entry that `text` means for `resource`.
    pub fn parse(resource: Resource, text: &str) -> Result<Self, SettingError> {
        if text == "default" {
            return Ok(Self::Default);
        }
        let value = match resource {
            Resource::Heap => text.parse::<Bytes>()?.get(),
            Resource::TaskWindow | Resource::DepPool => text
                .parse()
                .map_err(|_| SettingError::Count(text.into(), resource.unit()))?,
        };
        Self::number(resource, value)
    }

    /// The entry of a plain number: `0` inherits, anything else must be one that the runtime takes.
    pub fn number(resource: Resource, value: u64) -> Result<Self, SettingError> {
        if value == 0 {
            return Ok(Self::Inherit);
        }
        check_range(resource, value).map_err(SettingError::Range)?;
        Ok(Self::Value(value))
    }

    fn show(self, resource: Resource) -> String {
        match self {
            Self::Inherit => "0".into(),
            Self::Default => "default".into(),
            Self::Value(value) if resource == Resource::Heap => Bytes::new(value).to_string(),
            Self::Value(value) => value.to_string(),
        }
    }
}

/// The runtime's own limits: heap ≥ 1024 bytes; task window a power of two ≥ 4; dependency pool ≥ 4; counts within i32.
pub(super) fn check_range(resource: Resource, value: u64) -> Result<(), String> {
    const MAX_COUNT: u64 = i32::MAX as u64;
    match resource {
        Resource::Heap if value < 1024 => Err(format!("a heap of {value} bytes: the least is 1024")),
        Resource::TaskWindow if value < 4 || !value.is_power_of_two() => {
            let next = value.clamp(4, 1 << 30).next_power_of_two();
            let below = (next / 2).max(4);
            let near = if below == next {
                format!("{next}")
            } else {
                format!("{below} or {next}")
            };
            Err(format!(
                "a task window of {value}: it must be a power of two, at least 4 (near: {near})"
            ))
        }
        Resource::DepPool if value < 4 => Err(format!("a dependency pool of {value} entries: the least is 4")),
        Resource::TaskWindow | Resource::DepPool if value > MAX_COUNT => {
            Err(format!("{value} {}: the most is {MAX_COUNT} (i32)", resource.unit()))
        }
        Resource::Heap | Resource::TaskWindow | Resource::DepPool => Ok(()),
    }
}

impl RingSetting {
    /// The setting that a command line value means: `512MiB`, `default`, or four of them with commas.
    pub fn parse(resource: Resource, text: &str) -> Result<Self, SettingError> {
        let entries = text
            .split(',')
            .map(|entry| RingEntry::parse(resource, entry.trim()))
            .collect::<Result<Vec<_>, _>>()?;
        Self::from_entries(&entries)
    }

    /// One entry is a scalar, four are a list, any other number is an error.
    pub fn from_entries(entries: &[RingEntry]) -> Result<Self, SettingError> {
        match *entries {
            [RingEntry::Inherit] => Err(SettingError::ScalarZero),
            [entry] => Ok(Self::All(entry)),
            [a, b, c, d] => Ok(Self::Each([a, b, c, d])),
            _ => Err(SettingError::Length(entries.len())),
        }
    }

    /// What it asks for ring `ring`.
    pub fn entry(self, ring: usize) -> RingEntry {
        match self {
            Self::All(entry) => entry,
            Self::Each(entries) => entries[ring],
        }
    }

    /// The command line form, which [`RingSetting::parse`] reads back.
    pub fn show(self, resource: Resource) -> impl fmt::Display {
        match self {
            Self::All(entry) => entry.show(resource),
            Self::Each(entries) => entries.map(|entry| entry.show(resource)).join(","),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scalars_and_lists_parse() {
        let parse = |text| RingSetting::parse(Resource::Heap, text).unwrap();
        assert_eq!(parse("default"), RingSetting::All(RingEntry::Default));
        assert_eq!(parse("306889728"), RingSetting::All(RingEntry::Value(306_889_728)));
        let [inherit, default] = [RingEntry::Inherit, RingEntry::Default];
        let half = RingEntry::Value(512 << 20);
        assert_eq!(
            parse("default,512MiB,default,default"),
            RingSetting::Each([default, half, default, default])
        );
        assert_eq!(
            parse("0, 0, 2GiB, 0"),
            RingSetting::Each([inherit, inherit, RingEntry::Value(2 << 30), inherit])
        );
    }

    #[track_caller]
    fn refused(resource: Resource, text: &str, message: &str) {
        let error = RingSetting::parse(resource, text).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }

    #[test]
    fn what_the_runtime_would_refuse_is_refused() {
        refused(Resource::Heap, "0", "scalar `0`");
        refused(Resource::Heap, "1GiB,1GiB,1GiB", "a list of 3");
        refused(Resource::Heap, "384MB", "decimal unit");
        refused(Resource::Heap, "1023", "the least is 1024");
        refused(Resource::Heap, "-1", "not a whole number");
        refused(Resource::Heap, "none", "not a whole number");
        refused(Resource::TaskWindow, "1000", "near: 512 or 1024");
        refused(Resource::TaskWindow, "2", "near: 4)");
        refused(Resource::TaskWindow, "4294967296", "i32");
        refused(Resource::TaskWindow, "16KiB", "neither a number of slots");
        refused(Resource::DepPool, "3", "the least is 4");
        refused(Resource::DepPool, "2147483648", "i32");
    }

    fn entry() -> impl Strategy<Value = RingEntry> {
        prop_oneof![
            Just(RingEntry::Inherit),
            Just(RingEntry::Default),
            (1024..=u64::MAX).prop_map(RingEntry::Value),
            (10..63_u32).prop_map(|n| RingEntry::Value(1 << n)),
        ]
    }

    proptest! {
        #[test]
        fn printing_and_parsing_round_trip(entries in [entry(), entry(), entry(), entry()], scalar in entry()) {
            let mut settings = vec![RingSetting::Each(entries)];
            settings.extend((scalar != RingEntry::Inherit).then_some(RingSetting::All(scalar)));
            for setting in settings {
                let text = setting.show(Resource::Heap).to_string();
                prop_assert_eq!(RingSetting::parse(Resource::Heap, &text), Ok(setting));
            }
        }
    }
}
