//! What fresh process runs of suspects say.
//!
//! Where both programs ran in turn there are two ways to look at their medians. As two samples, they
//! forgive a case that runs in one of two modes; as pairs of neighbours, they forgive whatever the
//! machine does for longer than a pair takes. Neither is stronger on every machine, so both are made,
//! and the correction counts both. A look at the same suspect is one of several, so each has its share
//! of the sweep-wide level.

use std::collections::{BTreeMap, BTreeSet};

use super::latency::{Measured, finish, medians, pairs};
use super::{LatencyVerdict, Rules, Undecided};
use crate::case_id::CaseId;
use crate::record::CaseRecord;
use crate::stats;

/// Fresh process runs of one suspect.
#[derive(Clone, Debug, PartialEq)]
pub enum Fresh {
    /// Medians of the reference's own program and of the run's, ns, of process runs that ran next to each other.
    Pairs(Vec<(f64, f64)>),
    /// Medians of the run's program, ns, where the reference's could not be had.
    Alone(Vec<f64>),
}

impl Fresh {
    /// The fresh runs of every suspect, from the records of both programs; the reference's has none of a
    /// case whose program could not be had.
    ///
    /// A process run without a latency on one side has no neighbour, and leaves its pair out.
    pub fn of(base: &[CaseRecord], now: &[CaseRecord]) -> BTreeMap<CaseId, Self> {
        let both: BTreeSet<&CaseId> = base.iter().map(|record| &record.case).collect();
        let before = medians_by_repeat(base);
        let mut fresh: BTreeMap<CaseId, Self> = BTreeMap::new();
        for ((case, repeat), now) in medians_by_repeat(now) {
            let empty = if both.contains(case) {
                Self::Pairs(Vec::new())
            } else {
                Self::Alone(Vec::new())
            };
            match fresh.entry(case.clone()).or_insert(empty) {
                Self::Pairs(pairs) => pairs.extend(before.get(&(case, repeat)).map(|&base| (base, now))),
                Self::Alone(medians) => medians.push(now),
            }
        }
        fresh
    }
}

/// Median of the last attempt of every process run, ns.
fn medians_by_repeat(records: &[CaseRecord]) -> BTreeMap<(&CaseId, u32), f64> {
    let mut medians = BTreeMap::new();
    for record in records {
        let samples = record.latency.as_ref().map(|latency| {
            let samples = latency.samples().iter();
            samples.map(|sample| sample.get() as f64).collect::<Vec<_>>()
        });
        let key = (&record.case, record.repeat);
        match samples.and_then(|samples| stats::median(&samples)) {
            Some(median) => medians.insert(key, median),
            None => medians.remove(&key),
        };
    }
    medians
}

/// One suspect's numbers, ready to be judged.
#[derive(Clone, Debug, PartialEq)]
pub enum Remeasured {
    /// Both programs in turn, ns.
    InTurn(Vec<(f64, f64)>),
    /// The run's program against what the reference holds.
    AgainstHeld {
        /// Medians that the reference holds, ns.
        base: Vec<f64>,
        /// Fresh medians, ns.
        now: Vec<f64>,
        /// Share by which the case moves between sessions by itself; 0 where that is not known.
        noise_floor: f64,
    },
}

impl Remeasured {
    /// How many process runs of the run's program there are.
    pub fn runs(&self) -> usize {
        match self {
            Self::InTurn(pairs) => pairs.len(),
            Self::AgainstHeld { now, .. } => now.len(),
        }
    }
}

/// Judges suspects together, with a correction over all their tests.
pub fn judge_fresh(suspects: &[Remeasured], rules: &Rules) -> Vec<LatencyVerdict> {
    let rules = Rules {
        alpha: rules.alpha / rules.confirm_looks as f64,
        ..rules.clone()
    };
    let mut measured = Vec::new();
    let mut tests = Vec::new();
    for suspect in suspects {
        let (samples, paired) = match suspect {
            Remeasured::InTurn(both) => {
                let (base, now): (Vec<f64>, Vec<f64>) = both.iter().copied().unzip();
                (medians(&base, &now, 0.0, None, &rules), pairs(both, &rules))
            }
            Remeasured::AgainstHeld { base, now, noise_floor } => {
                (medians(base, now, *noise_floor, None, &rules), None)
            }
        };
        // Numbers that are no measurement as two samples are none as pairs.
        let paired = paired.filter(|_| matches!(samples, Measured::Tested(_)));
        tests.push(1 + usize::from(paired.is_some()));
        measured.push(samples);
        measured.extend(paired.map(Measured::Tested));
    }
    let mut verdicts = finish(measured, &rules).verdicts.into_iter();
    let of_suspect = tests.into_iter().map(|count| {
        let made: Vec<LatencyVerdict> = verdicts.by_ref().take(count).collect();
        let first = made.first().cloned().unwrap_or(LatencyVerdict::None);
        made.into_iter().skip(1).fold(first, either)
    });
    of_suspect.collect()
}

