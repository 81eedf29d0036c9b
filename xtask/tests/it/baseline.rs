//! Baselines: what accepting moves and refuses, and what is on disk.

use std::path::Path;

use xtask::baseline::{self, Baseline, Found, MoveKind, Reference, Refusal, Request};
use xtask::host_class::HostClass;
use xtask::record::{Expectation, Run, RunStatus};

use crate::compare::{BASE, accepted, request, scaled};
use crate::sweep::{With as _, id, record, repeats, run, with};

fn full() -> Run {
    let cases = [
        repeats("s/k@mode=decode", &BASE),
        vec![
            record("s/rings").heap(300 << 20, 512 << 20).tags(&["prefill", "slow"]),
            record("s/known")
                .outcome("deadlock/heap-ring")
                .expecting(Expectation::Met),
            record("s/crash").outcome("crash/exit-3"),
            record("s/skip").outcome("skipped/needs a \"device\", or two"),
        ],
    ];
    with(run("20261201-100000-ab12"), cases.concat())
}

#[test]
fn a_baseline_reads_back_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut written = accepted(&full());
    baseline::save(dir.path(), &written).unwrap();
    let stem = baseline::file_stem("host", &written.host, Reference::Accepted);
    let read = baseline::load(dir.path(), &stem).unwrap();
    // The file keeps four digits of the floor, and the expectation as met.
    for row in written.rows.values_mut() {
        row.noise_floor = row.noise_floor.map(|floor| (floor * 1e4).ceil() / 1e4);
    }
    assert_eq!(read, written);
    let csv = std::fs::read_to_string(dir.path().join(format!("{stem}.csv"))).unwrap();
    assert_eq!(csv.lines().count(), 1 + written.rows.len(), "one row a case");
    insta::assert_snapshot!(csv);
    insta::assert_snapshot!(std::fs::read_to_string(dir.path().join(format!("{stem}.toml"))).unwrap());
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Run), expected: &Refusal) {
    let mut now = full();
    now.provenance.run_id = "later".into();
    change(&mut now);
    let current = accepted(&full());
    let refusals = baseline::accept(Some(current.clone()), &now, &request()).unwrap_err();
    assert_eq!(refusals, std::slice::from_ref(expected));
    let because = Request {
        because: Some("shown to the team".into()),
        ..request()
    };
    let overruled = baseline::accept(Some(current), &now, &because);
    assert_eq!(overruled.is_ok(), expected.can_be_overruled());
    if let Ok(accepted) = overruled {
        assert_eq!(accepted.overruled, std::slice::from_ref(expected));
        let recorded = accepted.baseline.latest().unwrap().because.clone();
        assert_eq!(recorded.as_deref(), Some("shown to the team"));
    }
}

#[test]
fn what_speaks_against_a_run_is_named() {
    refused(
        |run| run.provenance.status = RunStatus::Incomplete,
        &Refusal::Incomplete(0),
    );
    refused(|run| run.provenance.planned.push(id("s/lost")), &Refusal::Incomplete(1));
    refused(
        |run| run.provenance.selection = vec!["k".into()],
        &Refusal::Filtered(vec!["k".into()]),
    );
    refused(|run| run.provenance.shard = Some((1, 2)), &Refusal::Shard(1, 2));
    refused(|run| run.provenance.git_dirty = Some(true), &Refusal::Dirty);
    refused(|run| run.provenance.git_dirty = None, &Refusal::Dirty);
    refused(
        |run| {
            run.provenance.overrides.insert("ring-heap".into(), "default".into());
        },
        &Refusal::Overridden(vec!["ring-heap=default".into()]),
    );
    refused(
        |run| {
            for record in &mut run.records {
                if record.case == id("s/rings") {
                    *record = record.clone().outcome("deadlock/heap-ring");
                }
            }
        },
        &Refusal::Worse(vec![id("s/rings")]),
    );
}

