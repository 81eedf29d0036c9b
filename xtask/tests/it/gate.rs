//! What the policies make of runs: a red gate for every kind of finding.

use xtask::compare::{self, Confirmation};
use xtask::exit::Exit;
use xtask::gate::{self, Action, Fact, GateFile, GateFileError, GateVerdict, Kind, Policy, Surroundings};
use xtask::record::{CaseRecord, Expectation, Run, RunStatus};

use crate::compare::{BASE, accepted, context, scaled};
use crate::sweep::{With as _, id, record, repeats, run, with};

/// The committed gate file.
pub(crate) fn committed() -> GateFile {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/gate.toml");
    GateFile::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn policy(name: &str) -> Policy {
    committed().policy(name).unwrap().clone()
}

/// A policy that fails on everything, so that each finding shows as red.
fn strict() -> Policy {
    let file = GateFile::parse("[policy.strict]\ndefault = 'fail'\n").unwrap();
    file.policy("strict").unwrap().clone()
}

fn gate(policy: &Policy, base: &Run, now: &Run) -> GateVerdict {
    let comparison = compare::against_baseline(now, &accepted(base), &context());
    gate::decide(policy, &comparison, now)
}

fn failing(verdict: &GateVerdict) -> Vec<&'static str> {
    verdict.failures().map(|reason| reason.kind.token()).collect()
}

/// A scenario: what the baseline holds and what the run says of `s/k`; `s/other` passes on both sides.
struct Scene {
    kind: Kind,
    base: Vec<CaseRecord>,
    now: Vec<CaseRecord>,
    change_run: fn(&mut Run),
}

fn scene(kind: Kind, base: Vec<CaseRecord>, now: Vec<CaseRecord>) -> Scene {
    Scene {
        kind,
        base,
        now,
        change_run: |_| {},
    }
}

fn of_run(kind: Kind, change_run: fn(&mut Run)) -> Scene {
    Scene {
        change_run,
        ..scene(kind, vec![record("s/k")], vec![record("s/k")])
    }
}

fn scenes() -> Vec<Scene> {
    let k = || record("s/k");
    let ending = |text: &str| vec![k().outcome(text)];
    let pass = || vec![k()];
    let timed = |medians: &[u64]| repeats("s/k", medians);
    let heap = |high: u64, capacity: u64| vec![k().heap(high << 20, capacity << 20)];
    let declared = |make| vec![k().outcome("deadlock/heap-ring").expecting(make)];
    vec![
        scene(Kind::Regressed, pass(), ending("deadlock/heap-ring")),
        scene(Kind::Missing, pass(), vec![]),
        scene(
            Kind::ChangedCause,
            ending("deadlock/heap-ring"),
            ending("deadlock/scope"),
        ),
        scene(Kind::NewFailing, vec![], ending("nan/output")),
        scene(
            Kind::Expired,
            ending("deadlock/heap-ring"),
            declared(Expectation::Expired),
        ),
        scene(
            Kind::UnexpectedPass,
            ending("deadlock/heap-ring"),
            vec![k().expecting(Expectation::UnexpectedPass)],
        ),
        scene(Kind::NewlySkipped, pass(), ending("skipped/no device")),
        scene(Kind::Skipped, ending("skipped/no device"), ending("skipped/no device")),
        scene(Kind::DeclaredFailure, pass(), declared(Expectation::Met)),
        scene(Kind::KnownFailure, ending("stall/S4"), ending("stall/S4")),
        scene(Kind::New, vec![], pass()),
        scene(Kind::Fixed, ending("stall/S4"), pass()),
        scene(Kind::Flaky, pass(), vec![k(), k().repeat(1).outcome("crash/SIGSEGV")]),
        scene(Kind::SlowerUnconfirmed, timed(&BASE), timed(&scaled(1.2))),
        scene(Kind::PlainSlower, timed(&BASE[..2]), timed(&scaled(1.2)[..2])),
        scene(Kind::Undecided, timed(&BASE[..2]), timed(&scaled(1.02)[..2])),
        scene(Kind::Implausible, timed(&BASE), timed(&scaled(0.1))),
        scene(Kind::Faster, timed(&BASE), timed(&scaled(0.8))),
        scene(Kind::RingGrew, heap(100, 512), heap(120, 512)),
        scene(Kind::RingShrank, heap(100, 512), heap(60, 512)),
        scene(Kind::RingResized, heap(100, 512), heap(100, 1024)),
        scene(Kind::LowHeadroom, heap(300, 512), heap(300, 512)),
        scene(Kind::RingsNotReported, heap(100, 512), pass()),
        of_run(Kind::OtherHostClass, |run| {
            run.provenance.host.insert("cores".into(), "64".into());
        }),
        of_run(Kind::Partial, |run| run.provenance.shard = Some((1, 2))),
        of_run(Kind::Partial, |run| run.provenance.selection = vec!["s/*".into()]),
        of_run(Kind::Dirty, |run| run.provenance.git_dirty = Some(true)),
        of_run(Kind::Overridden, |run| {
            run.provenance.overrides.insert("ring-heap".into(), "default".into());
        }),
        of_run(Kind::Incomplete, |run| run.provenance.status = RunStatus::Incomplete),
        of_run(Kind::Incomplete, |run| run.provenance.planned.push(id("s/lost"))),
        of_run(Kind::NothingCompared, |run| run.provenance.platform = "a5".into()),
        of_run(Kind::NothingCompared, |run| run.records.clear()),
        of_run(Kind::NothingCompared, |run| {
            for record in &mut run.records {
                record.case = id(&record.case.as_str().replace("s/", "t/"));
            }
        }),
    ]
}

