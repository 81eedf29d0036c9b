//! Waiting for room: slots, heap, pools, tensor-map entries.
//!
//! A call that finds no room looks again whenever tasks retire. It gives up when the oldest live task
//! of the ring is one that an open scope holds: no scope can end before the call returns, so nothing
//! of that ring will ever be freed. That is a proof and needs no waiting. Otherwise it gives up when
//! nothing of the ring was reclaimed for the allocation time limit.

use std::time::Instant;

use crate::fatal::{FatalCode, Proof, Resource};
use crate::halt::Halted;
use crate::heap::Block;
use crate::ids::{RingId, TaskId};
use crate::orchestrator::{Orchestrator, Patience};
use crate::ring::Ring;

/// What a call waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pool {
    /// Dependency entries, freed in steps; a head held by an open scope proves that none come.
    Deps,
    /// Spilled fan-in edges; only the time limit ends this wait.
    Spill,
}

impl Orchestrator<'_> {
    /// A slot and `request` bytes of heap for the next task of `ring`.
    pub(crate) fn admit(&mut self, ring: RingId, request: u64, name: &'static str) -> Result<(TaskId, Block), Halted> {
        let shared = self.shared;
        let book = &mut self.book.rings[ring.index()];
        book.retire(shared);
        if book.has_slot()
            && let Some(admitted) = book.admit(request, name, shared)
        {
            return Ok(admitted);
        }
        self.admit_later(ring, request, name)
    }

    #[cold]
    fn admit_later(&mut self, ring: RingId, request: u64, name: &'static str) -> Result<(TaskId, Block), Halted> {
        let shared = self.shared;
        let mut stand = Stand::new();
        loop {
            let book = &mut self.book.rings[ring.index()];
            let slot = book.has_slot();
            if slot && let Some(admitted) = book.admit(request, name, shared) {
                return Ok(admitted);
            }
            if let Some(proof) = self.look_again(ring, &mut stand, true)? {
                let book = &self.book.rings[ring.index()];
                let state = book.state(request);
                let (code, resource, message) = if slot {
                    let message = format!(
                        "`{name}` requests {request} bytes; {} of {} are free",
                        state.free, state.capacity
                    );
                    (FatalCode::HeapRingDeadlock, Resource::Heap(state), message)
                } else {
                    let message = format!(
                        "`{name}` finds no task slot; {} of {} are live",
                        state.active(),
                        state.window
                    );
                    (FatalCode::FlowControlDeadlock, Resource::Slots(state), message)
                };
                return Err(self.fatal(code, ring, Some(proof), resource, Some(name), message));
            }
        }
    }

    /// Room for `needed` entries of a pool of `ring`.
    pub(crate) fn ensure(&mut self, ring: RingId, pool: Pool, needed: u32, name: &'static str) -> Result<(), Halted> {
        let mut stand = Stand::new();
        loop {
            let book = &mut self.book.rings[ring.index()];
            let fits = match pool {
                Pool::Deps => {
                    book.deps.fits(needed) || {
                        book.reclaim_deps();
                        book.deps.fits(needed)
                    }
                }
                Pool::Spill => book.spill.fits_one(),
            };
            if fits {
                return Ok(());
            }
            let provable = matches!(pool, Pool::Deps);
            if let Some(proof) = self.look_again(ring, &mut stand, provable)? {
                let book = &self.book.rings[ring.index()];
                let (counters, what) = match pool {
                    Pool::Deps => (book.deps.counters(), "dependency"),
                    Pool::Spill => (book.spill.counters(), "fan-in spill"),
                };
                let state = book.pool_state(counters, needed);
                let resource = match pool {
                    Pool::Deps => Resource::DepPool(state),
                    Pool::Spill => Resource::FaninPool(state),
                };
                let message = format!(
                    "`{name}` needs {needed} {what} entries; {} of {} are in use",
                    state.used, state.capacity
                );
                return Err(self.fatal(
                    FatalCode::DepPoolOverflow,
                    ring,
                    Some(proof),
                    resource,
                    Some(name),
                    message,
                ));
            }
        }
    }

    /// Room for `needed` tensor-map entries.
    pub(crate) fn ensure_map(&mut self, ring: RingId, needed: usize, name: &'static str) -> Result<(), Halted> {
        if self.book.map.fits(needed) {
            return Ok(());
        }
        let shared = self.shared;
        let limit = shared.config.timeouts.alloc;
        let mut patience = Patience::default();
        let mut since = Instant::now();
        loop {
            let before = self.book.map.live();
            for id in RingId::ALL {
                self.book.rings[id.index()].retire(shared);
                self.clean_map(id, true);
            }
            if self.book.map.fits(needed) {
                return Ok(());
            }
            self.check_running()?;
            if self.book.map.live() < before {
                since = Instant::now();
                patience.renew();
            }
            let waited = since.elapsed();
            if waited >= limit {
                let (used, capacity) = (self.book.map.live(), self.book.map.capacity());
                let message = format!("`{name}` needs {needed} tensor-map entries; {used} of {capacity} are in use");
                let resource = Resource::TensorMap { needed, used, capacity };
                return Err(self.fatal(
                    FatalCode::TensorMapOverflow,
                    ring,
                    Some(Proof::Backstop),
                    resource,
                    Some(name),
                    message,
                ));
            }
            let heads = self.book.rings.each_ref().map(Ring::head);
            patience.wait(shared, limit.saturating_sub(waited), || {
                heads
                    .iter()
                    .flatten()
                    .any(|head| shared.slot(*head).life.load().consumed())
            });
        }
    }

    /// Reclaims what can be reclaimed. If that is nothing, waits a little, or says why it is time to give up.
    fn look_again(&mut self, ring: RingId, stand: &mut Stand, provable: bool) -> Result<Option<Proof>, Halted> {
        let shared = self.shared;
        // An error that was latched elsewhere comes first: this wait may be its consequence.
        self.check_running()?;
        let book = &mut self.book.rings[ring.index()];
        if book.retire(shared) {
            stand.since = Instant::now();
            stand.patience.renew();
            return Ok(None);
        }
        let head = book.head();
        if provable && head.is_some() && head == self.book.scopes.oldest_held(ring) {
            return Ok(Some(Proof::Structural));
        }
        let (limit, waited) = (shared.config.timeouts.alloc, stand.since.elapsed());
        if waited >= limit {
            return Ok(Some(Proof::Backstop));
        }
        stand.patience.wait(shared, limit.saturating_sub(waited), || {
            head.is_some_and(|head| shared.slot(head).life.load().consumed())
        });
        Ok(None)
    }
}

/// A wait for one ring: since when nothing of it was reclaimed.
struct Stand {
    since: Instant,
    patience: Patience,
}

impl Stand {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            patience: Patience::default(),
        }
    }
}
