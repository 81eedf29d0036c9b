//! Raw log bytes as lines: numbered, without terminal codes, split where a progress bar overwrote itself.

use std::borrow::Cow;

use crate::record::MAX_LINE_BYTES;

/// Longest part of a line that rules look at, bytes. What anchored patterns need stands at its start.
const LOOKED_AT: usize = 16 * 1024;

/// One line, or one overwritten state of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// Line in the log, from 1. States that a carriage return overwrote share the number of their line.
    pub number: u64,
    /// Text without terminal codes; invalid UTF-8 is replaced.
    pub text: Cow<'a, str>,
}

/// The lines of `log`. Empty ones are left out, their numbers are not.
pub fn lines(log: &[u8]) -> impl Iterator<Item = LogLine<'_>> {
    log.split(|&byte| byte == b'\n').zip(1..).flat_map(|(line, number)| {
        line.split(|&byte| byte == b'\r')
            .filter(|state| !state.is_empty())
            .map(move |state| LogLine {
                number,
                text: clean(&state[..state.len().min(LOOKED_AT)]),
            })
    })
}

/// Text of `bytes` without escape sequences; invalid UTF-8 is replaced.
fn clean(bytes: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(bytes);
    if text.contains('\x1b') {
        Cow::Owned(strip_escapes(&text))
    } else {
        text
    }
}

/// `text` without ECMA-48 escape sequences: CSI (colours, cursor), OSC (titles, links) and two-character ones.
fn strip_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\x1b' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some('[') => {
                // Parameters and intermediates come before the final byte `@` to `~`.
                while let Some(&next) = chars.peek() {
                    if !matches!(next, '\x20'..='\x7e') {
                        break;
                    }
                    chars.next();
                    if matches!(next, '@'..='~') {
                        break;
                    }
                }
            }
            Some(']') => {
                // Up to BEL or ESC backslash.
                while let Some(next) = chars.next() {
                    if next == '\x07' {
                        break;
                    }
                    if next == '\x1b' {
                        chars.next();
                        break;
                    }
                }
            }
            Some(_) | None => {}
        }
    }
    plain
}

/// `text` as evidence quotes it: control characters replaced, cut at a character to [`MAX_LINE_BYTES`].
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(MAX_LINE_BYTES));
    for c in text.trim_end().chars() {
        let c = match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        };
        // Room for the mark of a cut.
        if shown.len() + c.len_utf8() > MAX_LINE_BYTES - '…'.len_utf8() {
            shown.push('…');
            break;
        }
        shown.push(c);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(log: &[u8], expected: &[(u64, &str)]) {
        let got: Vec<_> = lines(log).map(|line| (line.number, line.text.into_owned())).collect();
        let expected: Vec<_> = expected.iter().map(|&(n, text)| (n, text.to_owned())).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn lines_keep_their_numbers() {
        check(b"a\n\nb\r\nc", &[(1, "a"), (3, "b"), (4, "c")]);
        check(b"", &[]);
        check(
            b"10%\r20%\rFATAL: x\nend",
            &[(1, "10%"), (1, "20%"), (1, "FATAL: x"), (2, "end")],
        );
    }

    #[test]
    fn terminal_codes_go() {
        check(b"\x1b[1;31m[ERROR]\x1b[0m x", &[(1, "[ERROR] x")]);
        check(b"\x1b]0;title\x07y\x1b]8;;http://h\x1b\\z", &[(1, "yz")]);
        check(b"\x1bMup\x1b", &[(1, "up")]);
        check(b"\x1b[", &[(1, "")]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        check(b"a\xff\xfeb\0c", &[(1, "a\u{fffd}\u{fffd}b\0c")]);
        assert_eq!(printable("a\0b\tc  "), "a\u{fffd}b c");
    }

    #[test]
    fn long_lines_are_cut_at_a_character() {
        let shown = printable(&"é".repeat(1000));
        assert!(shown.len() <= MAX_LINE_BYTES && shown.ends_with("é…"));
    }
}
