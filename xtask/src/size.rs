//! Byte quantities as they are typed, stored and shown: binary units only.

use std::{fmt, str::FromStr};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bytes(u64);

/// The binary units, largest first.
const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// That many bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The sum, or `None` when it doesn't fit 64 bits.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// For people: two decimals of the largest unit that gives at least one, e.g. `292.67 MiB`.
    /// [`Display`](fmt::Display) is the exact form that reads back.
    pub fn human(self) -> String {
        match UNITS.into_iter().find(|&(_, unit)| self.0 >= unit) {
            None => format!("{} B", self.0),
            Some((name, unit)) if self.0.is_multiple_of(unit) => format!("{} {name}", self.0 / unit),
            Some((name, unit)) => format!("{:.2} {name}", self.0 as f64 / unit as f64),
        }
    }
}

impl fmt::Display for Bytes {
    /// Exact: a whole number of the largest unit that divides it, else plain bytes. Reads back through [`FromStr`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS
            .into_iter()
            .find(|&(_, unit)| self.0 > 0 && self.0.is_multiple_of(unit))
        {
            Some((name, unit)) => f.pad(&format!("{}{name}", self.0 / unit)),
            None => f.pad(&self.0.to_string()),
        }
    }
}

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// A decimal unit: 5 % smaller than its binary namesake, so it is never guessed what was meant.
    #[error(
        "`{text}` uses the decimal unit `{unit}`; sizes are binary: write `{number}{binary}` (units: KiB, MiB, GiB, TiB, or plain bytes)"
    )]
    DecimalUnit {
        /// The text as typed.
        text: String,
        /// Its number.
        number: String,
        /// Its unit.
        unit: String,
        /// The binary unit of the same letter.
        binary: &'static str,
    },
    /// A unit that doesn't exist.
    #[error("`{text}` has the unknown unit `{unit}`; units are KiB, MiB, GiB, TiB, or none for plain bytes")]
    UnknownUnit {
        /// The text as typed.
        text: String,
        /// Its unit.
        unit: String,
    },
    /// No whole number before the unit.
    #[error("`{0}` is not a whole number of bytes; write `268435456`, `\"256MiB\"` or `\"1GiB\"`")]
    NotANumber(String),
    /// More than 64 bits hold.
    #[error("`{0}` is more bytes than 64 bits hold")]
    TooLarge(String),
}

impl FromStr for Bytes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (number, unit) = (&trimmed[..split], trimmed[split..].trim_start());
        if number.is_empty() || unit.starts_with(['.', ',', '_']) {
            return Err(SizeError::NotANumber(text.into()));
        }
        let factor = match unit {
            "" | "B" => 1,
            _ => match UNITS.into_iter().find(|(name, _)| *name == unit) {
                Some((_, factor)) => factor,
                None => return Err(unit_error(text, number, unit)),
            },
        };
        number
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(factor))
            .map(Self)
            .ok_or_else(|| SizeError::TooLarge(text.into()))
    }
}

fn unit_error(text: &str, number: &str, unit: &str) -> SizeError {
    let decimal = ["KB", "MB", "GB", "TB", "K", "M", "G", "T"]
        .into_iter()
        .find(|name| name.eq_ignore_ascii_case(unit));
    let binary = decimal.and_then(|name| UNITS.into_iter().find(|(binary, _)| binary[..1] == name[..1]));
    match binary {
        Some((binary, _)) => SizeError::DecimalUnit {
            text: text.into(),
            number: number.into(),
            unit: unit.into(),
            binary,
        },
        None => SizeError::UnknownUnit {
            text: text.into(),
            unit: unit.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, bytes: u64) {
        assert_eq!(text.parse(), Ok(Bytes::new(bytes)));
    }

    #[test]
    fn sizes_are_plain_bytes_or_binary_units() {
        check("268435456", 268_435_456);
        check("256MiB", 268_435_456);
        check("256 MiB", 268_435_456);
        check("1GiB", 1 << 30);
        check("2TiB", 2 << 40);
        check("1024B", 1024);
        check("0", 0);
    }

    #[test]
    fn decimal_units_are_named_as_such() {
        let error = "384MB".parse::<Bytes>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`384MB` uses the decimal unit `MB`; sizes are binary: write `384MiB` (units: KiB, MiB, GiB, TiB, or plain bytes)"
        );
        assert!(matches!(
            "1g".parse::<Bytes>(),
            Err(SizeError::DecimalUnit { binary: "GiB", .. })
        ));
        assert!(matches!("1PiB".parse::<Bytes>(), Err(SizeError::UnknownUnit { .. })));
        assert!(matches!("1.5GiB".parse::<Bytes>(), Err(SizeError::NotANumber(_))));
        assert!(matches!("-1".parse::<Bytes>(), Err(SizeError::NotANumber(_))));
        assert!(matches!("16777216TiB".parse::<Bytes>(), Err(SizeError::TooLarge(_))));
    }

    #[test]
    fn the_human_form_rounds_and_the_exact_form_does_not() {
        assert_eq!(Bytes::new(306_889_728).human(), "292.67 MiB");
        assert_eq!(Bytes::new(306_889_728).to_string(), "299697KiB");
        assert_eq!(Bytes::new(306_889_729).to_string(), "306889729");
        assert_eq!(Bytes::new(1 << 28).human(), "256 MiB");
        assert_eq!(Bytes::ZERO.to_string(), "0");
    }

    proptest::proptest! {
        #[test]
        fn printing_and_parsing_round_trip(bytes: u64) {
            proptest::prop_assert_eq!(Bytes::new(bytes).to_string().parse(), Ok(Bytes::new(bytes)));
        }
    }
}
