//! Open scopes and the tasks that they hold.

use crate::ids::{RingId, TaskId};
use crate::report::ScopePeak;

/// Whether the runtime finds the dependencies of a scope's tasks, or the program states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeMode {
    /// Owners and the tensor map are consulted.
    Auto,
    /// Only explicit dependencies count. Scopes inside must be manual too.
    Manual,
}

/// Most scopes that may be open inside the root scope.
pub const MAX_NESTED_SCOPES: usize = 63;

/// An open scope.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) mode: ScopeMode,
    pub(crate) ring: RingId,
    /// Where the scope's tasks begin in the list of all held tasks.
    begin: usize,
    record: ScopePeak,
}

/// The stack of open scopes. The tasks of all of them are one list, in order of submission; only the
/// innermost scope grows, and a closed one is cut off, so each scope's tasks are adjacent.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    open: Vec<Scope>,
    tasks: Vec<TaskId>,
    opened: usize,
}

impl Scopes {
    /// Forgets everything; keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.tasks.clear();
        self.opened = 0;
    }

    /// Depth of the innermost scope; the root's is 0.
    pub(crate) fn depth(&self) -> usize {
        self.open.len().saturating_sub(1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(crate) fn innermost(&self) -> &Scope {
        self.open.last().expect("the root scope is open while the program runs")
    }

    /// Tasks held by all open scopes.
    pub(crate) fn held(&self) -> usize {
        self.tasks.len()
    }

    /// Tasks in the innermost scope itself.
    pub(crate) fn tasks_in_innermost(&self) -> usize {
        self.tasks.len() - self.innermost().begin
    }

    /// The oldest task of the shallowest open scope that is mapped to `ring`.
    pub(crate) fn oldest_held(&self, ring: RingId) -> Option<TaskId> {
        let scope = self.open.iter().find(|scope| scope.ring == ring)?;
        self.tasks.get(scope.begin).copied()
    }

    /// Opens a scope on the ring that its depth maps to; `heap_used` is that ring's use now, in bytes.
    pub(crate) fn push(&mut self, mode: ScopeMode, heap_used: impl FnOnce(RingId) -> u64) {
        let depth = self.open.len();
        let ring = RingId::of_depth(depth);
        let used = heap_used(ring);
        self.open.push(Scope {
            mode,
            ring,
            begin: self.tasks.len(),
            record: ScopePeak {
                order: self.opened,
                depth,
                ring,
                heap_begin: used,
                heap_end: used,
                heap_peak: used,
                tasks: 0,
            },
        });
        self.opened += 1;
    }

    /// Adds a task to the innermost scope; `heap_used` is the use of its ring now, in bytes.
    pub(crate) fn hold(&mut self, task: TaskId, heap_used: u64) {
        self.tasks.push(task);
        let scope = self.open.last_mut().expect("tasks are submitted inside of a scope");
        scope.record.tasks += 1;
        scope.record.heap_peak = scope.record.heap_peak.max(heap_used);
    }

    /// Closes the innermost scope, handing each of its tasks to `release` in order, and returns its record.
    pub(crate) fn pop(&mut self, heap_used: impl FnOnce(RingId) -> u64, release: impl FnMut(TaskId)) -> ScopePeak {
        let mut scope = self.open.pop().expect("only open scopes are closed");
        self.tasks.drain(scope.begin..).for_each(release);
        scope.record.heap_end = heap_used(scope.ring);
        if let Some(outer) = self.open.last_mut().filter(|outer| outer.ring == scope.ring) {
            outer.record.heap_peak = outer.record.heap_peak.max(scope.record.heap_peak);
        }
        scope.record
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn task(ring: usize, local: u32) -> TaskId {
        TaskId::new(RingId::ALL[ring], local)
    }

    fn nested(depth: usize) -> Scopes {
        let mut scopes = Scopes::default();
        (0..=depth).for_each(|_| scopes.push(ScopeMode::Auto, |_| 0));
        scopes
    }

    #[test]
    fn only_the_innermost_scope_is_counted() {
        let mut scopes = nested(1);
        scopes.hold(task(1, 0), 0);
        scopes.push(ScopeMode::Auto, |_| 0);
        assert_eq!(scopes.tasks_in_innermost(), 0);
        scopes.hold(task(2, 0), 0);
        scopes.pop(|_| 0, |_| ());
        assert_eq!(scopes.tasks_in_innermost(), 1);
    }

    #[test]
    fn ring_three_is_held_by_its_shallowest_scope_issue_1610() {
        let mut scopes = nested(3);
        scopes.hold(task(3, 5), 0);
        scopes.push(ScopeMode::Auto, |_| 0);
        scopes.hold(task(3, 6), 0);
        assert_eq!(scopes.oldest_held(RingId::ALL[3]), Some(task(3, 5)));
        assert_eq!(
            scopes.oldest_held(RingId::ALL[0]).map(TaskId::ring),
            Some(RingId::ALL[3])
        );
    }

    #[test]
    fn tasks_are_released_in_order() {
        let mut scopes = nested(0);
        (0..3).for_each(|local| scopes.hold(task(0, local), 0));
        let mut released = Vec::new();
        scopes.pop(|_| 0, |task| released.push(task.local()));
        assert_eq!(released, [0, 1, 2]);
        assert!(scopes.is_empty());
    }

    #[test]
    fn a_peak_inside_counts_for_the_outer_scope_of_the_same_ring() {
        let mut scopes = nested(4);
        scopes.hold(task(3, 0), 4096);
        assert_eq!(scopes.pop(|_| 0, |_| ()).heap_peak, 4096);
        assert_eq!(scopes.pop(|_| 0, |_| ()).heap_peak, 4096);
        assert_eq!(scopes.pop(|_| 0, |_| ()).heap_peak, 0);
    }
}
