//! Who reads or writes which bytes of a memory right now.
//!
//! The claim list is what makes the tensor API safe. A guard that hands out references to bytes of
//! a memory holds a claim on them for its whole life, and a claim that would let a write meet
//! another access of the same byte is refused. Taking and releasing a claim both go through the
//! list's lock, so a claim made after another was released sees everything written under it.

use std::fmt;

use crate::region::Region;
use crate::sync::Mutex;

/// What a claim allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// On whose behalf a claim is made; names what an error message must name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimant {
    /// A block of a running task.
    Block { task: &'static str, block: usize },
    /// Code outside of any task.
    Outside,
}

/// One entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) region: Region,
    pub(crate) access: Access,
    pub(crate) claimant: Claimant,
    /// Name of the tensor.
    pub(crate) tensor: &'static str,
}

/// A claim that can't be granted, and the one in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) wanted: Claim,
    pub(crate) held: Claim,
}

/// Names a granted claim until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// The active claims of one memory.
#[derive(Debug)]
pub(crate) struct Claims {
    active: Mutex<Active>,
}

/// Few claims are active at a time (cores × arguments), so a vector beats any ordered structure.
#[derive(Debug)]
struct Active {
    issued: u64,
    claims: Vec<(u64, Claim)>,
}

/// The lock is never held across code that can panic.
const UNPOISONED: &str = "nothing panics while it holds the claim list";

impl Claims {
    pub(crate) fn new() -> Self {
        let claims = Vec::with_capacity(16);
        Self {
            active: Mutex::new(Active { issued: 0, claims }),
        }
    }

    /// Registers `wanted`, unless it writes what somebody else accesses or reads what somebody else writes.
    pub(crate) fn take(&self, wanted: Claim) -> Result<Ticket, Box<Conflict>> {
        let mut active = self.active.lock().expect(UNPOISONED);
        let in_the_way = |(_, held): &&(u64, Claim)| {
            (held.access == Access::Write || wanted.access == Access::Write) && held.region.overlaps(&wanted.region)
        };
        if let Some((_, held)) = active.claims.iter().find(in_the_way) {
            return Err(Box::new(Conflict { wanted, held: *held }));
        }
        active.issued += 1;
        let ticket = active.issued;
        active.claims.push((ticket, wanted));
        Ok(Ticket(ticket))
    }

    /// Ends a claim.
    pub(crate) fn release(&self, ticket: Ticket) {
        let mut active = self.active.lock().expect(UNPOISONED);
        // Guards mostly end in the reverse order of their making.
        if let Some(at) = active.claims.iter().rposition(|(held, _)| *held == ticket.0) {
            active.claims.swap_remove(at);
        }
    }
}

impl fmt::Display for Claimant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block { task, block } => write!(f, "block {block} of task `{task}`"),
            Self::Outside => f.write_str("code outside of any task"),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.access {
            Access::Read => "reads",
            Access::Write => "writes",
        };
        write!(f, "{} {verb} `{}` ({})", self.claimant, self.tensor, self.region)
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conflicting access: {}, while {}", self.wanted, self.held)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(region: Region, access: Access) -> Claim {
        Claim {
            region,
            access,
            claimant: Claimant::Outside,
            tensor: "t",
        }
    }

    const BYTES: usize = 96;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take(Region, Access),
        /// Releases the n-th of the claims that are held, modulo their number.
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let region = (0..40usize, 0..8usize, 0..6usize, 0..3usize)
            .prop_map(|(offset, row, rows, gap)| Region::new(offset, row, rows, row + gap));
        let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
        prop_oneof![
            3 => (region, access).prop_map(|(region, access)| Step::Take(region, access)),
            2 => (0..8usize).prop_map(Step::Release),
        ]
    }

    /// Bytes of a region, by asking for the overlap with each single byte; that this is exact is
    /// shown beside the region.
    fn bytes(region: Region) -> impl Iterator<Item = usize> {
        (0..BYTES).filter(move |byte| region.overlaps(&Region::dense(*byte, 1)))
    }

    proptest! {
        /// The list grants exactly what a table of readers and writers per byte allows.
        #[test]
        fn claims_are_granted_as_a_table_of_bytes_says(steps in prop::collection::vec(step(), 1..60)) {
            let claims = Claims::new();
            let (mut readers, mut written) = ([0u32; BYTES], [false; BYTES]);
            let mut held: Vec<(Ticket, Region, Access)> = Vec::new();
            for step in steps {
                match step {
                    Step::Take(region, access) => {
                        let free = bytes(region).all(|byte| !written[byte] && (access == Access::Read || readers[byte] == 0));
                        let taken = claims.take(claim(region, access));
                        prop_assert_eq!(taken.is_ok(), free);
                        let Ok(ticket) = taken else { continue };
                        held.push((ticket, region, access));
                        for byte in bytes(region) {
                            match access {
                                Access::Read => readers[byte] += 1,
                                Access::Write => written[byte] = true,
                            }
                        }
                    }
                    Step::Release(n) => {
                        if held.is_empty() {
                            continue;
                        }
                        let (ticket, region, access) = held.swap_remove(n % held.len());
                        claims.release(ticket);
                        for byte in bytes(region) {
                            match access {
                                Access::Read => readers[byte] -= 1,
                                Access::Write => written[byte] = false,
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_conflict_names_the_claim_in_the_way() {
        let claims = Claims::new();
        let _other = claims.take(claim(Region::dense(64, 8), Access::Write)).unwrap();
        let ticket = claims.take(claim(Region::dense(0, 8), Access::Read)).unwrap();
        let wanted = claim(Region::dense(4, 8), Access::Write);
        let conflict = claims.take(wanted).unwrap_err();
        assert_eq!(
            *conflict,
            Conflict {
                wanted,
                held: claim(Region::dense(0, 8), Access::Read)
            }
        );
        claims.release(ticket);
        claims.take(wanted).unwrap();
    }
}