#[test]
fn every_kind_of_finding_turns_a_gate_red() {
    let mut seen = std::collections::BTreeSet::new();
    for scene in scenes() {
        let base = with(run("base"), scene.base.into_iter().chain([record("s/other")]));
        let mut now = with(run("now"), scene.now.into_iter().chain([record("s/other")]));
        (scene.change_run)(&mut now);
        let verdict = gate(&strict(), &base, &now);
        let kinds = failing(&verdict);
        assert!(kinds.contains(&scene.kind.token()), "{}: {kinds:?}", scene.kind);
        assert!(!verdict.passed() && verdict.exit != Exit::Pass);
        seen.insert(scene.kind);
    }
    // These need more than two runs; the tests below show each of them red.
    let elsewhere = [
        Kind::Slower,
        Kind::Cleared,
        Kind::Unclear,
        Kind::Noisy,
        Kind::CommonMode,
        Kind::Drift,
        Kind::NoRelease,
        Kind::OtherCommit,
        Kind::OtherMatrix,
        Kind::OldBaseline,
    ];
    seen.extend(elsewhere);
    assert_eq!(seen.len(), Kind::ALL.len(), "a kind without a scene");
}

#[test]
fn findings_of_more_than_two_runs_turn_a_gate_red_too() {
    let base = with(run("base"), repeats("s/k", &BASE));
    let now = with(run("now"), repeats("s/k", &scaled(1.2)));
    let baseline = accepted(&base);
    let mut comparison = compare::against_baseline(&now, &baseline, &context());
    let verdict = gate::decide_in(
        &strict(),
        &comparison,
        &now,
        Surroundings {
            release: Some(&comparison),
            commit: Fact::Is("ffff"),
            matrix_hash: Fact::Is("ffff"),
        },
    );
    for kind in [Kind::Drift, Kind::OtherCommit, Kind::OtherMatrix] {
        assert!(failing(&verdict).contains(&kind.token()), "{kind}");
    }
    assert!(failing(&gate::decide(&strict(), &comparison, &now)).contains(&"no-release"));

    let fresh = compare::Fresh::Pairs(
        BASE.iter()
            .zip(scaled(1.2))
            .map(|(&a, b)| (a as f64, b as f64))
            .collect(),
    );
    compare::confirm(&mut comparison, &[(id("s/k"), fresh)].into());
    let kinds = |comparison: &compare::Comparison| failing(&gate::decide(&strict(), comparison, &now));
    assert!(kinds(&comparison).contains(&"slower"));
    comparison.cases[0].confirmation = Some(Confirmation::Cleared(compare::LatencyVerdict::None));
    assert!(kinds(&comparison).contains(&"cleared"));
    comparison.cases[0].confirmation = Some(Confirmation::Unclear(compare::LatencyVerdict::None));
    assert!(kinds(&comparison).contains(&"unclear"));

    let mut noisy = baseline.clone();
    noisy.rows.get_mut(&id("s/k")).unwrap().noise_floor = Some(0.3);
    assert!(kinds(&compare::against_baseline(&now, &noisy, &context())).contains(&"noisy"));

    let late = compare::Context {
        today: jiff::civil::date(2027, 6, 1),
        ..context()
    };
    assert!(kinds(&compare::against_baseline(&now, &baseline, &late)).contains(&"old-baseline"));

    let many = |run_id, medians: &[u64]| with(run(run_id), (0..9).flat_map(|n| repeats(&format!("s/c{n}"), medians)));
    let verdict = gate(&strict(), &many("base", &BASE), &many("now", &scaled(1.09)));
    assert!(failing(&verdict).contains(&"common-mode"));
    assert_eq!(
        verdict.reasons[0].kind,
        Kind::CommonMode,
        "the environment is named first"
    );
}