#[test]
fn nothing_is_accepted_for_no_reason_whatever() {
    let because = Request {
        because: Some("x".into()),
        ..request()
    };
    let refusals = baseline::accept(None, &run("empty"), &because).unwrap_err();
    assert_eq!(refusals, [Refusal::Nothing]);
}

#[test]
fn another_class_of_host_is_never_mixed_in() {
    let mut other = full();
    other.provenance.host.insert("cores".into(), "64".into());
    let because = Request {
        because: Some("x".into()),
        ..request()
    };
    let refusals = baseline::accept(Some(accepted(&full())), &other, &because).unwrap_err();
    assert_eq!(refusals[0], Refusal::OtherClass("cores: 2 → 64".into()));
}

#[test]
fn a_selection_moves_its_cases_only() {
    let mut now = full();
    now.provenance.run_id = "later".into();
    now.records.retain(|record| record.case != id("s/k@mode=decode"));
    now.records.extend(repeats("s/k@mode=decode", &scaled(1.3)));
    for record in &mut now.records {
        if record.case == id("s/rings") {
            *record = record.clone().heap(400 << 20, 512 << 20);
        }
    }
    let mut only = globset::GlobSetBuilder::new();
    only.add(globset::Glob::new("s/ri*").unwrap());
    let request = Request {
        selection: Some(only.build().unwrap()),
        typed: vec!["s/ri*".into()],
        ..request()
    };
    let before = accepted(&full());
    let after = baseline::accept(Some(before.clone()), &now, &request).unwrap();
    let moved: Vec<_> = after.moves.iter().map(|moved| moved.case.to_string()).collect();
    assert_eq!(moved, ["s/rings"]);
    assert_eq!(
        after.baseline.rows[&id("s/k@mode=decode")],
        before.rows[&id("s/k@mode=decode")]
    );
    assert_eq!(after.baseline.accepts.len(), 2, "rows of both runs are left");
    assert_eq!(after.baseline.latest().unwrap().selection, ["s/ri*"]);
}

#[test]
fn a_whole_run_drops_what_is_no_longer_declared_and_follows_renames() {
    let before = accepted(&full());
    let mut now = full();
    now.provenance.run_id = "later".into();
    now.records.retain(|record| record.case != id("s/crash"));
    for record in &mut now.records {
        if record.case == id("s/known") {
            record.case = id("s/renamed");
        }
    }
    now.provenance.planned = now.records.iter().map(|record| record.case.clone()).collect();
    let request = Request {
        renamed: vec![(id("s/known"), id("s/renamed"))],
        ..request()
    };
    let after = baseline::accept(Some(before), &now, &request).unwrap();
    let kinds: Vec<_> = after.moves.iter().map(ToString::to_string).collect();
    assert!(kinds.contains(&"- s/crash".to_owned()), "{kinds:?}");
    assert!(kinds.contains(&"~ s/renamed: was s/known".to_owned()), "{kinds:?}");
    assert!(
        !after
            .moves
            .iter()
            .any(|moved| matches!(moved.kind, MoveKind::Added { .. }))
    );
    assert!(!after.baseline.rows.contains_key(&id("s/known")));
}

#[test]
fn what_an_executable_does_by_itself_is_learnt_as_noise() {
    let before = accepted(&full());
    let mut now = full();
    now.provenance.run_id = "later".into();
    now.records.retain(|record| record.case != id("s/k@mode=decode"));
    now.records.extend(repeats("s/k@mode=decode", &scaled(1.08)));
    let after = baseline::accept(Some(before.clone()), &now, &request()).unwrap();
    let floor = after.baseline.rows[&id("s/k@mode=decode")].noise_floor.unwrap();
    assert!((floor - 1.08f64.ln()).abs() < 0.005, "{floor}");
    for record in &mut now.records {
        record.subject.kernel_hash = Some("cd".repeat(32));
    }
    let rebuilt = baseline::accept(Some(before), &now, &request()).unwrap();
    let floor = rebuilt.baseline.rows[&id("s/k@mode=decode")].noise_floor.unwrap();
    assert!(floor < 0.02, "another executable may be slower for a reason: {floor}");
}

