//! What changed between two runs.

use std::time::Duration;

use xtask::baseline::{self, Baseline, Request};
use xtask::compare::{
    self, Comparison, Context, Direction, LatencyVerdict, OutcomeChange, RingFinding, Rules, Standing, Undecided,
};
use xtask::record::{Expectation, Run};

use crate::sweep::{With as _, id, record, repeats, run, with};

pub(crate) fn context() -> Context {
    Context {
        rules: Rules::STANDARD,
        renamed: Vec::new(),
        by_name: std::collections::BTreeSet::new(),
        today: jiff::civil::date(2026, 12, 2),
    }
}

pub(crate) fn request() -> Request {
    Request {
        selection: None,
        typed: Vec::new(),
        because: None,
        renamed: Vec::new(),
        accepted: "2026-12-01T11:00:00Z".into(),
    }
}

/// The baseline that accepting `run` makes, whatever speaks against it.
pub(crate) fn accepted(run: &Run) -> Baseline {
    let request = Request {
        because: Some("a test needs it".into()),
        ..request()
    };
    baseline::accept(None, run, &request).unwrap().baseline
}

fn compared(base: &Run, now: &Run) -> Comparison {
    compare::against_run(now, base, &context())
}

#[track_caller]
fn outcome_change(base: Option<xtask::record::CaseRecord>, now: Option<xtask::record::CaseRecord>) -> OutcomeChange {
    let other = || record("s/other");
    let base = with(run("a"), base.into_iter().chain([other()]));
    let now = with(run("b"), now.into_iter().chain([other()]));
    let comparison = compared(&base, &now);
    let diff = comparison.cases.iter().find(|diff| diff.case == id("s/k"));
    diff.expect("the case is in the comparison").change
}

#[test]
fn each_outcome_change_has_its_kind() {
    let k = || record("s/k");
    let check = |base: Option<&str>, now: Option<&str>, expected| {
        let of = |text: Option<&str>| text.map(|text| k().outcome(text));
        assert_eq!(outcome_change(of(base), of(now)), expected, "{base:?} → {now:?}");
    };
    check(Some("pass"), Some("pass"), OutcomeChange::Same);
    check(Some("pass"), Some("deadlock/heap-ring"), OutcomeChange::Regressed);
    check(Some("pass"), Some("blocked/s/other"), OutcomeChange::Regressed);
    check(Some("deadlock/heap-ring"), Some("pass"), OutcomeChange::Fixed);
    check(
        Some("deadlock/heap-ring"),
        Some("deadlock/heap-ring"),
        OutcomeChange::KnownFailure,
    );
    check(
        Some("deadlock/heap-ring"),
        Some("deadlock/scope"),
        OutcomeChange::ChangedCause,
    );
    check(
        Some("deadlock/heap-ring"),
        Some("crash/SIGSEGV"),
        OutcomeChange::ChangedCause,
    );
    check(Some("pass"), Some("skipped/no device"), OutcomeChange::NewlySkipped);
    check(
        Some("skipped/no device"),
        Some("skipped/other words"),
        OutcomeChange::Same,
    );
    check(Some("pass"), None, OutcomeChange::Missing);
    check(Some("pass"), Some("interrupted"), OutcomeChange::Missing);
    check(None, Some("pass"), OutcomeChange::New);
    check(None, Some("mismatch/output"), OutcomeChange::NewFailing);

    let fails = || k().outcome("deadlock/heap-ring");
    let change = |now| outcome_change(Some(k()), Some(now));
    assert_eq!(
        change(fails().expecting(Expectation::Met)),
        OutcomeChange::DeclaredFailure
    );
    assert_eq!(change(fails().expecting(Expectation::Expired)), OutcomeChange::Expired);
    assert_eq!(
        change(k().expecting(Expectation::UnexpectedPass)),
        OutcomeChange::UnexpectedPass
    );
    let other = k().outcome("crash/SIGABRT").expecting(Expectation::NotMet);
    assert_eq!(change(other), OutcomeChange::Regressed);
}

