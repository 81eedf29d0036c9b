//! Shards put together, and what is no shard.

use xtask::merge::{MergeError, merge};
use xtask::record::{Run, RunStatus};

use crate::compare::{BASE, scaled};
use crate::sweep::{With as _, id, record, repeats, run, with};

/// The unsharded run.
fn whole() -> Run {
    let cases = [
        repeats("s/a", &BASE[..3]),
        vec![record("s/b"), record("s/c").outcome("deadlock/heap-ring")],
        repeats("s/d", &scaled(1.0)[..3]),
        vec![record("s/e")],
    ];
    with(run("whole"), cases.concat())
}

/// Shard `index` of 2: every second case.
fn shard(index: u32) -> Run {
    let whole = whole();
    let mut shard = whole.clone();
    shard.provenance.run_id = format!("shard-{index}");
    shard.provenance.shard = Some((index, 2));
    let of_shard = |case: &xtask::case_id::CaseId| {
        let at = whole
            .provenance
            .planned
            .iter()
            .position(|planned| planned == case)
            .unwrap();
        at as u32 % 2 == index - 1
    };
    shard.provenance.planned.retain(of_shard);
    shard.provenance.deselected = whole.provenance.planned.len() - shard.provenance.planned.len();
    shard.records.retain(|record| of_shard(&record.case));
    shard
}

#[test]
fn merged_shards_equal_the_whole_run_record_for_record() {
    let merged = merge(&[shard(2), shard(1)], "whole").unwrap();
    assert_eq!(merged, whole());
    assert!(merged.covers_whole_matrix());
}

#[track_caller]
fn refused(shards: &[Run], expected: &str) {
    let errors = merge(shards, "merged").unwrap_err();
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.iter().any(|error| error == expected), "{errors:#?}");
}

#[test]
fn what_is_not_one_sweep_is_refused_by_name() {
    refused(&[shard(1)], "shard 2 of 2 is lost");
    refused(&[shard(1), shard(1)], "runs `shard-1` and `shard-1` are both shard 1");
    refused(&[whole()], "run `whole` is no shard: it was swept whole");
    let mut other = shard(2);
    other.provenance.shard = Some((2, 3));
    refused(
        &[shard(1), other],
        "run `shard-2` is shard 2 of 3, the first is of 2: these are two different cuts",
    );
    let mut other = shard(2);
    other.provenance.matrix_hash = "bb".repeat(32);
    let expected = format!(
        "run `shard-2` is of another sweep: its matrix hash is `{}`, that of `shard-1` is `{}`",
        "bb".repeat(32),
        "aa".repeat(32)
    );
    refused(&[shard(1), other], &expected);
    let mut other = shard(2);
    other.provenance.git_commit = None;
    assert!(matches!(
        merge(&[shard(1), other], "x").unwrap_err()[..],
        [MergeError::Foreign { fact: "commit", .. }]
    ));
    let mut other = shard(2);
    other.provenance.status = RunStatus::Incomplete;
    other.records.clear();
    refused(
        &[shard(1), other],
        "run `shard-2` (shard 2) is incomplete: 2 of its cases have no record; resume it first",
    );
    let mut other = shard(2);
    other.provenance.planned.push(id("s/a"));
    other.records.extend(repeats("s/a", &BASE[..1]));
    refused(&[shard(1), other], "case `s/a` is in shards 1 and 2");
    let mut other = shard(2);
    other.records.push(record("s/z"));
    refused(
        &[shard(1), other],
        "run `shard-2` has a record of `s/z`, which it didn't plan",
    );
    refused(&[], "there is nothing to merge");
}
