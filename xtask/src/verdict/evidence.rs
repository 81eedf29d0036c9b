//! What supervision adds to evidence.

use crate::detector::{self, Detector};
use crate::process::Ended;
use crate::record::{Evidence, ResourceSizes};

/// Most processes of a tree that a summary names.
const NAMED: usize = 4;

/// Says what the attempt left behind.
pub(super) fn add_supervision(evidence: &mut Evidence, ended: &Ended) {
    if !ended.leaked() || !detector::sees(&Detector::Leak) {
        return;
    }
    let names: Vec<String> = ended
        .survivors
        .iter()
        .take(NAMED)
        .map(|survivor| {
            let stuck = if survivor.unkillable {
                ", which KILL did not end"
            } else {
                ""
            };
            format!("{} `{}`{stuck}", survivor.process.pid, survivor.process.command)
        })
        .collect();
    let what = match (ended.survivors.len(), names.as_slice()) {
        (0, _) => "something that held its output".to_owned(),
        (1, names) => format!("process {}", names.join("")),
        (n, names) => format!(
            "{n} processes: {}{}",
            names.join(", "),
            if n > NAMED { ", …" } else { "" }
        ),
    };
    evidence.fallout.push(format!("leaked {what}"));
}

/// Names the processes that ran when the supervisor ended the attempt.
pub(super) fn add_tree(evidence: &mut Evidence, ended: &Ended) {
    let shown: Vec<String> = ended
        .tree
        .iter()
        .take(NAMED)
        .map(|process| format!("{} {} `{}`", process.pid, process.state, process.command))
        .collect();
    if !shown.is_empty() {
        let more = ended.tree.len().saturating_sub(NAMED);
        let more = if more > 0 {
            format!(", and {more} more")
        } else {
            String::new()
        };
        evidence
            .summary
            .push_str(&format_args!("; processes: {}{more}", shown.join(", ")).to_string());
    }
}

/// The first value in which `got` differs from `asked`: resource, ring, asked, got.
pub(super) fn first_difference(asked: &ResourceSizes, got: &ResourceSizes) -> Option<(&'static str, usize, u64, u64)> {
    let resources = [
        ("heap", asked.heap, got.heap),
        ("task_window", asked.task_window, got.task_window),
        ("dep_pool", asked.dep_pool, got.dep_pool),
    ];
    resources.into_iter().find_map(|(name, asked, got)| {
        let ring = (0..4).find(|ring| asked[*ring] != got[*ring])?;
        Some((name, ring, asked[ring], got[ring]))
    })
}