#[test]
fn a_case_is_as_bad_as_its_worst_process_run() {
    let base = with(run("a"), [record("s/k")]);
    let now = with(run("b"), [record("s/k"), record("s/k").repeat(1).outcome("nan/output")]);
    let diff = &compared(&base, &now).cases[0];
    assert_eq!(diff.change, OutcomeChange::Regressed);
    assert_eq!(diff.now.as_ref().unwrap().disagreement.len(), 2);
}

#[test]
fn what_cannot_be_compared_has_a_name_of_its_own() {
    let standing = |base: &Run, now: &Run| compared(base, now).standing;
    let base = with(run("a"), [record("s/k"), record("s/l")]);
    assert_eq!(standing(&base, &with(run("b"), [record("s/k")])), Standing::Compared(1));
    assert_eq!(standing(&base, &run("b")), Standing::EmptyRun);
    assert_eq!(
        standing(&base, &with(run("b"), [record("t/k")])),
        Standing::NothingInCommon
    );
    assert_eq!(standing(&base, &base), Standing::SameRun);
    let mut other = with(run("b"), [record("s/k")]);
    other.provenance.platform = "a5".into();
    assert_eq!(standing(&base, &other), Standing::OtherPlatform);
    assert_eq!(
        compare::without_reference(&base, &context()).standing,
        Standing::NoBaseline
    );
}

#[test]
fn a_selection_leaves_cases_out_and_a_whole_run_misses_them() {
    let base = with(run("a"), [record("s/k"), record("s/l")]);
    let mut now = with(run("b"), [record("s/k")]);
    let comparison = compared(&base, &now);
    assert_eq!(
        (comparison.not_selected, comparison.cases[0].change),
        (0, OutcomeChange::Missing)
    );
    assert_eq!(comparison.cases[0].case, id("s/l"));
    now.provenance.selection = vec!["k".into()];
    let comparison = compared(&base, &now);
    assert_eq!((comparison.not_selected, comparison.cases.len()), (1, 1));
    // Planned and without a record is missing in a selection too.
    now.provenance.planned.push(id("s/m"));
    assert_eq!(compared(&base, &now).cases[0].change, OutcomeChange::Missing);
}

#[test]
fn a_suite_that_is_swept_by_name_is_not_missing_elsewhere() {
    let base = with(run("a"), [record("s/k"), record("audit/k")]);
    let now = with(run("b"), [record("s/k")]);
    assert_eq!(compared(&base, &now).cases[0].change, OutcomeChange::Missing);
    let by_name = Context {
        by_name: ["audit".to_owned()].into(),
        ..context()
    };
    let comparison = compare::against_run(&now, &base, &by_name);
    assert_eq!((comparison.cases.len(), comparison.not_selected), (1, 1));
    let started = with(run("b"), [record("s/k"), record("audit/l")]);
    let comparison = compare::against_run(&started, &base, &by_name);
    assert_eq!(comparison.cases[0].change, OutcomeChange::Missing);
}

#[test]
fn a_rename_is_followed_only_where_it_is_declared() {
    let base = with(run("a"), [record("s/old"), record("s/k")]);
    let now = with(run("b"), [record("s/new").outcome("mismatch/output"), record("s/k")]);
    let changes = |comparison: &Comparison| -> Vec<_> {
        comparison
            .cases
            .iter()
            .map(|diff| (diff.case.to_string(), diff.change))
            .collect()
    };
    assert_eq!(
        changes(&compared(&base, &now)),
        [
            ("s/old".into(), OutcomeChange::Missing),
            ("s/new".into(), OutcomeChange::NewFailing),
            ("s/k".into(), OutcomeChange::Same),
        ]
    );
    let renamed = Context {
        renamed: vec![(id("s/old"), id("s/new"))],
        ..context()
    };
    assert_eq!(
        changes(&compare::against_run(&now, &base, &renamed)),
        [
            ("s/new".into(), OutcomeChange::Regressed),
            ("s/k".into(), OutcomeChange::Same)
        ]
    );
}

pub(crate) const BASE: [u64; 8] = [
    1_000_000, 1_004_000, 996_000, 1_002_000, 998_000, 1_001_000, 999_000, 1_003_000,
];