#[test]
fn a_release_is_held_to_the_last_one_and_to_this_tree() {
    let release = policy("release");
    let now = with(run("now"), repeats("s/k", &scaled(1.0)));
    let comparison = compare::against_baseline(&now, &accepted(&with(run("base"), repeats("s/k", &BASE))), &context());
    let kinds = |base: &Run, commit: Fact<'_>, matrix: Fact<'_>| {
        let drift = compare::against_baseline(&now, &accepted(base), &context());
        let around = Surroundings {
            release: Some(&drift),
            commit,
            matrix_hash: matrix,
        };
        failing(&gate::decide_in(&release, &comparison, &now, around))
    };
    let last = with(run("last"), repeats("s/k", &BASE));
    let (commit, matrix) = (
        now.provenance.git_commit.clone().unwrap(),
        now.provenance.matrix_hash.clone(),
    );
    let (commit, matrix) = (Fact::Is(&commit), Fact::Is(&matrix));
    assert_eq!(kinds(&last, commit, matrix), [""; 0]);
    assert_eq!(kinds(&last, Fact::Is("ffff"), matrix), ["other-commit"]);
    assert_eq!(kinds(&last, Fact::Unknown, matrix), ["other-commit"]);
    assert_eq!(kinds(&last, commit, Fact::Is("ffff")), ["other-matrix"]);
    assert_eq!(kinds(&last, commit, Fact::Unknown), ["other-matrix"]);
    // Slower than the last release in small accepted steps; a case that is gone since; a release of nothing of this.
    let faster = with(run("last"), repeats("s/k", &scaled(0.9)));
    assert_eq!(kinds(&faster, commit, matrix), ["drift"]);
    let more = with(run("last"), repeats("s/k", &BASE).into_iter().chain([record("s/gone")]));
    assert_eq!(kinds(&more, commit, matrix), ["drift"]);
    let other = with(run("last"), [record("t/k")]);
    assert!(kinds(&other, commit, matrix).contains(&"drift"));
    let mut elsewhere = last.clone();
    elsewhere.provenance.host.insert("cores".into(), "64".into());
    assert_eq!(kinds(&elsewhere, commit, matrix), ["other-host-class"]);
}

#[test]
fn a_release_takes_no_expired_skipped_or_unexpectedly_passing_case_and_no_tight_ring() {
    let release = policy("release");
    let known = || record("s/k").outcome("deadlock/heap-ring");
    let timed = |record: CaseRecord| [record, crate::sweep::record("s/other")];
    let scenes = vec![
        ("expired", known(), known().expecting(Expectation::Expired)),
        (
            "unexpected-pass",
            known(),
            record("s/k").expecting(Expectation::UnexpectedPass),
        ),
        (
            "newly-skipped",
            record("s/k"),
            record("s/k").outcome("skipped/no device"),
        ),
        (
            "skipped",
            record("s/k").outcome("skipped/no device"),
            record("s/k").outcome("skipped/no device"),
        ),
        (
            "low-headroom",
            record("s/k").heap(300, 512),
            record("s/k").heap(300, 512),
        ),
        ("rings-not-reported", record("s/k").heap(100, 512), record("s/k")),
    ];
    for (kind, base, now) in scenes {
        let verdict = gate(&release, &with(run("base"), timed(base)), &with(run("now"), timed(now)));
        assert!(failing(&verdict).contains(&kind), "{kind}: {:?}", failing(&verdict));
    }
}

#[test]
fn ci_takes_known_failures_and_no_new_ones() {
    let ci = policy("ci");
    let base = with(
        run("base"),
        [record("s/k").outcome("deadlock/heap-ring"), record("s/l")],
    );
    let verdict = gate(&ci, &base, &base.clone());
    assert!(verdict.passed() || failing(&verdict) == ["nothing-compared"]);
    let same = with(run("now"), [record("s/k").outcome("deadlock/heap-ring"), record("s/l")]);
    assert!(gate(&ci, &base, &same).passed());
    let other = with(run("now"), [record("s/k").outcome("deadlock/scope"), record("s/l")]);
    let verdict = gate(&ci, &base, &other);
    assert_eq!(
        (failing(&verdict), verdict.exit),
        (vec!["changed-cause"], Exit::GateFailed)
    );
    let lost = with(run("now"), [record("s/l")]);
    assert_eq!(gate(&ci, &base, &lost).exit, Exit::Incomplete);
}

