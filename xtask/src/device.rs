//! Devices of a platform: who holds which, and which are not to be trusted any more.
//!
//! A device on which a case hung is *suspect*: whatever the next case does there may be the fault
//! of the first. It is given out again only after a health check; without one, or when the check
//! fails, it is *quarantined*, and cases that can't do without it are blocked in the name of the
//! first case. That first name never changes: later failures are fallout.

use std::collections::BTreeMap;

use crate::case_id::CaseId;
use crate::detector::{self, Detector};
use crate::outcome::{Budget, Outcome};

/// How a device stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Free,
    Held,
    /// Being checked; the case that made it suspect.
    Suspect(CaseId),
    /// Not used again in this run; the case that made it suspect.
    Quarantined(CaseId),
}

/// All devices of the platform.
#[derive(Clone, Debug)]
pub struct Devices {
    states: BTreeMap<u32, State>,
}

/// The answer to a case that asks for devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allotment {
    /// It holds these now.
    Given(Vec<u32>),
    /// They will be free later.
    Wait,
    /// They never will; the case that is the cause.
    Blocked(CaseId),
}

impl Devices {
    /// All of `ids`, free.
    pub fn new(ids: &[u32]) -> Self {
        Self {
            states: ids.iter().map(|id| (*id, State::Free)).collect(),
        }
    }

    /// Takes `count` devices, or exactly `pinned` where that is not empty. A platform without devices gives none.
    pub fn take(&mut self, count: u32, pinned: &[u32]) -> Allotment {
        let need = self.need(count, pinned);
        if need == 0 {
            return Allotment::Given(Vec::new());
        }
        if let Some(culprit) = self.denied(count, pinned) {
            return Allotment::Blocked(culprit);
        }
        let mut free: Vec<u32> = self
            .eligible(pinned)
            .filter(|(_, state)| **state == State::Free)
            .map(|(id, _)| id)
            .collect();
        if free.len() < need {
            return Allotment::Wait;
        }
        free.truncate(need);
        for id in &free {
            self.states.insert(*id, State::Held);
        }
        Allotment::Given(free)
    }

    /// The case whose quarantine keeps what [`take`](Self::take) asks for from ever being given.
    pub fn denied(&self, count: u32, pinned: &[u32]) -> Option<CaseId> {
        let culprit = |state: &State| match state {
            State::Quarantined(case) => Some(case.clone()),
            State::Free | State::Held | State::Suspect(_) => None,
        };
        let usable = self
            .eligible(pinned)
            .filter(|(_, state)| culprit(state).is_none())
            .count();
        if usable >= self.need(count, pinned) {
            return None;
        }
        // None without a quarantine: more was asked for than there is, which the plan had checked.
        self.eligible(pinned).find_map(|(_, state)| culprit(state))
    }

    /// How many devices that is.
    fn need(&self, count: u32, pinned: &[u32]) -> usize {
        if self.states.is_empty() {
            0
        } else if pinned.is_empty() {
            count as usize
        } else {
            pinned.len()
        }
    }

    fn eligible(&self, pinned: &[u32]) -> impl Iterator<Item = (u32, &State)> {
        self.states
            .iter()
            .map(|(id, state)| (*id, state))
            .filter(move |(id, _)| pinned.is_empty() || pinned.contains(id))
    }

    /// Gives `devices` back after a case that left them well.
    pub fn give_back(&mut self, devices: &[u32]) {
        for id in devices {
            self.states.insert(*id, State::Free);
        }
    }

    /// Marks `devices` as suspect because of `case`.
    pub fn suspect(&mut self, devices: &[u32], case: &CaseId) {
        for id in devices {
            self.states.insert(*id, State::Suspect(case.clone()));
        }
    }

    /// Takes the result of a check of `device`.
    pub fn checked(&mut self, device: u32, health: Health) {
        let Some(State::Suspect(case)) = self.states.get(&device) else {
            return;
        };
        let state = match health {
            Health::Well => State::Free,
            Health::Bad => State::Quarantined(case.clone()),
        };
        self.states.insert(device, state);
    }

    /// Devices in quarantine, each with the case that is the cause.
    pub fn quarantined(&self) -> Vec<(u32, CaseId)> {
        let quarantined = self.states.iter().filter_map(|(id, state)| match state {
            State::Quarantined(case) => Some((*id, case.clone())),
            State::Free | State::Held | State::Suspect(_) => None,
        });
        quarantined.collect()
    }
}

/// What a health check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It may be used again.
    Well,
    /// It may not.
    Bad,
}

/// Whether `outcome` leaves the device in doubt: the case hung, stalled or met a fault of the device.
pub fn makes_suspect(outcome: &Outcome) -> bool {
    if !detector::sees(&Detector::SuspectDevice) {
        return false;
    }
    match outcome {
        // Waiting in the queue touches no device.
        Outcome::Timeout(budget) => *budget != Budget::Queue,
        Outcome::Stall(_) | Outcome::DeviceFault(_) => true,
        Outcome::Pass
        | Outcome::Deadlock(_)
        | Outcome::RuntimeError(_)
        | Outcome::Nan(_)
        | Outcome::Mismatch
        | Outcome::Oom(_)
        | Outcome::Crash(_)
        | Outcome::CompileError(_)
        | Outcome::SetupError(_)
        | Outcome::NoVerdict(_)
        | Outcome::ConfigNotApplied(_)
        | Outcome::Blocked(_)
        | Outcome::Skipped(_)
        | Outcome::Missing
        | Outcome::Interrupted => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(id: &str) -> CaseId {
        id.parse().unwrap()
    }

    #[test]
    fn devices_are_held_by_one_case_at_a_time() {
        let mut devices = Devices::new(&[0, 1, 2]);
        assert_eq!(devices.take(2, &[]), Allotment::Given(vec![0, 1]));
        assert_eq!(devices.take(2, &[]), Allotment::Wait);
        assert_eq!(devices.take(1, &[0]), Allotment::Wait);
        assert_eq!(devices.take(1, &[]), Allotment::Given(vec![2]));
        devices.give_back(&[0, 1]);
        assert_eq!(devices.take(1, &[1]), Allotment::Given(vec![1]));
        assert_eq!(Devices::new(&[]).take(1, &[]), Allotment::Given(vec![]));
    }

    #[test]
    fn a_quarantined_device_blocks_in_the_name_of_the_first_case() {
        let mut devices = Devices::new(&[0, 1]);
        assert_eq!(devices.take(1, &[]), Allotment::Given(vec![0]));
        devices.suspect(&[0], &case("s/first"));
        assert_eq!(devices.take(2, &[]), Allotment::Wait, "the check is under way");
        devices.checked(0, Health::Bad);
        assert_eq!(devices.take(2, &[]), Allotment::Blocked(case("s/first")));
        assert_eq!(devices.take(1, &[0]), Allotment::Blocked(case("s/first")));
        assert_eq!(
            devices.take(1, &[]),
            Allotment::Given(vec![1]),
            "the other one still serves"
        );
        devices.checked(0, Health::Well);
        assert_eq!(devices.quarantined(), [(0, case("s/first"))]);
    }

    #[test]
    fn a_device_that_is_well_is_used_again() {
        let mut devices = Devices::new(&[4]);
        devices.take(1, &[]);
        devices.suspect(&[4], &case("s/first"));
        devices.checked(4, Health::Well);
        assert_eq!(devices.take(1, &[]), Allotment::Given(vec![4]));
    }
}
