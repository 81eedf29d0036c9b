//! Never green on nothing: whatever was lost or can't be compared has a verdict of its own.

use std::sync::Arc;

use xtask::compare::{self, LatencyVerdict, Standing};
use xtask::exit::Exit;
use xtask::gate;
use xtask::merge;
use xtask::record::Run;
use xtask::report::{Format, Report};

use crate::compare::{BASE, accepted, context, scaled};
use crate::gate::committed;
use crate::sweep::{id, record, repeats, run, with};

/// A sweep of three cases, one of them timed.
fn sweep(run_id: &str, medians: &[u64]) -> Run {
    let cases = [repeats("s/timed", medians), vec![record("s/b"), record("s/c")]];
    with(run(run_id), cases.concat())
}

/// What is wrong with the run, and the words by which gate and report must call it.
struct Loss {
    words: &'static str,
    exit: Exit,
    lose: fn(&mut Run),
}

const fn loss(words: &'static str, exit: Exit, lose: fn(&mut Run)) -> Loss {
    Loss { words, exit, lose }
}

const LOSSES: [Loss; 7] = [
    loss("no case of run now is in baseline", Exit::NotComparable, |run| {
        for record in &mut run.records {
            record.case = id(&format!("{}-renamed", record.case));
        }
        run.provenance.planned = run.records.iter().map(|record| record.case.clone()).collect();
    }),
    loss("holds no record", Exit::NothingSelected, |run| run.records.clear()),
    loss("holds no record", Exit::NothingSelected, |run| {
        run.records.clear();
        run.provenance.planned.clear();
    }),
    loss("missing: pass → missing", Exit::Incomplete, |run| {
        run.records.retain(|record| record.case.as_str() != "s/b");
    }),
    // The plan lost it too: only the baseline knows.
    loss("missing: pass → missing", Exit::Incomplete, |run| {
        run.records.retain(|record| record.case.as_str() != "s/b");
        run.provenance.planned.retain(|case| case.as_str() != "s/b");
    }),
    loss("1 of 3 planned cases have no record", Exit::Incomplete, |run| {
        run.records.retain(|record| record.case.as_str() != "s/c");
    }),
    loss("is for `host`, the run for `a5`", Exit::NotComparable, |run| {
        run.provenance.platform = "a5".into();
    }),
];

#[test]
fn what_was_lost_is_named_and_red_under_every_policy() {
    let baseline = accepted(&sweep("base", &BASE));
    for policy in ["ci", "release"] {
        for loss in LOSSES {
            let mut now = sweep("now", &scaled(1.0));
            (loss.lose)(&mut now);
            let comparison = compare::against_baseline(&now, &baseline, &context());
            let verdict = gate::decide(committed().policy(policy).unwrap(), &comparison, &now);
            assert!(!verdict.passed(), "{policy}: {}", loss.words);
            let told: Vec<String> = verdict.failures().map(|reason| reason.message.clone()).collect();
            assert!(
                told.iter().any(|told| told.contains(loss.words)),
                "{policy}: {} in {told:#?}",
                loss.words
            );
            // `release` has other objections too, which beat the exit code of a loss.
            if policy == "ci" {
                assert_eq!(verdict.exit, loss.exit, "{}", loss.words);
            }
            let mut out = Vec::new();
            let report = Report::new(&now, &comparison, Some(&verdict));
            report.render(Format::Table, &mut out).unwrap();
            let out = String::from_utf8(out).unwrap();
            assert!(out.contains("FAILED") && !out.contains("no regressions"), "{out}");
        }
    }
}

#[test]
fn a_lost_shard_and_another_runs_file_are_refused_by_name() {
    let mut shard = sweep("shard-1", &BASE);
    shard.provenance.shard = Some((1, 2));
    let refused = merge::merge(&[shard.clone()], "merged").unwrap_err();
    let refused: Vec<String> = refused.iter().map(ToString::to_string).collect();
    assert!(refused.contains(&"shard 2 of 2 is lost".to_owned()), "{refused:?}");
    // A shard alone, in place of the whole run.
    let comparison = compare::against_baseline(&shard, &accepted(&sweep("base", &BASE)), &context());
    let verdict = gate::decide(committed().policy("release").unwrap(), &comparison, &shard);
    assert!(
        verdict
            .failures()
            .any(|reason| reason.message == "the run is shard 1 of 2")
    );

    let now = sweep("now", &scaled(1.0));
    let records = r#"{"format":"ringsweep-results","major":1,"minor":0,"run_id":"yesterday"}"#;
    let error = xtask::format::read::parse_records(records.as_bytes(), &now.provenance.run_id).unwrap_err();
    assert!(error.to_string().contains("yesterday"), "{error}");
    let itself = compare::against_run(&now, &now, &context());
    assert_eq!(itself.standing, Standing::SameRun);
    assert!(!gate::decide(committed().policy("ci").unwrap(), &itself, &now).passed());
}

/// The verdict on `s/timed`, and whether the release gate takes it.
fn judged(base: impl Fn(&mut xtask::baseline::Baseline), now: &[u64]) -> (LatencyVerdict, bool) {
    let mut baseline = accepted(&sweep("base", &BASE));
    base(&mut baseline);
    let now = sweep("now", now);
    let comparison = compare::against_baseline(&now, &baseline, &context());
    let verdict = gate::decide(committed().policy("release").unwrap(), &comparison, &now);
    let red = verdict
        .failures()
        .any(|reason| reason.case.as_ref() == Some(&id("s/timed")));
    let diff = comparison.cases.iter().find(|diff| diff.case == id("s/timed")).unwrap();
    (diff.latency.clone(), red)
}

fn held(medians: &'static [f64]) -> impl Fn(&mut xtask::baseline::Baseline) {
    move |baseline| {
        let row = baseline.rows.get_mut(&id("s/timed")).unwrap();
        let summary = Arc::make_mut(&mut row.summary);
        summary.latency.as_mut().unwrap().run_medians_ns = medians.into();
    }
}

#[test]
fn numbers_that_say_nothing_are_undecided_with_their_reason_and_no_release() {
    let usual = scaled(1.0);
    let check = |(verdict, red): (LatencyVerdict, bool), words: &str| {
        let text = verdict.to_string();
        assert!(
            text.starts_with("undecided: ") && text.contains(words),
            "{words}: {text}"
        );
        assert!(red, "{words}: a release gate took it");
    };
    for (medians, words) in [
        (&[0.0, 1e6][..], "a sample is zero"),
        (&[1e6, f64::NAN], "NaN or infinite"),
        (&[f64::INFINITY, 1e6], "NaN or infinite"),
        (&[f64::NEG_INFINITY, 1e6], "NaN or infinite"),
        (&[5e-324, 1e6], "shorter than a nanosecond"),
        (&[-1e6, 1e6], "a sample is negative"),
        (&[1e6], "too few runs"),
    ] {
        check(judged(held(medians), &usual), words);
    }
    let unit = |baseline: &mut xtask::baseline::Baseline| {
        baseline.rows.get_mut(&id("s/timed")).unwrap().unit = "us".into();
    };
    check(judged(unit, &usual), "another unit: us");
    check(judged(|_| {}, &BASE), "identical samples");
    check(judged(|_| {}, &usual[..1]), "too few runs: 1 against 8");

    let one = |run_id: &str, ns: u64| with(run(run_id), [crate::sweep::With::samples(record("s/timed"), &[ns])]);
    let comparison = compare::against_baseline(&one("now", 1_010), &accepted(&one("base", 1_000)), &context());
    assert!(
        comparison.cases[0]
            .latency
            .to_string()
            .contains("one sample on each side")
    );
}
