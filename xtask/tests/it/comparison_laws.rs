//! Laws that every comparison of latencies obeys, whatever the numbers.

use proptest::prelude::*;
use xtask::compare::{self, Context, LatencyVerdict, Remeasured, Rules};

use crate::compare::context;
use crate::sweep::{repeats, run, with};

fn verdict(base: &[u64], now: &[u64], rules: &Rules) -> LatencyVerdict {
    let (base, now) = (
        with(run("a"), repeats("s/k", base)),
        with(run("b"), repeats("s/k", now)),
    );
    let context = Context {
        rules: rules.clone(),
        ..context()
    };
    compare::against_run(&now, &base, &context).cases[0].latency.clone()
}

/// Without floors in nanoseconds: they are no law of ratios.
fn relative() -> Rules {
    Rules {
        absolute_floor_ns: 0.0,
        ..Rules::STANDARD
    }
}

/// Medians of process runs around a centre, with a spread up to 20 %, as multiples of 1000 so that scaling is exact.
fn medians(runs: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u64>> {
    (1_000u64..4_000, 1u64..200).prop_flat_map(move |(centre, spread)| {
        let low = centre * (1000 - spread / 2) / 1000;
        prop::collection::vec(low..centre + spread + 1, runs.clone())
            .prop_map(|values| values.into_iter().map(|value| value * 1_000).collect())
    })
}

/// Medians of process runs that ran in turn, ns, reference first.
fn pairs() -> impl Strategy<Value = Vec<(f64, f64)>> {
    (medians(1..40), medians(40..41))
        .prop_map(|(base, now)| base.into_iter().zip(now).map(|(a, b)| (a as f64, b as f64)).collect())
}

/// From too good, over faster, to slower; what can't be said lies between.
fn rank(verdict: &LatencyVerdict) -> u8 {
    match verdict {
        LatencyVerdict::Implausible(..) => 0,
        LatencyVerdict::Faster(_) => 1,
        LatencyVerdict::None | LatencyVerdict::Unchanged(_) | LatencyVerdict::Undecided(..) => 2,
        LatencyVerdict::Slower(_) => 3,
    }
}

fn mirrored(verdict: &LatencyVerdict) -> &'static str {
    match verdict {
        LatencyVerdict::Slower(_) => "faster",
        LatencyVerdict::Faster(_) => "slower",
        other => other.token(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_runs_does_not_matter(base in medians(1..14), now in medians(1..14), turn in 0usize..13) {
        let shuffled = |values: &[u64]| {
            let mut values = values.to_vec();
            let by = turn % values.len();
            values.rotate_left(by);
            values.reverse();
            values
        };
        let rules = Rules::STANDARD;
        prop_assert_eq!(verdict(&base, &now, &rules), verdict(&shuffled(&base), &shuffled(&now), &rules));
    }

    #[test]
    fn swapping_the_sides_mirrors_the_verdict(base in medians(1..14), now in medians(1..14)) {
        let (there, back) = (verdict(&base, &now, &relative()), verdict(&now, &base, &relative()));
        // Too good to be true has no mirror image: nothing is too slow to be true.
        prop_assume!(!matches!(there, LatencyVerdict::Implausible(..)) && !matches!(back, LatencyVerdict::Implausible(..)));
        prop_assert_eq!(mirrored(&there), back.token());
        if let (Some(there), Some(back)) = (there.ratio(), back.ratio()) {
            prop_assert!((there * back - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn the_unit_does_not_matter(base in medians(1..14), now in medians(1..14), factor in 2u64..1000) {
        let scaled = |values: &[u64]| values.iter().map(|value| value * factor).collect::<Vec<_>>();
        let (there, far) = (verdict(&base, &now, &relative()), verdict(&scaled(&base), &scaled(&now), &relative()));
        prop_assert_eq!(there.token(), far.token());
        if let (Some(there), Some(far)) = (there.ratio(), far.ratio()) {
            prop_assert!((there / far - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_larger_slowdown_is_never_called_less(base in medians(2..14), now in medians(2..14), by in 1u64..600) {
        let slower: Vec<u64> = now.iter().map(|value| value * (1000 + by) / 1000).collect();
        let (first, then) = (verdict(&base, &now, &relative()), verdict(&base, &slower, &relative()));
        prop_assert!(rank(&first) <= rank(&then), "{first} and then {then}");
        if let (Some(first), Some(then)) = (first.ratio(), then.ratio()) {
            prop_assert!(first <= then * (1.0 + 1e-6));
        }
    }

    #[test]
    fn nothing_is_sure_of_a_single_run(base in medians(1..14), now in medians(1..2)) {
        let verdict = verdict(&base, &now, &Rules { alpha: 1e-3, ..Rules::STANDARD });
        prop_assert!(!matches!(verdict, LatencyVerdict::Slower(_) | LatencyVerdict::Faster(_)), "{verdict}");
    }

    #[test]
    fn a_p_value_is_corrected_upwards(base in medians(5..12), now in medians(5..12)) {
        if let LatencyVerdict::Slower(e) | LatencyVerdict::Faster(e) | LatencyVerdict::Unchanged(e) =
            verdict(&base, &now, &Rules::STANDARD)
        {
            prop_assert!(e.p_raw <= e.p_adjusted && e.p_raw > 0.0 && e.p_adjusted <= 1.0);
            prop_assert!(e.low <= e.ratio && e.ratio <= e.high);
        }
    }

    #[test]
    fn pairs_obey_the_same_laws(pairs in pairs(), by in 1u64..600, factor in 2u64..1000, turn in 0usize..40) {
        let rules = relative();
        let judged = |pairs: &[(f64, f64)]| {
            compare::judge_fresh(&[Remeasured::InTurn(pairs.to_vec())], &rules).remove(0)
        };
        let first = judged(&pairs);
        let mut turned = pairs.clone();
        turned.rotate_left(turn % pairs.len());
        turned.reverse();
        prop_assert_eq!(&judged(&turned), &first, "the order of pairs");
        let far: Vec<_> = pairs.iter().map(|(a, b)| (a * factor as f64, b * factor as f64)).collect();
        prop_assert_eq!(judged(&far).token(), first.token(), "the unit");
        let slower: Vec<_> = pairs.iter().map(|(a, b)| (*a, b * (1000 + by) as f64 / 1000.0)).collect();
        prop_assert!(rank(&first) <= rank(&judged(&slower)), "{first} and then {}", judged(&slower));
        let back: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
        let back = judged(&back);
        if !matches!(first, LatencyVerdict::Implausible(..)) && !matches!(back, LatencyVerdict::Implausible(..)) {
            prop_assert_eq!(mirrored(&first), back.token(), "{} and back {}", first, back);
        }
    }
}
