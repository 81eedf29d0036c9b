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
    pub(crate) fn take(&self, wanted: Claim) -> Result<Ticket, Conflict> {
        let mut active = self.active.lock().expect(UNPOISONED);
        let in_the_way = |(_, held): &&(u64, Claim)| {
            (held.access == Access::Write || wanted.access == Access::Write) && held.region.overlaps(&wanted.region)
        };
        if let Some((_, held)) = active.claims.iter().find(in_the_way) {
            return Err(Conflict { wanted, held: *held });
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
