//! Claims keep two threads from accessing a byte at the same time, and order those that follow each other.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::claims::{Access, Claim, Claimant, Claims};
use crate::region::Region;

/// Two rows of a matrix; loom reports an access of one that races with another.
struct Shared {
    claims: Claims,
    rows: [UnsafeCell<u32>; 2],
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            claims: Claims::new(),
            rows: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    /// Accesses the rows `first..=last` if the claim is granted; says whether it was.
    fn access(&self, access: Access, first: usize, last: usize) -> bool {
        let wanted = Claim {
            region: Region::dense(first * 8, (last + 1 - first) * 8),
            access,
            claimant: Claimant::Outside,
            tensor: "t",
        };
        let Ok(ticket) = self.claims.take(wanted) else {
            return false;
        };
        for row in &self.rows[first..=last] {
            match access {
                Access::Read => row.with(|_| ()),
                Access::Write => row.with_mut(|_| ()),
            }
        }
        self.claims.release(ticket);
        true
    }
}

#[test]
fn a_granted_write_excludes_every_other_access() {
    super::check(|| {
        let shared = Shared::new();
        let others: Vec<_> = [Access::Write, Access::Read]
            .into_iter()
            .map(|access| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.access(access, 0, 1))
            })
            .collect();
        shared.access(Access::Write, 1, 1);
        for other in others {
            other.join().unwrap();
        }
        assert!(shared.access(Access::Write, 0, 1), "everything was released");
    });
}

#[test]
fn disjoint_writes_and_common_reads_are_always_granted() {
    super::check(|| {
        let shared = Shared::new();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.access(Access::Write, 0, 0))
        };
        assert!(shared.access(Access::Write, 1, 1));
        assert!(other.join().unwrap());

        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.access(Access::Read, 0, 1))
        };
        assert!(shared.access(Access::Read, 0, 0));
        assert!(other.join().unwrap());
    });
}
