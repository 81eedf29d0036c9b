//! The ready queue hands each ticket to one core, with all that was written before it.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::queue::Queue;

#[test]
fn each_ticket_is_taken_once_and_published() {
    super::check(|| {
        let shared = Arc::new((Queue::new(2), [UnsafeCell::new(0), UnsafeCell::new(0)]));
        let take = |shared: &(Queue, [UnsafeCell<i32>; 2])| {
            let ticket = shared.0.pop()?;
            shared.1[ticket as usize].with_mut(|_| ());
            Some(ticket)
        };
        let core = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || take(&shared))
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1[1].with_mut(|_| ());
                assert!(shared.0.push(1));
            })
        };
        shared.1[0].with_mut(|_| ());
        assert!(shared.0.push(0));
        other.join().unwrap();
        let mut taken: Vec<u64> = core.join().unwrap().into_iter().collect();
        taken.extend(std::iter::from_fn(|| take(&shared)));
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

/// A cell that was emptied is filled again by the other side of the turn.
#[test]
fn a_full_queue_takes_more_once_a_ticket_was_taken() {
    super::check(|| {
        let queue = Arc::new(Queue::new(2));
        assert!(queue.push(0) && queue.push(1));
        let core = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.pop())
        };
        let pushed = queue.push(2);
        assert_eq!(core.join().unwrap(), Some(0));
        assert!(pushed || queue.push(2));
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(1), Some(2), None]);
    });
}
