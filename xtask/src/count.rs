//! Numbers of things, as people write them.

/// `1 case`, `2 cases`, `0 cases`.
pub fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
