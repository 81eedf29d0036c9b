//! A slot is reused only when nobody needs it, and each consumer runs once, after its producers.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::fanout::{Entry, EntryRef, Fanout};
use crate::life::Life;

/// A slot with its outputs; loom reports an access of them that races with another.
#[derive(Default)]
struct Task {
    life: Life,
    fanout: Fanout,
    outputs: UnsafeCell<u32>,
}

impl Task {
    fn begun() -> Self {
        let task = Self::default();
        task.life.begin();
        task.fanout.begin();
        task
    }

    /// What a core does: write the outputs, end the list of consumers, complete.
    fn run(&self) -> Option<EntryRef> {
        self.outputs.with_mut(|_| ());
        let waiting = self.fanout.close();
        self.life.complete();
        waiting
    }
}

#[test]
fn outputs_are_reused_after_the_last_user_only() {
    super::check(|| {
        let task = Arc::new(Task::begun());
        assert!(task.life.claim(), "a pending task can be claimed");
        let producer = {
            let task = Arc::clone(&task);
            thread::spawn(move || {
                task.outputs.with_mut(|_| ());
                task.life.complete()
            })
        };
        let consumer = {
            let task = Arc::clone(&task);
            thread::spawn(move || {
                // Its own start is ordered by the fan-out list; here it looks for itself.
                if task.life.load().completed() {
                    task.outputs.with(|_| ());
                }
                task.life.release()
            })
        };
        let mut consumed = usize::from(task.life.release_scope());
        if task.life.load().consumed() {
            task.outputs.with_mut(|_| ());
        }
        consumed += usize::from(producer.join().unwrap()) + usize::from(consumer.join().unwrap());
        assert!(task.life.load().consumed());
        assert_eq!(consumed, 1, "exactly one step consumes a task");
        task.outputs.with_mut(|_| ());
    });
}

/// The orchestrator claims a task whose scope has ended while a core completes it.
#[test]
fn a_claim_is_refused_or_keeps_the_task() {
    super::check(|| {
        let task = Arc::new(Task::begun());
        task.life.release_scope();
        let core = {
            let task = Arc::clone(&task);
            thread::spawn(move || task.life.complete())
        };
        let claimed = task.life.claim();
        let consumed = core.join().unwrap();
        assert_eq!(task.life.load().consumed(), !claimed);
        assert_eq!(consumed, !claimed);
        if claimed {
            assert!(task.life.release());
        }
        assert!(!task.life.claim(), "a consumed task can't come back");
    });
}

/// Two producers complete while the orchestrator links their common consumer.
#[test]
fn a_consumer_becomes_ready_once_and_after_all_its_producers() {
    super::check(|| {
        struct Graph {
            producers: [Task; 2],
            entries: [Entry; 2],
            pending: AtomicU32,
        }
        impl Graph {
            /// One thing less to wait for; says whether the consumer ran.
            fn settle(&self) -> bool {
                let last = self.pending.fetch_sub(1, Ordering::AcqRel) == 1;
                if last {
                    for producer in &self.producers {
                        producer.outputs.with(|_| ());
                    }
                }
                last
            }
        }
        let graph = Arc::new(Graph {
            producers: [Task::begun(), Task::begun()],
            entries: [Entry::default(), Entry::default()],
            pending: AtomicU32::new(1),
        });
        let cores: Vec<_> = (0..2)
            .map(|index| {
                let graph = Arc::clone(&graph);
                thread::spawn(move || {
                    let waiting = graph.producers[index].run();
                    let consumer = waiting.map(|name| graph.entries[name.index()].read());
                    assert!(matches!(consumer, None | Some((9, None))));
                    consumer.is_some() && graph.settle()
                })
            })
            .collect();
        for (index, producer) in graph.producers.iter().enumerate() {
            graph.pending.fetch_add(1, Ordering::Relaxed);
            if !producer.fanout.push(EntryRef::new(0, index), &graph.entries[index], 9) {
                graph.pending.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let mut runs = usize::from(graph.settle());
        for core in cores {
            runs += usize::from(core.join().unwrap());
        }
        assert_eq!(runs, 1);
    });
}
