//! Peak memory of this process.

/// Peak resident set, in bytes: `VmHWM` of `/proc/self/status`; `None` where there is no such file.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn parse(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    // The file says "kB" and means 1024 bytes.
    value
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_high_water_line_is_found() {
        assert_eq!(
            super::parse("VmPeak:\t  9 kB\nVmHWM:\t    12345 kB\n"),
            Some(12_345 * 1024)
        );
        assert_eq!(super::parse("VmHWM:\t12 pages\n"), None);
        assert_eq!(super::parse(""), None);
    }
}
