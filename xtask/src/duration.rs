//! Durations as suites and the command line write them: `90s`, `5m`, `1m30s`, `250ms`.

use std::time::Duration;

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// No number with a unit.
    #[error("`{0}` is no duration; write whole numbers with units, e.g. `250ms`, `90s`, `5m`, `1h30m`")]
    Form(String),
    /// Zero, which no budget can mean.
    #[error("`{0}` is no time at all")]
    Zero(String),
}

/// The units in the order in which they may follow each other, in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The duration that `text` means; units in falling order, each at most once, never zero.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let form = || DurationError::Form(text.into());
    let mut rest = text.trim();
    let (mut total, mut least) = (0_u64, 0);
    if rest.is_empty() {
        return Err(form());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(form)?;
        let number: u64 = rest[..digits].parse().map_err(|_| form())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = UNITS
            .iter()
            .position(|(name, _)| *name == &rest[..letters])
            .ok_or_else(form)?;
        if unit < least {
            return Err(form());
        }
        least = unit + 1;
        rest = &rest[letters..];
        total = number
            .checked_mul(UNITS[unit].1)
            .and_then(|ms| total.checked_add(ms))
            .ok_or_else(form)?;
    }
    if total == 0 {
        return Err(DurationError::Zero(text.into()));
    }
    Ok(Duration::from_millis(total))
}

/// The text that [`parse`] reads back; below a millisecond is cut off.
pub fn show(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0ms".into();
    }
    let mut text = String::new();
    for (name, unit) in UNITS {
        if rest >= unit {
            text.push_str(&(rest / unit).to_string());
            text.push_str(name);
            rest %= unit;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(parse("1s250ms"), Ok(Duration::from_millis(1250)));
        for text in ["", "90", "s", "1.5s", "1s1m", "1s1s", "-1s", "1 s", "1d"] {
            assert!(matches!(parse(text), Err(DurationError::Form(_))), "{text}");
        }
        assert!(matches!(parse("0s"), Err(DurationError::Zero(_))));
    }

    proptest::proptest! {
        #[test]
        fn printing_and_parsing_round_trip(ms in 1..u64::from(u32::MAX)) {
            let duration = Duration::from_millis(ms);
            proptest::prop_assert_eq!(parse(&show(duration)), Ok(duration));
        }
    }
}
