//! Puts the shards of one sweep together.
//!
//! A merged run equals the unsharded one record for record. What keeps shards from being parts of one
//! sweep is refused by name: nothing is patched up, and no shard is taken for another.

use std::collections::{BTreeMap, BTreeSet};

use crate::case_id::CaseId;
use crate::record::{Provenance, Run, RunStatus};

/// Why runs are no shards of one sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Nothing to merge.
    #[error("there is nothing to merge")]
    Nothing,
    /// A run that is no shard.
    #[error("run `{0}` is no shard: it was swept whole")]
    NotAShard(String),
    /// Shards of different cuts.
    #[error("run `{run}` is shard {index} of {count}, the first is of {of}: these are two different cuts")]
    OtherCut {
        /// The run.
        run: String,
        /// Its index.
        index: u32,
        /// Its count.
        count: u32,
        /// The count of the first.
        of: u32,
    },
    /// Shards that are not there.
    #[error("shard {} of {count} is lost", list(.lost))]
    Lost {
        /// Their indices.
        lost: Vec<u32>,
        /// Of how many.
        count: u32,
    },
    /// One shard twice.
    #[error("runs `{first}` and `{second}` are both shard {index}")]
    Duplicate {
        /// The shard.
        index: u32,
        /// The first run.
        first: String,
        /// The second run.
        second: String,
    },
    /// A shard of another sweep.
    #[error("run `{run}` is of another sweep: its {fact} is `{found}`, that of `{first}` is `{expected}`")]
    Foreign {
        /// The run.
        run: String,
        /// What differs.
        fact: &'static str,
        /// Its value.
        found: String,
        /// The run that it was held against.
        first: String,
        /// The value there.
        expected: String,
    },
    /// A shard that was not finished.
    #[error("run `{run}` (shard {index}) is incomplete: {missing} of its cases have no record; resume it first")]
    Incomplete {
        /// The run.
        run: String,
        /// Its index.
        index: u32,
        /// Cases without a record.
        missing: usize,
    },
    /// A case in two shards.
    #[error("case `{case}` is in shards {first} and {second}")]
    CaseTwice {
        /// The case.
        case: CaseId,
        /// Index of the first.
        first: u32,
        /// Index of the second.
        second: u32,
    },
    /// A record of a case that its shard didn't plan.
    #[error("run `{run}` has a record of `{case}`, which it didn't plan")]
    Unplanned {
        /// The run.
        run: String,
        /// The case.
        case: CaseId,
    },
}

fn list(indices: &[u32]) -> String {
    indices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The whole run, under the id `run_id`; every problem is returned, not just the first.
pub fn merge(shards: &[Run], run_id: &str) -> Result<Run, Vec<MergeError>> {
    let Some(first) = shards.first() else {
        return Err(vec![MergeError::Nothing]);
    };
    let mut errors = Vec::new();
    let mut by_index: BTreeMap<u32, &Run> = BTreeMap::new();
    let of = first.provenance.shard.map_or(1, |(_, count)| count);
    for run in shards {
        let id = run.provenance.run_id.clone();
        let Some((index, count)) = run.provenance.shard else {
            errors.push(MergeError::NotAShard(id));
            continue;
        };
        if count != of {
            errors.push(MergeError::OtherCut {
                run: id,
                index,
                count,
                of,
            });
            continue;
        }
        errors.extend(foreign(&first.provenance, &run.provenance));
        let missing = run.missing().len();
        if run.provenance.status == RunStatus::Incomplete || missing > 0 {
            errors.push(MergeError::Incomplete {
                run: id.clone(),
                index,
                missing,
            });
        }
        if let Some(before) = by_index.insert(index, run) {
            errors.push(MergeError::Duplicate {
                index,
                first: before.provenance.run_id.clone(),
                second: id,
            });
        }
    }
    let lost: Vec<u32> = (1..=of).filter(|index| !by_index.contains_key(index)).collect();
    if !lost.is_empty() {
        errors.push(MergeError::Lost { lost, count: of });
    }
    errors.extend(overlaps(&by_index));
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(joined(&by_index, run_id))
}

/// Facts in which two parts of one sweep can't differ.
fn foreign(first: &Provenance, other: &Provenance) -> Vec<MergeError> {
    let texts = |p: &Provenance| -> [(&'static str, String); 8] {
        let map = |map: &BTreeMap<String, String>| {
            let pairs: Vec<String> = map.iter().map(|(name, value)| format!("{name}={value}")).collect();
            pairs.join(" ")
        };
        [
            ("matrix hash", p.matrix_hash.clone()),
            ("commit", p.git_commit.clone().unwrap_or_else(|| "unknown".into())),
            ("platform", p.platform.clone()),
            (
                "host class",
                crate::host_class::HostClass::from_facts(&p.host).to_string(),
            ),
            ("seed", p.seed.to_string()),
            ("selection", p.selection.join(" ")),
            ("set of overrides", map(&p.overrides)),
            ("toolchain", p.toolchain.clone()),
        ]
    };
    let pairs = texts(first).into_iter().zip(texts(other));
    pairs
        .filter(|((_, expected), (_, found))| expected != found)
        .map(|((fact, expected), (_, found))| MergeError::Foreign {
            run: other.run_id.clone(),
            fact,
            found,
            first: first.run_id.clone(),
            expected,
        })
        .collect()
}

fn overlaps(shards: &BTreeMap<u32, &Run>) -> Vec<MergeError> {
    let mut errors = Vec::new();
    let mut owner: BTreeMap<&CaseId, u32> = BTreeMap::new();
    for (&index, run) in shards {
        let planned: BTreeSet<&CaseId> = run.provenance.planned.iter().collect();
        for &case in &planned {
            if let Some(first) = owner.insert(case, index) {
                errors.push(MergeError::CaseTwice {
                    case: case.clone(),
                    first,
                    second: index,
                });
            }
        }
        let strangers: BTreeSet<&CaseId> = run
            .records
            .iter()
            .map(|record| &record.case)
            .filter(|case| !planned.contains(case))
            .collect();
        errors.extend(strangers.into_iter().map(|case| MergeError::Unplanned {
            run: run.provenance.run_id.clone(),
            case: case.clone(),
        }));
    }
    errors
}

fn joined(shards: &BTreeMap<u32, &Run>, run_id: &str) -> Run {
    let all = || shards.values().map(|run| &run.provenance);
    let first = shards.values().next().expect("the caller has at least one shard");
    let mut provenance = first.provenance.clone();
    let others: usize = all().map(|p| p.planned.len()).sum::<usize>() - provenance.planned.len();
    provenance.run_id = run_id.into();
    // RFC 3339 in UTC sorts as text.
    provenance.started = all().map(|p| p.started.clone()).min().unwrap_or_default();
    provenance.ended = all().map(|p| p.ended.clone()).max().flatten();
    let dirty: Option<Vec<bool>> = all().map(|p| p.git_dirty).collect();
    provenance.git_dirty = dirty.map(|dirty| dirty.contains(&true));
    provenance.planned = all().flat_map(|p| p.planned.iter().cloned()).collect();
    provenance.planned.sort();
    // A shard counts what the other shards have among what it left out.
    provenance.deselected = provenance.deselected.saturating_sub(others);
    provenance.shard = None;
    let mut records: Vec<_> = shards.values().flat_map(|run| run.records.iter().cloned()).collect();
    records.sort_by(|a, b| (&a.case, a.repeat, a.attempt).cmp(&(&b.case, b.repeat, b.attempt)));
    Run { provenance, records }
}
