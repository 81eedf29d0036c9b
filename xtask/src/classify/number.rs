//! Numbers in logs, read as numbers.

/// The number that all of `text` is: integer, decimal or exponent form, `nan`, `inf` and `infinity` in any case and sign.
///
/// A text that only starts with a number is none: of `1.2e+06`, `1.2` must never be taken.
pub fn parse_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let word = ["nan", "inf", "infinity"]
        .iter()
        .any(|word| unsigned.eq_ignore_ascii_case(word));
    let digits = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if word || digits { text.parse().ok() } else { None }
}

/// The integer that all of `text` is.
pub(super) fn parse_integer(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_part_of_the_number() {
        assert_eq!(parse_number("1.2e+06"), Some(1_200_000.0));
        assert_eq!(parse_number("-3E-2"), Some(-0.03));
        assert_eq!(parse_number("1.3e37"), Some(1.3e37));
        assert_eq!(parse_number(" 42 "), Some(42.0));
        assert!(parse_number("nan").is_some_and(f64::is_nan));
        assert_eq!(parse_number("-Infinity"), Some(f64::NEG_INFINITY));
        for no in [
            "",
            "1.2.3",
            "1,2",
            "12us",
            "e5",
            "0x10",
            "{max_diff}",
            "infinite",
            "1_000",
        ] {
            assert_eq!(parse_number(no), None, "{no}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_reads_back(value: f64) {
            let read = parse_number(&format!("{value:e}")).unwrap();
            proptest::prop_assert!(read.total_cmp(&value).is_eq() || (read.is_nan() && value.is_nan()));
        }
    }
}