#[test]
fn exit_codes_tell_why_nothing_was_compared() {
    let ci = policy("ci");
    let base = with(run("base"), [record("s/k")]);
    let exit = |now: &Run| gate(&ci, &base, now).exit;
    assert_eq!(exit(&run("now")), Exit::NothingSelected);
    assert_eq!(exit(&with(run("now"), [record("t/k")])), Exit::NotComparable);
    let alone = with(run("now"), [record("s/k")]);
    let comparison = compare::without_reference(&alone, &context());
    assert_eq!(gate::decide(&ci, &comparison, &alone).exit, Exit::NotComparable);
}

#[test]
fn release_also_fails_on_what_is_undecided_or_left_out() {
    let release = policy("release");
    let base = with(run("base"), repeats("s/k", &BASE[..2]));
    let undecided = with(run("now"), repeats("s/k", &scaled(1.01)[..2]));
    assert_eq!(failing(&gate(&release, &base, &undecided)), ["undecided"]);
    assert!(gate(&policy("ci"), &base, &undecided).passed());
    let mut part = undecided.clone();
    part.provenance.shard = Some((2, 3));
    assert_eq!(failing(&gate(&release, &base, &part)), ["partial", "undecided"]);
}

#[test]
fn an_override_needs_a_reason_and_speaks_for_its_cases() {
    let text = "
[policy.p]
default = 'fail'
[[policy.p.for]]
cases = ['s/k*']
on = { regressed = 'warn' }
because = 'the kernel is being rewritten'
[[policy.p.for]]
tags = ['slow']
on = { regressed = 'ignore' }
because = 'not on this machine'
";
    let file = GateFile::parse(text).unwrap();
    let policy = file.policy("p").unwrap();
    let action = |case: &str, tags: &[String]| policy.action(Kind::Regressed, Some((&id(case), tags)));
    assert_eq!(action("s/k2", &[]), Action::Warn);
    assert_eq!(action("s/other", &[]), Action::Fail);
    assert_eq!(action("s/k2", &["slow".into()]), Action::Ignore);
}

#[test]
fn mistakes_in_a_gate_file_are_all_told() {
    let text = "
[rules]
alpha = 7.0
[policy.p]
default = 'warn'
on = { regresed = 'fail', nothing-compared = 'ignore', incomplete = 'warn' }
[[policy.p.for]]
on = {}
because = ' '
";
    let Err(GateFileError::Invalid(mistakes)) = GateFile::parse(text) else {
        panic!("it is full of mistakes");
    };
    assert_eq!(mistakes.len(), 6, "{mistakes:#?}");
    assert!(mistakes[3].contains("`regresed`; kinds are") || mistakes.iter().any(|m| m.contains("changed-cause")));
    let error = GateFile::parse("[policy.p]\ndefault = 'fail'\nonn = {}\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 3") && error.contains("`onn`"), "{error}");
    let error = committed().policy("nightly").unwrap_err().to_string();
    assert_eq!(error, "there is no policy `nightly`; policies are ci, release");
}

#[test]
fn the_committed_rules_are_the_standard_ones() {
    let rules = committed().rules;
    let standard = xtask::compare::Rules::STANDARD;
    assert!((rules.implausible_ratio - standard.implausible_ratio).abs() < 0.01);
    let rules = xtask::compare::Rules {
        implausible_ratio: standard.implausible_ratio,
        ..rules
    };
    assert_eq!(rules, standard);
}

#[test]
fn a_verdict_is_one_json_object() {
    let base = with(run("base"), [record("s/k")]);
    let now = with(run("now"), [record("s/k").outcome("nan/output")]);
    let verdict = gate(&policy("ci"), &base, &now);
    let json: serde_json::Value = serde_json::from_str(&gate::verdict_json(&verdict)).unwrap();
    assert_eq!(json["passed"], false);
    assert_eq!(json["exit_code"], 1);
    assert_eq!(json["reasons"][0]["kind"], "regressed");
    assert_eq!(json["reasons"][0]["case"], "s/k");
    assert_eq!(json["reasons"][0]["message"], "regressed: pass → nan/output");
}