pub(crate) fn scaled(factor: f64) -> Vec<u64> {
    // Shuffled and slightly off, so that no number repeats.
    let order = [3, 0, 6, 2, 7, 5, 1, 4];
    order.map(|i| (BASE[i] as f64 * factor) as u64 + 7).into()
}

fn latency(base: &Run, now: &Run) -> LatencyVerdict {
    compared(base, now).cases[0].latency.clone()
}

fn latency_of(base: &[u64], now: &[u64]) -> LatencyVerdict {
    latency(
        &with(run("a"), repeats("s/k", base)),
        &with(run("b"), repeats("s/k", now)),
    )
}

#[track_caller]
fn undecided(verdict: &LatencyVerdict) -> &Undecided {
    match verdict {
        LatencyVerdict::Undecided(why, _) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn eight_runs_a_side_tell_ten_percent_from_nothing() {
    assert!(matches!(latency_of(&BASE, &scaled(1.10)), LatencyVerdict::Slower(_)));
    assert!(matches!(latency_of(&BASE, &scaled(0.90)), LatencyVerdict::Faster(_)));
    assert!(matches!(latency_of(&BASE, &scaled(1.0)), LatencyVerdict::Unchanged(_)));
    // Sure, and too small to matter.
    let LatencyVerdict::Unchanged(effect) = latency_of(&BASE, &scaled(1.012)) else {
        panic!("1.2 % is below the floor of 2 %");
    };
    assert!(effect.p_adjusted < 0.01 && effect.low > 1.0);
    assert!(matches!(
        latency_of(&BASE, &scaled(0.2)),
        LatencyVerdict::Implausible(..)
    ));
}

#[test]
fn few_runs_decide_nothing_and_say_how_many_would() {
    let verdict = latency_of(&BASE[..1], &[1_300_000]);
    let text = verdict.to_string();
    assert_eq!(
        text,
        "undecided: too few runs: 1 against 1, needs 5 on each side; median +30.0 %, beyond a plain threshold of 10 %, no test"
    );
    let LatencyVerdict::Undecided(_, Some(reading)) = verdict else {
        panic!("there is a reading");
    };
    assert_eq!(reading.beyond, Some(Direction::Slower));
    assert!(
        latency_of(&BASE, &[1_300_000])
            .to_string()
            .contains("1 against 8, needs 4;")
    );
    let one = |run_id, ns| with(run(run_id), [record("s/k").samples(&[ns])]);
    let verdict = latency(&one("a", 1_000), &one("b", 1_050));
    assert_eq!(undecided(&verdict), &Undecided::OneSample);
}

#[test]
fn the_level_is_that_of_the_whole_sweep() {
    let sweep = |run_id, medians: &[u64], others: &[u64]| {
        let cases = (0..40).flat_map(|n| repeats(&format!("s/c{n}"), others));
        with(run(run_id), repeats("s/k", medians).into_iter().chain(cases))
    };
    let five = scaled(1.2)[..5].to_vec();
    let comparison = compared(
        &sweep("a", &BASE[..5], &BASE[..5]),
        &sweep("b", &five, &scaled(1.001)[..5]),
    );
    let diff = comparison.cases.iter().find(|diff| diff.case == id("s/k")).unwrap();
    // One test of five against five reaches 0.0079; of 41 it does not reach the level.
    assert_eq!(comparison.family, 41);
    assert!(matches!(
        undecided(&diff.latency),
        Undecided::TooFewRuns { need_each: 8, .. }
    ));
    let alone = compared(
        &with(run("a"), repeats("s/k", &BASE[..5])),
        &with(run("b"), repeats("s/k", &five)),
    );
    assert!(matches!(alone.cases[0].latency, LatencyVerdict::Slower(_)));
}

#[test]
fn a_wide_spread_is_not_called_unchanged() {
    let wide = [
        700_000, 1_300_000, 800_000, 1_250_000, 900_000, 1_100_000, 1_000_000, 950_001,
    ];
    let other = [
        710_000, 1_310_000, 810_000, 1_260_000, 910_000, 1_110_000, 1_010_000, 960_001,
    ];
    assert!(matches!(
        undecided(&latency_of(&wide, &other)),
        Undecided::SpreadTooWide { .. }
    ));
}

#[test]
fn different_quantities_are_named_and_not_compared() {
    let base = with(run("a"), repeats("s/k", &BASE));
    let slow = with(run("b"), repeats("s/k", &scaled(1.5)));
    let mut other = slow.clone();
    other.provenance.host.insert("cores".into(), "8".into());
    let comparison = compared(&base, &other);
    assert_eq!(
        undecided(&comparison.cases[0].latency).to_string(),
        "other host class: cores: 2 → 8"
    );
    assert_eq!(comparison.cases[0].change, OutcomeChange::Same);

    let mut other = slow.clone();
    for record in &mut other.records {
        record.subject.seed = Some(9);
    }
    assert_eq!(
        undecided(&latency(&base, &other)).to_string(),
        "other inputs: seed=0 → seed=9"
    );

    let rounds = with(
        run("b"),
        scaled(1.5)
            .iter()
            .zip(0..)
            .map(|(&ns, n)| record("s/k").repeat(n).samples(&[ns])),
    );
    assert_eq!(
        undecided(&latency(&base, &rounds)),
        &Undecided::OtherRounds { base: 3, now: 1 }
    );

    let untimed = with(run("b"), [record("s/k")]);
    assert_eq!(undecided(&latency(&base, &untimed)), &Undecided::NotTimed);
    assert_eq!(undecided(&latency(&untimed, &slow)), &Undecided::NoReference);
    let failed = with(run("b"), [record("s/k").outcome("mismatch/output")]);
    assert_eq!(latency(&base, &failed), LatencyVerdict::None);
}

#[test]
fn numbers_of_a_baseline_that_no_clock_gives_are_named() {
    let now = with(run("b"), repeats("s/k", &scaled(1.0)));
    let check = |values: [f64; 2], expected: &Undecided| {
        let mut baseline = accepted(&with(run("a"), repeats("s/k", &BASE)));
        let row = baseline.rows.get_mut(&id("s/k")).unwrap();
        std::sync::Arc::make_mut(&mut row.summary)
            .latency
            .as_mut()
            .unwrap()
            .run_medians_ns = values.into();
        let comparison = compare::against_baseline(&now, &baseline, &context());
        assert_eq!(undecided(&comparison.cases[0].latency), expected, "{values:?}");
    };
    check([f64::NAN, 1e6], &Undecided::NotFinite);
    check([1e6, f64::INFINITY], &Undecided::NotFinite);
    check([0.0, 1e6], &Undecided::Zero);
    check([-1e6, 1e6], &Undecided::Negative);
    check([5e-324, 1e6], &Undecided::Denormal);
    let with_row = |change: fn(&mut baseline::Row)| {
        let mut baseline = accepted(&with(run("a"), repeats("s/k", &BASE)));
        change(baseline.rows.get_mut(&id("s/k")).unwrap());
        compare::against_baseline(&now, &baseline, &context()).cases[0]
            .latency
            .to_string()
    };
    let text = with_row(|row| row.unit = "us".into());
    assert_eq!(text, "undecided: the reference holds another unit: us");
    let text = with_row(|row| row.statistic = "mean".into());
    assert_eq!(text, "undecided: the reference holds another statistic: mean");
}

#[test]
fn identical_samples_are_no_measurement() {
    let flat = [1_000_000; 8];
    assert_eq!(undecided(&latency_of(&flat, &flat)), &Undecided::Identical);
    assert_eq!(undecided(&latency_of(&BASE, &BASE)), &Undecided::Identical);
}

#[test]
fn less_work_is_no_gain() {
    let base = with(run("a"), repeats("s/k", &BASE));
    let mut now = with(run("b"), repeats("s/k", &scaled(0.6)));
    for record in &mut now.records {
        record.work.as_mut().unwrap().tasks_submitted = 10;
    }
    assert_eq!(
        latency(&base, &now).to_string(),
        "implausible: did 10 tasks, the reference did 100; -40.0 %"
    );
}

#[test]
fn a_common_move_names_the_environment() {
    let sweep = |run_id, medians: &[u64]| with(run(run_id), (0..12).flat_map(|n| repeats(&format!("s/c{n}"), medians)));
    let moved = compared(&sweep("a", &BASE), &sweep("b", &scaled(1.08)));
    let common = moved.common_mode.expect("all moved");
    assert_eq!((common.cases, common.same_direction), (12, 12));
    assert!((common.ratio - 1.08).abs() < 0.01);
    assert!(
        compared(&sweep("a", &BASE), &sweep("b", &scaled(1.01)))
            .common_mode
            .is_none()
    );
}

#[test]
fn ring_peaks_are_compared_and_held_against_capacity() {
    let base = with(run("a"), [record("s/k").heap(100 << 20, 512 << 20)]);
    let findings = |high, capacity| {
        let now = with(run("b"), [record("s/k").heap(high, capacity)]);
        compared(&base, &now).cases[0].rings.clone()
    };
    assert_eq!(findings(101 << 20, 512 << 20), []);
    assert!(matches!(
        findings(150 << 20, 512 << 20)[..],
        [RingFinding::Grew { ring: 1, .. }]
    ));
    assert!(matches!(
        findings(50 << 20, 512 << 20)[..],
        [RingFinding::Shrank { ring: 1, .. }]
    ));
    assert!(matches!(
        findings(300 << 20, 512 << 20)[..],
        [RingFinding::Grew { .. }, RingFinding::LowHeadroom { ring: 1, .. }]
    ));
    assert!(matches!(
        findings(100 << 20, 256 << 20)[..],
        [RingFinding::Resized { .. }]
    ));
}

#[test]
fn suspects_are_measured_again_and_stay_in_sight() {
    let base = with(run("a"), [repeats("s/k", &BASE), repeats("s/l", &BASE)].concat());
    let now = with(
        run("b"),
        [repeats("s/k", &scaled(1.1)), repeats("s/l", &scaled(1.1))].concat(),
    );
    let mut comparison = compared(&base, &now);
    let suspects = compare::suspects(&comparison);
    assert_eq!(suspects.len(), 2);
    let fresh = |factor| {
        let pairs = BASE.iter().zip(scaled(factor));
        compare::Fresh::Pairs(pairs.map(|(&base, now)| (base as f64, now as f64)).collect())
    };
    compare::confirm(
        &mut comparison,
        &[(id("s/k"), fresh(1.1)), (id("s/l"), fresh(1.001))].into(),
    );
    let of = |case: &str| comparison.cases.iter().find(|diff| diff.case == id(case)).unwrap();
    assert!(matches!(
        of("s/k").confirmation,
        Some(compare::Confirmation::Confirmed(_))
    ));
    assert!(matches!(
        of("s/l").confirmation,
        Some(compare::Confirmation::Cleared(_))
    ));
    assert!(matches!(of("s/l").latency, LatencyVerdict::Slower(_)));
    assert!(matches!(of("s/l").final_latency(), LatencyVerdict::Unchanged(_)));
    assert_eq!(comparison.cases[0].case, id("s/k"));

    let mut silent = compared(&base, &now);
    compare::confirm(&mut silent, &[].into());
    let unmeasured = |diff: &compare::CaseDiff| diff.confirmation == Some(compare::Confirmation::NotMeasured);
    assert!(silent.cases.iter().all(unmeasured));
    assert!(matches!(silent.cases[0].final_latency(), LatencyVerdict::Slower(_)));
}

/// Twelve cases that moved together, `s/slow` further than all, and the fresh pairs of some of them.
fn moved_together(machine: f64, fresh: &[(&str, f64)]) -> Comparison {
    let names = || (0..11).map(|n| format!("s/c{n}")).chain(["s/slow".to_owned()]);
    let base = with(run("a"), names().flat_map(|name| repeats(&name, &BASE)));
    let now = with(
        run("b"),
        names().flat_map(|name| {
            let own = if name == "s/slow" { 1.2 } else { 1.0 };
            repeats(&name, &scaled(machine * own))
        }),
    );
    let mut comparison = compared(&base, &now);
    let pairs = |factor| {
        let pairs = BASE.iter().zip(scaled(factor));
        compare::Fresh::Pairs(pairs.map(|(&base, now)| (base as f64, now as f64)).collect())
    };
    let fresh = fresh.iter().map(|(name, factor)| (id(name), pairs(*factor)));
    compare::confirm(&mut comparison, &fresh.collect());
    comparison
}

fn confirmation_of(comparison: &Comparison, case: &str) -> &'static str {
    let diff = comparison.cases.iter().find(|diff| diff.case == id(case)).unwrap();
    diff.confirmation.as_ref().map_or("-", compare::Confirmation::token)
}

#[test]
fn what_the_machine_did_explains_who_moved_no_further() {
    let probes = ["s/c0", "s/c1", "s/c2", "s/c3", "s/c4"];
    // On a slower machine, and on a faster one that would hide a slower program.
    for machine in [1.4, 0.7] {
        let comparison = moved_together(machine, &probes.map(|name| (name, 1.0)));
        let environment = comparison.environment.expect("five were measured again");
        assert_eq!(environment.probes, 5);
        assert!((environment.ratio / machine - 1.0).abs() < 0.01, "{environment:?}");
        assert_eq!(confirmation_of(&comparison, "s/c7"), "explained");
        let slow = comparison.cases.iter().find(|diff| diff.case == id("s/slow")).unwrap();
        if machine > 1.0 {
            assert_eq!(confirmation_of(&comparison, "s/slow"), "not-measured-again");
            assert!(matches!(slow.final_latency(), LatencyVerdict::Slower(_)));
        }
    }
    // Four are too few to speak for all.
    let few = moved_together(1.4, &probes.map(|name| (name, 1.0))[..4]);
    assert_eq!(few.environment, None);
    assert_eq!(confirmation_of(&few, "s/c7"), "not-measured-again");
}

#[test]
fn a_change_below_all_kernels_is_no_environment() {
    // The program did it: beside the reference's own, the probes are as slow as in the sweep.
    let probes = ["s/c0", "s/c1", "s/c2", "s/c3", "s/c4"];
    let comparison = moved_together(1.1, &probes.map(|name| (name, 1.1)));
    let environment = comparison.environment.expect("five were measured again");
    assert!((environment.ratio - 1.0).abs() < 0.01, "{environment:?}");
    assert_eq!(confirmation_of(&comparison, "s/c0"), "confirmed");
    assert_eq!(confirmation_of(&comparison, "s/c7"), "not-measured-again");
}

/// The probes among cases that moved together by 1.4 and each by its own factor on top of it, where the process
/// runs of each took so many seconds; by their names, sorted.
fn probes_of(cases: &[(&str, f64, &[u64])]) -> Vec<String> {
    let base = with(run("a"), cases.iter().flat_map(|(name, ..)| repeats(name, &BASE)));
    let now = with(
        run("b"),
        cases.iter().flat_map(|&(name, own, seconds)| {
            let mut records = repeats(name, &scaled(1.4 * own));
            for (record, &seconds) in records.iter_mut().zip(seconds.iter().cycle()) {
                record.phases.total = Duration::from_secs(seconds);
            }
            records
        }),
    );
    let comparison = compared(&base, &now);
    let suspects = compare::suspects(&comparison);
    assert_eq!(suspects.len(), cases.len(), "all are suspects");
    let mut reversed = suspects.clone();
    reversed.reverse();
    let probes = compare::probes(&comparison, &suspects, &now);
    assert_eq!(probes, compare::probes(&comparison, &reversed, &now));
    let mut names: Vec<String> = probes.iter().map(ToString::to_string).collect();
    names.sort();
    names
}

#[test]
fn probes_are_the_cheapest_of_the_suspects_near_the_common_move() {
    type Case = (&'static str, f64, &'static [u64]);
    /// Six that moved just as far as all did, six that moved further by far.
    const FAR: [Case; 6] = [
        ("s/f0", 1.20, &[1]),
        ("s/f1", 1.21, &[1]),
        ("s/f2", 1.22, &[1]),
        ("s/f3", 0.81, &[1]),
        ("s/f4", 0.82, &[1]),
        ("s/f5", 0.83, &[1]),
    ];
    let check = |what: &str, near: [Case; 6], expected: [&str; 5]| {
        assert_eq!(probes_of(&[&near[..], &FAR[..]].concat()), expected, "{what}");
    };
    let near = |seconds: [&'static [u64]; 6]| {
        let names = ["s/n0", "s/n1", "s/n2", "s/n3", "s/n4", "s/n5"];
        std::array::from_fn(|i| (names[i], 1.0, seconds[i]))
    };
    check(
        "the heaviest of the near ones is left out, and no far one is chosen for being cheap",
        near([&[40], &[2], &[3], &[4], &[5], &[6]]),
        ["s/n1", "s/n2", "s/n3", "s/n4", "s/n5"],
    );
    check(
        "the median counts: one slow process run makes no case dear, one quick one makes none cheap",
        near([&[2, 2, 90], &[2], &[2], &[2], &[40, 40, 1], &[2]]),
        ["s/n0", "s/n1", "s/n2", "s/n3", "s/n5"],
    );
    let mut unequal = near([&[2]; 6]);
    unequal[1].1 = 1.01;
    check(
        "of those that cost the same, the nearer",
        unequal,
        ["s/n0", "s/n2", "s/n3", "s/n4", "s/n5"],
    );
    check(
        "of those that cost the same and are as near, the first by id",
        near([&[2]; 6]),
        ["s/n0", "s/n1", "s/n2", "s/n3", "s/n4"],
    );
}

#[test]
fn few_suspects_have_probes_and_fewer_are_all_measured() {
    // Half of six would be too few to speak for all: the five nearest may be chosen, whatever they cost.
    let names = ["s/a", "s/b", "s/c", "s/d", "s/e", "s/slow"];
    let cases = names.map(|name| match name {
        "s/slow" => (name, 1.2, &[1][..]),
        _ => (name, 1.0, &[40][..]),
    });
    assert_eq!(probes_of(&cases), names[..5]);
    assert!(probes_of(&cases[..5]).is_empty());
    // Where nothing moved together there is nothing to tell.
    let base = with(run("a"), names.iter().flat_map(|name| repeats(name, &BASE)));
    let now = with(run("b"), names.iter().flat_map(|name| repeats(name, &scaled(1.4))));
    let mut comparison = compared(&base, &now);
    let suspects = compare::suspects(&comparison);
    assert_eq!(compare::probes(&comparison, &suspects, &now).len(), compare::PROBES);
    comparison.common_mode = None;
    assert!(compare::probes(&comparison, &suspects, &now).is_empty());
    // A run whose records are gone knows no cost, and the nearest stand in.
    comparison.common_mode = compared(&base, &now).common_mode;
    assert_eq!(
        compare::probes(&comparison, &suspects, &run("b")).len(),
        compare::PROBES
    );
}

#[test]
fn slack_is_what_chance_may_hide() {
    let spread = |share: f64| [-1.0, 1.0, -0.5, 0.5, 0.0, 0.8, -0.8, 0.2].map(|z: f64| 1e6 * (1.0 + z * share));
    // Who shows no spread, or is too few to show one, or was not measured, leaves the threshold where it is.
    assert!((compare::slack(&[1e6; 8], 1) - 1.0).abs() < 1e-12);
    for (base, now) in [(&spread(0.1)[..2], 1), (&spread(0.1)[..], 0), (&[][..], 1)] {
        assert!((compare::slack(base, now) - 1.0).abs() < 1e-12, "{base:?}");
    }
    let [quiet, noisy] = [0.01, 0.1].map(|share| compare::slack(&spread(share), 1));
    assert!(1.0 < quiet && quiet < 1.02 && noisy > 1.08, "{quiet} {noisy}");
    // More process runs narrow it, and the wildest machine has its limit.
    assert!(compare::slack(&spread(0.1), 8) < noisy);
    assert!(compare::slack(&[1.0, 1e9, 1.0, 1e9], 1) <= 0.3_f64.exp());
    // Five percent, seen as one: a suspect on the machine that may hide the rest, and no suspect on a quiet one.
    let seen = |share: f64| {
        let base = spread(share).map(|ns| ns as u64);
        let middle = 1e6 * 1.01;
        let before = with(run("a"), repeats("s/k", &base));
        let now = with(run("b"), repeats("s/k", &[middle as u64]));
        compare::suspects(&compared(&before, &now)).len()
    };
    assert_eq!((seen(0.001), seen(0.1)), (0, 1));
}
