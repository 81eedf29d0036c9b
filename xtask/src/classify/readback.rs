//! Ring sizes that a runtime reports: its log line, and the first line of its scope statistics.

use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;

use super::line::lines;
use crate::record::ResourceSizes;

/// Most different sets of sizes that are kept of one log.
const KEPT: usize = 8;

static RING_LINE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"Ring buffer sizes: +task_window=\[([^\]]*)\] +heap=\[([^\]]*)\](?: +dep_pool=\[([^\]]*)\])?")
        .expect("the pattern is constant and tested")
});

/// The sizes in a `Ring buffer sizes: task_window=[..] heap=[..] dep_pool=[..]` line.
///
/// A runtime with one ring prints one number; it stands for the four. One without a dependency pool prints none: 0.
pub fn parse_ring_line(line: &str) -> Option<ResourceSizes> {
    let found = RING_LINE.captures(line)?;
    let list = |group: usize| found.get(group).map_or(Some([0; 4]), |text| four(text.as_str()));
    Some(ResourceSizes {
        task_window: list(1)?,
        heap: list(2)?,
        dep_pool: list(3)?,
    })
}

fn four(text: &str) -> Option<[u64; 4]> {
    let numbers: Option<Vec<u64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
    match numbers?.as_slice() {
        [all] => Some([*all; 4]),
        [a, b, c, d] => Some([*a, *b, *c, *d]),
        _ => None,
    }
}

/// Every different set of sizes that a log reports, with the line of its first report.
///
/// One dispatch with other sizes is enough to make a second entry: the benchmark dispatch counts as much as the first.
pub fn ring_sizes(log: &[u8]) -> Vec<(u64, ResourceSizes)> {
    let mut found: Vec<(u64, ResourceSizes)> = Vec::new();
    for line in lines(log) {
        if let Some(sizes) = parse_ring_line(&line.text)
            && found.len() < KEPT
            && found.iter().all(|(_, known)| *known != sizes)
        {
            found.push((line.number, sizes));
        }
    }
    found
}

/// The part of a scope statistics header that holds sizes.
#[derive(Deserialize)]
struct ScopeStatsHeader {
    version: u32,
    task_window_max: [u64; 4],
    heap_max: [u64; 4],
    dep_pool_max: [u64; 4],
}

/// The only schema version whose header is known.
const SCOPE_STATS_VERSION: u32 = 6;

/// Why sizes can't be read back.
#[derive(Debug, thiserror::Error)]
pub enum ReadBackError {
    /// An empty file.
    #[error("scope statistics are empty")]
    Empty,
    /// The first line is no header.
    #[error("the first line of the scope statistics is no header")]
    Header(#[source] serde_json::Error),
    /// A schema that may mean something else.
    #[error("scope statistics of version {0}: version {SCOPE_STATS_VERSION} is known")]
    Version(u32),
}

/// The sizes in the first line of a scope statistics file.
pub fn parse_scope_stats(file: &[u8]) -> Result<ResourceSizes, ReadBackError> {
    let first = file
        .split(|&byte| byte == b'\n')
        .find(|line| !line.trim_ascii().is_empty())
        .ok_or(ReadBackError::Empty)?;
    let header: ScopeStatsHeader = serde_json::from_slice(first).map_err(ReadBackError::Header)?;
    if header.version != SCOPE_STATS_VERSION {
        return Err(ReadBackError::Version(header.version));
    }
    Ok(ResourceSizes {
        heap: header.heap_max,
        task_window: header.task_window_max,
        dep_pool: header.dep_pool_max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_line_is_read_behind_any_prefix() {
        let line = "[mono_ns=1][T0xa][INFO] f: [x.cpp:5] Ring buffer sizes: task_window=[4, 8, 16, 32] heap=[1024, 2048, 4096, 8192] dep_pool=[4, 5, 6, 7]";
        let sizes = parse_ring_line(line).unwrap();
        assert_eq!(sizes.task_window, [4, 8, 16, 32]);
        assert_eq!(sizes.heap, [1024, 2048, 4096, 8192]);
        assert_eq!(sizes.dep_pool, [4, 5, 6, 7]);
    }

    #[test]
    fn one_ring_stands_for_four_and_a_hint_is_no_report() {
        let one = parse_ring_line("Ring buffer sizes: task_window=[64] heap=[4096]").unwrap();
        assert_eq!((one.task_window, one.heap, one.dep_pool), ([64; 4], [4096; 4], [0; 4]));
        assert_eq!(parse_ring_line("the 'Ring buffer sizes:' line above reports"), None);
        assert_eq!(parse_ring_line("Ring buffer sizes: task_window=[1, 2] heap=[1]"), None);
    }

    #[test]
    fn a_dispatch_with_other_sizes_is_seen() {
        let same = "Ring buffer sizes: task_window=[4] heap=[2048] dep_pool=[4]";
        let log = format!("{same}\n{same}\nx\n{}\n", same.replace("2048", "1024"));
        let found = ring_sizes(log.as_bytes());
        assert_eq!(
            found
                .iter()
                .map(|(line, sizes)| (*line, sizes.heap[0]))
                .collect::<Vec<_>>(),
            [(1, 2048), (4, 1024)]
        );
    }

    #[test]
    fn scope_statistics_carry_sizes() {
        let header = r#"{"version": 6, "fatal": false, "total": 4, "task_window_max": [4,4,4,8], "heap_max": [1024,1024,1024,1024], "dep_pool_max": [4,4,4,4], "tensormap_max": 65536}"#;
        assert_eq!(parse_scope_stats(header.as_bytes()).unwrap().task_window[3], 8);
        let newer = header.replace("\"version\": 6", "\"version\": 7");
        assert!(matches!(
            parse_scope_stats(newer.as_bytes()),
            Err(ReadBackError::Version(7))
        ));
        assert!(matches!(parse_scope_stats(b"\n"), Err(ReadBackError::Empty)));
        assert!(matches!(parse_scope_stats(b"{}"), Err(ReadBackError::Header(_))));
    }
}
