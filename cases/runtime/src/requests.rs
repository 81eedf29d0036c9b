//! What a program asks of the heaps, and the least heap that holds it.
//!
//! Where blocks go depends on the order of the requests alone, and so does whether a program gets stuck: that is decided
//! only once everything that can be freed has been, which are the tasks before the oldest one that an open scope holds.
//! The least heap of a ring can therefore be computed from one run with ample rings. It can't be read off the
//! high-water: where scopes stream through a ring, the rest of the heap is lost when a block does not fit there, and a
//! block may not end where the tail stands.

use crate::heap::Heap;
use crate::ids::RingId;

/// One step of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A scope was opened.
    Begin,
    /// The innermost scope was closed.
    End,
    /// A task of the innermost scope was submitted, or an allocation made.
    Request { ring: RingId, bytes: u64 },
}

/// The requests of a run and the scopes around them, in the order of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    steps: Vec<Step>,
}

/// What concerns one ring.
enum Turn {
    /// The next task asks for so many bytes.
    Request(u64),
    /// These tasks are let go of by their scope.
    Release(Vec<usize>),
}

/// Resolution of [`Requests::least_heap`]: outputs are padded to multiples of this.
const GRAIN: u64 = 1024;

impl Requests {
    pub(crate) fn begin(&mut self) {
        self.steps.push(Step::Begin);
    }

    pub(crate) fn end(&mut self) {
        self.steps.push(Step::End);
    }

    pub(crate) fn request(&mut self, ring: RingId, bytes: u64) {
        self.steps.push(Step::Request { ring, bytes });
    }

    /// Whether the program gets through with a heap of so many bytes for `ring`, and enough of everything else.
    pub fn fits(&self, ring: RingId, heap: u64) -> bool {
        run(&self.turns(ring), heap)
    }

    /// The least heap of `ring` that the program gets through with, a multiple of 1024 bytes; 1024 where it asks for none.
    ///
    /// No threshold: a larger heap may fail again, since it is the size that decides what is lost at the end.
    pub fn least_heap(&self, ring: RingId) -> u64 {
        let turns = self.turns(ring);
        let held = most_held(&turns).max(GRAIN).next_multiple_of(GRAIN);
        (held..)
            .step_by(GRAIN as usize)
            .find(|heap| run(&turns, *heap))
            .expect("a heap for all requests together holds them")
    }

    fn turns(&self, ring: RingId) -> Vec<Turn> {
        let (mut turns, mut open, mut next) = (Vec::new(), Vec::new(), 0);
        for step in &self.steps {
            match *step {
                Step::Begin => open.push(Vec::new()),
                Step::End => {
                    let held: Vec<usize> = open.pop().expect("only open scopes are closed");
                    if !held.is_empty() {
                        turns.push(Turn::Release(held));
                    }
                }
                Step::Request { ring: of, bytes } if of == ring => {
                    open.last_mut().expect("the root scope is open").push(next);
                    next += 1;
                    turns.push(Turn::Request(bytes));
                }
                Step::Request { .. } => {}
            }
        }
        turns
    }
}

/// Most bytes that open scopes hold at a time: less can't do.
fn most_held(turns: &[Turn]) -> u64 {
    let (mut bytes, mut held, mut most) = (Vec::new(), 0, 0);
    for turn in turns {
        match turn {
            Turn::Request(request) => {
                bytes.push(*request);
                held += request;
                most = most.max(held);
            }
            Turn::Release(tasks) => held -= tasks.iter().map(|task| bytes[*task]).sum::<u64>(),
        }
    }
    most
}

/// Whether all requests find room, each once everything is freed that can be.
fn run(turns: &[Turn], size: u64) -> bool {
    let mut heap = Heap::new(size);
    // Of each task: where its block ends, and whether its scope has let go of it.
    let (mut ends, mut released, mut last_alive) = (Vec::new(), Vec::new(), 0);
    for turn in turns {
        match turn {
            Turn::Release(tasks) => tasks.iter().for_each(|task| released[*task] = true),
            Turn::Request(bytes) => {
                while released.get(last_alive).is_some_and(|released| *released) {
                    last_alive += 1;
                }
                if last_alive > 0 {
                    heap.reclaim(last_alive as u32, ends[last_alive - 1]);
                }
                let Some(block) = heap.place(*bytes, ends.len() as u32) else {
                    return false;
                };
                ends.push(block.end);
                released.push(false);
            }
        }
    }
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Scopes one after the other, each with allocations of so many KiB, in ring 1.
    fn stages(stages: &[&[u64]]) -> Requests {
        let mut requests = Requests::default();
        requests.begin();
        for stage in stages {
            requests.begin();
            stage.iter().for_each(|kib| requests.request(RingId::ALL[1], kib << 10));
            requests.end();
        }
        requests.end();
        requests
    }

    #[track_caller]
    fn check(requests: &Requests, kib: u64) {
        assert_eq!(requests.least_heap(RingId::ALL[1]), kib << 10);
        assert!(!requests.fits(RingId::ALL[1], (kib - 1) << 10));
    }

    #[test]
    fn one_scope_needs_what_it_holds() {
        check(&stages(&[&[4, 8, 1]]), 13);
        assert_eq!(stages(&[&[4]]).least_heap(RingId::ALL[2]), 1024);
    }

    #[test]
    fn a_second_stage_may_not_end_where_it_began() {
        // With less than 17 it begins at the start, and would have to end at 13, where the tail stands.
        check(&stages(&[&[4, 8, 1], &[4, 8, 1]]), 17);
        // A single block that fills the heap starts over instead.
        check(&stages(&[&[13], &[13]]), 13);
    }

    #[test]
    fn what_does_not_fit_before_the_end_is_lost() {
        // Below 19 either the 8 begin at the start, with no room for all behind them, or the 6 do, before a tail at 5.
        check(&stages(&[&[5], &[8, 6]]), 19);
        check(&stages(&[&[5], &[8, 4]]), 12);
    }

    #[test]
    fn a_larger_heap_may_fail() {
        let requests = stages(&[&[2, 4], &[2, 3], &[2, 4]]);
        let fits = (6..11).map(|kib| requests.fits(RingId::ALL[1], kib << 10));
        assert_eq!(fits.collect::<Vec<_>>(), [false, true, false, true, true]);
        check(&requests, 7);
    }

    #[test]
    fn the_oldest_held_task_keeps_all_behind_it() {
        let mut requests = Requests::default();
        let ring = RingId::ALL[3];
        (0..4).for_each(|_| requests.begin());
        requests.request(ring, 1 << 10);
        for _ in 0..3 {
            requests.begin();
            requests.request(ring, 2 << 10);
            requests.end();
        }
        (0..4).for_each(|_| requests.end());
        // The scopes inside are over, but the first block is at the tail.
        assert_eq!(requests.least_heap(ring), 7 << 10);
    }
}
