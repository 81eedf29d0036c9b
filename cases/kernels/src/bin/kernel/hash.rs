//! Content hash of this executable: what was measured, whatever its path and time stamp say.

/// BLAKE3 of the running executable in hex; `None` where it can't be read.
pub(crate) fn of_this_executable() -> Option<String> {
    let bytes = std::fs::read(std::env::current_exe().ok()?).ok()?;
    Some(blake3::hash(&bytes).to_hex().to_string())
}
