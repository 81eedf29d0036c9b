//! Python source without what only looks like code: comments and texts.

/// `source` with comments dropped and the content of triple-quoted texts blanked; lines keep their numbers.
///
/// Short texts stay, since option names and ring declarations stand in them.
pub(super) fn code(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    let mut quote: Option<&str> = None;
    while let Some(c) = rest.chars().next() {
        if let Some(end) = quote {
            if rest.starts_with('\\') && rest.len() > 1 {
                let escaped = rest.chars().nth(1).map_or(1, char::len_utf8);
                if end.len() == 1 {
                    code.push_str(&rest[..=escaped]);
                }
                rest = &rest[1 + escaped..];
            } else if rest.starts_with(end) {
                code.push_str(end);
                rest = &rest[end.len()..];
                quote = None;
            } else {
                // A short text ends with its line, closed or not.
                if c == '\n' && end.len() == 1 {
                    quote = None;
                }
                if c == '\n' || end.len() == 1 {
                    code.push(c);
                }
                rest = &rest[c.len_utf8()..];
            }
            continue;
        }
        if let Some(open) = ["\"\"\"", "'''", "\"", "'"]
            .into_iter()
            .find(|open| rest.starts_with(open))
        {
            code.push_str(open);
            rest = &rest[open.len()..];
            quote = Some(open);
        } else if c == '#' {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    code
}

/// The value of an integer expression of products, powers and shifts: `2 * 1024 ** 3`, `1 << 30`, `4294967296`.
pub(super) fn integer(expression: &str) -> Option<u64> {
    let expression = expression.trim();
    if let Some((base, shift)) = expression.split_once("<<") {
        return integer(base)?.checked_shl(u32::try_from(integer(shift)?).ok()?);
    }
    let powers = expression.replace("**", "^");
    powers.split('*').try_fold(1u64, |product, factor| {
        let value = match factor.split_once('^') {
            Some((base, power)) => number(base)?.checked_pow(u32::try_from(number(power)?).ok()?)?,
            None => number(factor)?,
        };
        product.checked_mul(value)
    })
}

fn number(text: &str) -> Option<u64> {
    text.trim().replace('_', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_long_texts_are_no_code() {
        let source = "'''run_jit(\n'''\nx = \"# not a comment\" # run_jit(\ny = 'it\\'s' # z\nrun_jit(x)\n";
        assert_eq!(
            code(source),
            "'''\n'''\nx = \"# not a comment\" \ny = 'it\\'s' \nrun_jit(x)\n"
        );
    }

    #[test]
    fn sizes_are_computed() {
        let cases = [
            ("4294967296", Some(1 << 32)),
            ("2 * 1024 ** 3", Some(2 << 30)),
            ("1 << 30", Some(1 << 30)),
            ("GIB", None),
            ("0", Some(0)),
            ("1_024", Some(1024)),
        ];
        for (text, value) in cases {
            assert_eq!(integer(text), value, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_source_is_too_odd(source in "[a-z#\"'\\\\\n ]{0,80}") {
            let lines = |text: &str| text.matches('\n').count();
            proptest::prop_assert!(lines(&code(&source)) <= lines(&source));
        }
    }
}