/// The verdict of two analyses of the same runs: one that is sure stands, unless the other is sure of the opposite.
fn either(samples: LatencyVerdict, pairs: LatencyVerdict) -> LatencyVerdict {
    match (&samples, &pairs) {
        (LatencyVerdict::Slower(a), LatencyVerdict::Faster(b))
        | (LatencyVerdict::Faster(a), LatencyVerdict::Slower(b)) => {
            let why = Undecided::SpreadTooWide {
                low: a.low.min(b.low),
                high: a.high.max(b.high),
            };
            LatencyVerdict::Undecided(why, None)
        }
        _ if sureness(&samples) < sureness(&pairs) => pairs,
        _ => samples,
    }
}

fn sureness(verdict: &LatencyVerdict) -> u8 {
    match verdict {
        LatencyVerdict::Slower(_) | LatencyVerdict::Faster(_) => 2,
        LatencyVerdict::Unchanged(_) => 1,
        LatencyVerdict::None | LatencyVerdict::Undecided(..) | LatencyVerdict::Implausible(..) => 0,
    }
}

impl LatencyVerdict {
    /// True for the verdict of a suspect of a slowdown that another look may decide: not sure yet, and
    /// beyond the floor as it looks, or with too wide a spread to say anything. Looking on only there costs
    /// little and clears nobody wrongly: whoever is not looked at again keeps the verdict that stands.
    pub fn asks_for_more(&self, rules: &Rules) -> bool {
        match self {
            Self::Unchanged(effect) => effect.ratio > 1.0 + effect.floor,
            // More runs narrow a spread, and a suspect that nobody can clear costs more than they do.
            Self::Undecided(Undecided::SpreadTooWide { .. }, _) => true,
            Self::Undecided(_, Some(reading)) => reading.ratio > 1.0 + rules.relative_floor,
            Self::None | Self::Slower(_) | Self::Faster(_) | Self::Undecided(_, None) | Self::Implausible(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Design;
    use super::*;

    /// Eighteen pairs, as of three looks, whose programs differ by `factor`, on a machine that drifts by half over the session.
    fn drifting(factor: f64) -> Remeasured {
        let wobble = [3, -2, 5, 0, -4, 1, 4, -3, 2, -1, 6, -5];
        let pairs = wobble.iter().cycle().zip(0..18).map(|(&wobble, turn)| {
            let machine = 1e6 * (1.0 + f64::from(turn) / 36.0);
            let own = 1.0 + f64::from(wobble) * 1e-3;
            (machine, machine * factor * own)
        });
        Remeasured::InTurn(pairs.collect())
    }

    #[test]
    fn a_drift_hides_no_slowdown_from_pairs() {
        let verdicts = judge_fresh(&[drifting(1.05), drifting(1.0)], &Rules::STANDARD);
        let LatencyVerdict::Slower(effect) = &verdicts[0] else {
            panic!("{}", verdicts[0]);
        };
        assert_eq!(effect.design, Design::Pairs);
        assert!(matches!(verdicts[1], LatencyVerdict::Unchanged(_)), "{}", verdicts[1]);
    }

    #[test]
    fn the_order_of_the_programs_mirrors_the_verdict() {
        for factor in [0.9, 1.0, 1.004, 1.05, 1.2] {
            let Remeasured::InTurn(pairs) = drifting(factor) else {
                panic!("both programs ran");
            };
            let swapped = pairs.iter().map(|&(base, now)| (now, base)).collect();
            let there = judge_fresh(&[Remeasured::InTurn(pairs)], &Rules::STANDARD);
            let back = judge_fresh(&[Remeasured::InTurn(swapped)], &Rules::STANDARD);
            let mirrored = match &back[0] {
                LatencyVerdict::Slower(_) => "faster",
                LatencyVerdict::Faster(_) => "slower",
                other => other.token(),
            };
            assert_eq!(there[0].token(), mirrored, "×{factor}: {} {}", there[0], back[0]);
        }
    }

    #[test]
    fn numbers_that_no_clock_gives_are_named() {
        for (bad, words) in [
            (0.0, "zero"),
            (f64::NAN, "NaN"),
            (-1.0, "negative"),
            (1e-9, "nanosecond"),
        ] {
            let pairs = vec![(1e6, 2e6), (bad, 2e6), (1e6, 2e6)];
            let verdict = judge_fresh(&[Remeasured::InTurn(pairs)], &Rules::STANDARD).remove(0);
            assert!(verdict.to_string().contains(words), "{verdict}");
        }
        let none = judge_fresh(&[Remeasured::InTurn(Vec::new())], &Rules::STANDARD);
        assert_eq!(none, [LatencyVerdict::None]);
    }

    #[test]
    fn only_what_looks_slow_is_looked_at_again() {
        let rules = Rules::STANDARD;
        let two = |ratio: f64| vec![(1e6, 1e6 * ratio), (1e6, 1e6 * ratio + 1.0)];
        let verdict = |ratio| judge_fresh(&[Remeasured::InTurn(two(ratio))], &rules).remove(0);
        assert!(verdict(1.05).asks_for_more(&rules));
        assert!(!verdict(1.01).asks_for_more(&rules));
        assert!(!verdict(0.95).asks_for_more(&rules));
        let sure = judge_fresh(&[drifting(1.2)], &rules).remove(0);
        assert!(!sure.asks_for_more(&rules), "{sure}");
    }
}
