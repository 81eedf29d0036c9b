//! Killed, resumed and closed runs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::outcome::Outcome;
use crate::record::{Evidence, Expectation, PhaseTimes, RingRecord, Subject};

fn provenance(planned: &[&str]) -> Provenance {
    Provenance {
        run_id: "20261201T100000Z".into(),
        started: "2026-12-01T10:00:00Z".into(),
        ended: None,
        status: RunStatus::Complete,
        command_line: vec!["xtask".into(), "sweep".into()],
        harness_version: "0.1.0".into(),
        matrix_hash: "00".into(),
        planned: planned.iter().map(|id| id.parse().unwrap()).collect(),
        deselected: 0,
        selection: Vec::new(),
        shard: None,
        seed: 0,
        git_commit: None,
        git_dirty: None,
        platform: "host".into(),
        host: BTreeMap::new(),
        toolchain: "rustc".into(),
        environment: BTreeMap::new(),
        overrides: BTreeMap::new(),
    }
}

fn record(case: &str) -> CaseRecord {
    CaseRecord {
        case: case.parse().unwrap(),
        attempt: 1,
        repeat: 0,
        outcome: Outcome::Pass,
        evidence: Evidence::default(),
        expectation: Expectation::None,
        rings: RingRecord::default(),
        latency: None,
        phases: PhaseTimes {
            total: Duration::from_millis(5),
            ..PhaseTimes::default()
        },
        declared_memory_bytes: None,
        peak_memory_bytes: None,
        work: None,
        subject: Subject::default(),
        log: None,
    }
}

#[test]
fn a_run_is_incomplete_until_it_is_closed() {
    let root = tempfile::tempdir().unwrap();
    let mut run = RunDir::create(root.path(), provenance(&["s/a", "s/b"])).unwrap();
    run.append(&record("s/a")).unwrap();
    let path = run.path().to_owned();
    let read = format::read::run(&path).unwrap();
    assert_eq!((read.provenance.status, read.records.len()), (RunStatus::Incomplete, 1));

    run.append(&record("s/b")).unwrap();
    let closed = run.close("2026-12-01T10:05:00Z".into(), RunStatus::Complete).unwrap();
    assert_eq!(
        (closed.provenance.status, closed.records.len()),
        (RunStatus::Complete, 2)
    );
    let csv = fs::read_to_string(path.join("results.csv")).unwrap();
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.lines().nth(1).unwrap().starts_with("s/a,pass,,,1,1,0,"), "{csv}");
}

#[test]
fn a_run_that_claims_to_be_complete_but_lacks_a_case_is_not() {
    let root = tempfile::tempdir().unwrap();
    let mut run = RunDir::create(root.path(), provenance(&["s/a", "s/b"])).unwrap();
    run.append(&record("s/b")).unwrap();
    let closed = run.close("2026-12-01T10:05:00Z".into(), RunStatus::Complete).unwrap();
    assert_eq!(closed.provenance.status, RunStatus::Incomplete);
    assert_eq!(closed.missing().len(), 1);
}

#[test]
fn a_killed_run_is_taken_up_where_its_records_end() {
    let root = tempfile::tempdir().unwrap();
    let mut run = RunDir::create(root.path(), provenance(&["s/a", "s/b"])).unwrap();
    run.append(&record("s/a")).unwrap();
    // A kill in the middle of the second record.
    run.records.write_all(b"{\"case\":\"s/b\",\"att").unwrap();
    let id = run.provenance().run_id.clone();
    drop(run);

    for name in [id.as_str(), "latest"] {
        let (_, before) = RunDir::resume(root.path(), name).unwrap();
        assert_eq!(before.records.len(), 1);
    }
    let (mut resumed, _) = RunDir::resume(root.path(), "latest").unwrap();
    resumed.append(&record("s/b")).unwrap();
    let closed = resumed
        .close("2026-12-01T10:05:00Z".into(), RunStatus::Complete)
        .unwrap();
    assert_eq!(
        (closed.provenance.status, closed.records.len()),
        (RunStatus::Complete, 2)
    );
    let error = RunDir::resume(root.path(), "yesterday").unwrap_err().to_string();
    assert!(error.contains("no run `yesterday`") && error.contains(&id), "{error}");
}

#[test]
fn two_runs_of_the_same_second_have_directories_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    let first = RunDir::create(root.path(), provenance(&[])).unwrap();
    let second = RunDir::create(root.path(), provenance(&[])).unwrap();
    assert_eq!(second.provenance().run_id, "20261201T100000Z-2");
    assert_ne!(first.path(), second.path());
}

#[test]
fn the_latest_run_is_the_one_that_was_started_last_whatever_its_name() {
    let root = tempfile::tempdir().unwrap();
    let started = |id: &str, started: &str| {
        let provenance = Provenance {
            run_id: id.into(),
            started: started.into(),
            ..provenance(&[])
        };
        RunDir::create(root.path(), provenance).unwrap().path().to_owned()
    };
    assert_eq!(latest(root.path()).unwrap(), None);
    // Earlier versions wrote whole seconds.
    let whole = started("20261201T100000Z-host-ffffffff", "2026-12-01T10:00:00Z");
    assert_eq!(latest(root.path()).unwrap(), Some(whole));
    let second = started("20261201T100000Z-host-eeeeeeee", "2026-12-01T10:00:00.25Z");
    assert_eq!(latest(root.path()).unwrap(), Some(second));
    let third = started("20261201T100000Z-host-aaaaaaaa", "2026-12-01T10:00:00.250001Z");
    // The clock stepped back, and files of others lie about.
    started("20261201T100000Z-host-eeeeeeee", "2026-12-01T09:59:59.9Z");
    std::fs::create_dir(root.path().join("runs/zz")).unwrap();
    std::fs::write(root.path().join("runs/zzz"), "").unwrap();
    assert_eq!(latest(root.path()).unwrap(), Some(third.clone()));
    assert_eq!(find(root.path(), "latest").unwrap(), third);
    assert_eq!(find(root.path(), "20261201T100000Z-host-aaaaaaaa").unwrap(), third);
    assert_eq!(find(root.path(), third.to_str().unwrap()).unwrap(), third);
    let error = find(root.path(), "zz").unwrap_err().to_string();
    assert!(error.ends_with("the newest are 20261201T100000Z-host-aaaaaaaa, 20261201T100000Z-host-eeeeeeee, 20261201T100000Z-host-ffffffff"), "{error}");
}

#[test]
fn attempts_have_files_of_their_own_whatever_the_id() {
    let root = tempfile::tempdir().unwrap();
    let run = RunDir::create(root.path(), provenance(&[])).unwrap();
    let long: CaseId = format!("s/case@axis={}", "v".repeat(300)).parse().unwrap();
    let short: CaseId = "s/case".parse().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for case in [&long, &short] {
        for (repeat, attempt) in [(0, 1), (0, 2), (1, 1), (11, 1)] {
            let paths = run.attempt(case, repeat, attempt);
            File::create(&paths.log).unwrap();
            assert!(seen.insert(run.relative(&paths.log)));
        }
    }
    assert!(seen.contains("logs/s__case.repeat1.log"), "{seen:?}");
}