#[test]
fn the_reference_is_of_this_class_or_said_to_be_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let find = |cores: &str, reference| {
        let mut facts = full().provenance.host;
        facts.insert("cores".into(), cores.into());
        baseline::find(dir.path(), "host", &HostClass::from_facts(&facts), reference).unwrap()
    };
    assert!(matches!(find("2", Reference::Accepted), Found::Nothing));
    let mut kept = accepted(&full());
    baseline::save(dir.path(), &kept).unwrap();
    assert!(matches!(find("2", Reference::Accepted), Found::SameClass(_)));
    assert!(matches!(find("64", Reference::Accepted), Found::OtherClass(_)));
    assert!(matches!(find("2", Reference::Release), Found::Nothing));
    kept.release = Some("v1".into());
    baseline::save(dir.path(), &kept).unwrap();
    let Found::SameClass(release) = find("2", Reference::Release) else {
        panic!("it was tagged");
    };
    assert!(release.label().starts_with("release v1"));
    assert!(matches!(find("2", Reference::Accepted), Found::SameClass(b) if b.release.is_none()));
}

fn formats() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/formats")
}

#[test]
fn every_released_format_still_loads() {
    let mut loaded = 0;
    for entry in std::fs::read_dir(formats().join("baseline")).unwrap() {
        let dir = entry.unwrap().path();
        let stem = std::fs::read_dir(&dir)
            .unwrap()
            .find_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".toml")?.to_owned()))
            .unwrap();
        let baseline: Baseline = baseline::load(&dir, &stem).unwrap();
        assert_eq!(baseline.rows.len(), 5, "{}", dir.display());
        assert_eq!(baseline.rows[&id("s/rings")].summary.tags, ["prefill", "slow"]);
        loaded += 1;
    }
    assert_eq!(loaded, 1, "one fixture per released format");
}

/// Copies the fixture, changes one text in one file and tells how it fails to load.
fn broken(ending: &str, from: &str, to: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut stem = String::new();
    for file in std::fs::read_dir(formats().join("baseline/1.0")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut text = std::fs::read_to_string(&path).unwrap();
        if name.ends_with(ending) {
            assert!(text.contains(from), "{from} in {name}");
            text = text.replacen(from, to, 1);
        }
        stem = name.rsplit_once('.').unwrap().0.to_owned();
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let error = baseline::load(dir.path(), &stem).unwrap_err();
    format!("{}", std::error::Error::source(&error).unwrap())
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    let check = |ending, from, to, expected: &str| {
        let error = broken(ending, from, to);
        assert!(error.contains(expected), "{error}");
    };
    check(".toml", "major = 1", "major = 2", "update the checkout");
    check(
        ".toml",
        "ringsweep-baseline",
        "something-else",
        "no baseline of ringsweep",
    );
    check(".toml", "platform = \"host\"", "platform = \"a5\"", "its name says");
    check(".toml", "20261201-100000-ab12", "another", "don't belong together");
    check(".csv", "s/known", "s/aaaa", "rows are sorted");
    check(".csv", "deadlock,heap-ring", "deadlock,heap", "unknown cause `heap`");
    check(".csv", ",device,", ",wall,", "unknown clock `wall`");
    check(".csv", "314572800", "many", "no list of whole numbers");
}

#[test]
fn a_newer_minor_is_read_and_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let baseline = accepted(&full());
    let [header, _] = baseline::save(dir.path(), &baseline).unwrap();
    let text = std::fs::read_to_string(&header).unwrap();
    let newer = text.replace("minor = 0", "minor = 7\nsomething_new = true");
    std::fs::write(&header, newer).unwrap();
    let stem = baseline::file_stem("host", &baseline.host, Reference::Accepted);
    baseline::load(dir.path(), &stem).unwrap();
    let error = baseline::save(dir.path(), &baseline).unwrap_err();
    assert!(
        std::error::Error::source(&error)
            .unwrap()
            .to_string()
            .contains("not written over")
    );
}
