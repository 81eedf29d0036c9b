//! A declared expectation against what happened.

use jiff::civil::Date;

use crate::detector::{self, Detector, Part};
use crate::outcome::{Outcome, OutcomeKind};
use crate::record::{Evidence, Expectation, Expected};
use crate::suite::expect::{self, Reported};

/// How `outcome` stands to what the case declares, on `today`.
pub fn judge(
    declared: Option<&expect::Expectation>,
    outcome: &Outcome,
    evidence: &Evidence,
    today: Date,
) -> Expectation {
    let Some(declared) = declared else {
        return Expectation::None;
    };
    let expected = Expected {
        outcome: declared.outcome.token().into(),
        cause: declared.cause.clone(),
        ring: declared.ring,
        shows: declared.shows.clone(),
        issue: declared.issue.clone(),
        until: declared.until.map(|until| until.to_string()),
    };
    let judged = if declared.expired(today) {
        Expectation::Expired(expected)
    } else if declared.met_by(outcome, evidence) {
        Expectation::Met(expected)
    } else if *outcome == Outcome::Pass
        && declared.outcome != OutcomeKind::Pass
        && detector::sees(&Detector::Expectation(Part::Pass))
    {
        Expectation::UnexpectedPass(expected)
    } else {
        Expectation::NotMet(expected)
    };
    // A suite that tests the harness wants one of the judgements that speak against a declaration: seen, it is
    // what was expected; not seen, it is not, whatever else was.
    match (declared.reported, judged) {
        (None, judged) => judged,
        (Some(Reported::Expired), Expectation::Expired(expected))
        | (Some(Reported::UnexpectedPass), Expectation::UnexpectedPass(expected))
        | (Some(Reported::NotMet), Expectation::NotMet(expected)) => Expectation::Met(expected),
        (
            Some(_),
            Expectation::Met(expected)
            | Expectation::NotMet(expected)
            | Expectation::UnexpectedPass(expected)
            | Expectation::Expired(expected),
        ) => Expectation::NotMet(expected),
        (Some(_), Expectation::None) => unreachable!("a declaration is judged as one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{DeadlockCause, StallCause};
    use crate::record::{Detail, EvidenceLine, RingShortage};

    #[test]
    fn each_way_to_meet_an_expectation_or_not() {
        let declared = expect::Expectation {
            outcome: OutcomeKind::Deadlock,
            cause: Some("heap-ring".into()),
            ring: Some(1),
            shows: Vec::new(),
            issue: None,
            until: Some("2026-12-31".parse().unwrap()),
            reported: None,
        };
        let on_ring = |ring| Evidence {
            detail: Some(Detail::Ring(RingShortage {
                ring: Some(ring),
                ..RingShortage::default()
            })),
            ..Evidence::default()
        };
        let heap = Outcome::Deadlock(DeadlockCause::HeapRing);
        let today: Date = "2026-12-31".parse().unwrap();
        let judged = |outcome: &Outcome, ring, today| judge(Some(&declared), outcome, &on_ring(ring), today);
        assert!(matches!(judged(&heap, 1, today), Expectation::Met(_)));
        assert!(matches!(judged(&heap, 2, today), Expectation::NotMet(_)));
        assert!(matches!(
            judged(&Outcome::Stall(StallCause::S1), 1, today),
            Expectation::NotMet(_)
        ));
        assert!(matches!(
            judged(&Outcome::Pass, 1, today),
            Expectation::UnexpectedPass(_)
        ));
        assert!(matches!(
            judged(&heap, 1, today.tomorrow().unwrap()),
            Expectation::Expired(_)
        ));
        let wanting = |reported| expect::Expectation {
            reported: Some(reported),
            ..declared.clone()
        };
        let (late, met) = (today.tomorrow().unwrap(), on_ring(1));
        let expired = wanting(Reported::Expired);
        assert!(matches!(judge(Some(&expired), &heap, &met, late), Expectation::Met(_)));
        assert!(matches!(
            judge(Some(&expired), &heap, &met, today),
            Expectation::NotMet(_)
        ));
        let gone = wanting(Reported::UnexpectedPass);
        assert!(matches!(
            judge(Some(&gone), &Outcome::Pass, &met, today),
            Expectation::Met(_)
        ));
        assert!(matches!(judge(Some(&gone), &heap, &met, today), Expectation::NotMet(_)));
        let other = wanting(Reported::NotMet);
        assert!(matches!(
            judge(Some(&other), &heap, &on_ring(2), today),
            Expectation::Met(_)
        ));
        assert!(matches!(
            judge(Some(&other), &heap, &met, today),
            Expectation::NotMet(_)
        ));
        assert_eq!(judge(None, &heap, &on_ring(1), today), Expectation::None);
    }

    #[test]
    fn evidence_shows_a_text_in_its_summary_its_lines_or_its_fallout() {
        let declared = |text: &str| expect::Expectation {
            outcome: OutcomeKind::Pass,
            cause: None,
            ring: None,
            shows: vec!["matches".into(), text.into()],
            issue: None,
            until: None,
            reported: None,
        };
        let evidence = Evidence {
            summary: "`y` matches the golden".into(),
            lines: vec![EvidenceLine {
                line: 3,
                text: "the last words".into(),
            }],
            fallout: vec!["leaked process 7 `sleep`".into()],
            ..Evidence::default()
        };
        for (text, met) in [("leaked process", true), ("last words", true), ("mismatch", false)] {
            assert_eq!(declared(text).met_by(&Outcome::Pass, &evidence), met, "{text}");
        }
    }
}
