//! A declared expectation against what happened.

use jiff::civil::Date;

use crate::outcome::Outcome;
use crate::record::{Detail, Evidence, Expectation, Expected};
use crate::suite::expect;

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
        issue: declared.issue.clone(),
        until: declared.until.map(|until| until.to_string()),
    };
    let ring = match &evidence.detail {
        Some(Detail::Ring(shortage)) => shortage.ring,
        Some(Detail::Stall(_) | Detail::Tensors(_)) | None => None,
    };
    if declared.expired(today) {
        Expectation::Expired(expected)
    } else if declared.met_by(outcome, ring) {
        Expectation::Met(expected)
    } else if *outcome == Outcome::Pass {
        Expectation::UnexpectedPass(expected)
    } else {
        Expectation::NotMet(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{DeadlockCause, OutcomeKind, StallCause};
    use crate::record::RingShortage;

    #[test]
    fn each_way_to_meet_an_expectation_or_not() {
        let declared = expect::Expectation {
            outcome: OutcomeKind::Deadlock,
            cause: Some("heap-ring".into()),
            ring: Some(1),
            issue: None,
            until: Some("2026-12-31".parse().unwrap()),
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
        assert_eq!(judge(None, &heap, &on_ring(1), today), Expectation::None);
    }
}
