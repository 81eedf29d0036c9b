//! Untrusted text made harmless for each medium.

use std::fmt::Write as _;

/// One line of plain text: no control characters, no escape sequences, nothing that GitHub's log
/// viewer takes for a command (`::` at the start of a line, `##[` anywhere).
pub fn plain(text: &str) -> String {
    // Most texts are harmless as they are, and a large sweep has millions of them.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !text.contains("##[") && !text.contains("::") {
        return text.to_owned();
    }
    let line: String = text.chars().map(visible).collect();
    let line = line.replace("##[", "## [");
    match line.trim_start().strip_prefix("::") {
        Some(rest) => format!(": :{rest}"),
        None => line,
    }
}

/// The character, or a sign that there was one that can't be shown.
fn visible(c: char) -> char {
    match c {
        '\t' | '\n' | '\r' => ' ',
        c if c.is_control() || is_format(c) => '\u{fffd}',
        c => c,
    }
}

/// Invisible characters that reorder or hide what stands beside them.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A cell of a Markdown table, or a piece of running Markdown: nothing in it is markup, a link or a mention.
pub(super) fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in plain(text).chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            // As entities, since a backslash escapes none of these in every renderer and place.
            '|' | '`' | '$' => {
                let _ = write!(escaped, "&#{};", c as u32);
            }
            '\\' | '*' | '_' | '[' | ']' | '!' | '~' => {
                escaped.push('\\');
                escaped.push(c);
            }
            // GitHub looks for mentions and issues in the rendered text, where no escape is left: a
            // comment splits that text.
            '@' | '#' => {
                escaped.push(c);
                escaped.push_str(SPLIT);
            }
            c => escaped.push(c),
        }
    }
    escaped
        .replace("://", &format!(":{SPLIT}//"))
        .replace("www.", &format!("www{SPLIT}."))
}

/// Shows nothing, and keeps what stands on its sides from being read together.
const SPLIT: &str = "<!-- -->";

/// A cell that no spreadsheet takes for a formula.
pub(super) fn spreadsheet(text: &str) -> String {
    let text = plain(text);
    if text.trim_start().starts_with(['=', '+', '-', '@', '|', '%']) {
        return format!("'{text}");
    }
    text
}

/// The message of a workflow command.
pub(super) fn command_message(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(plain).collect();
    lines
        .join("\n")
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// A property of a workflow command.
pub(super) fn command_property(text: &str) -> String {
    command_message(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_one_inert_line() {
        assert_eq!(plain("a\x1b[31mred\nb"), "a\u{fffd}[31mred b");
        assert_eq!(plain("  ::error file=x::boom"), ": :error file=x::boom");
        assert_eq!(plain("x ##[group]y"), "x ## [group]y");
        assert_eq!(plain("std::vec is fine"), "std::vec is fine");
        assert_eq!(plain("\u{202e}gnp.exe"), "\u{fffd}gnp.exe");
        assert_eq!(plain("as it is: 50 % [a] <b>"), "as it is: 50 % [a] <b>");
    }

    #[test]
    fn markdown_has_no_markup_left() {
        let text = markdown("a|b `c` <img src=x> [l](https://x) @someone **b** $1$");
        for token in ["|", "`", "<i", "@s", "://", "$"] {
            assert!(!text.contains(token), "{token} in {text}");
        }
        assert!(text.contains("\\*\\*b\\*\\*") && text.contains("\\[l\\]("));
    }

    #[test]
    fn formulas_are_text() {
        assert_eq!(spreadsheet("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(spreadsheet(" @SUM(1)"), "' @SUM(1)");
        assert_eq!(spreadsheet("-1+1"), "'-1+1");
        assert_eq!(spreadsheet("ring 1"), "ring 1");
    }

    #[test]
    fn a_command_cannot_start_another() {
        assert_eq!(command_message("50 %\n::set-output::x"), "50 %25%0A: :set-output::x");
        assert_eq!(command_property("a,b:c"), "a%2Cb%3Ac");
    }
}
