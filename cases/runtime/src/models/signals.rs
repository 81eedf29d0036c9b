//! Signals lose no wake-up, and publish what was done before them.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;

use crate::halt::StopFlag;
use crate::signal::{Cmp, Signals};

/// A wait that nobody ends is a deadlock, which loom reports.
#[test]
fn a_satisfied_wait_sees_the_peers_writes() {
    super::check(|| {
        let signals = Signals::new(1);
        let window = Arc::new(UnsafeCell::new(0));
        let peer = {
            let (signals, window) = (signals.clone(), Arc::clone(&window));
            thread::spawn(move || {
                window.with_mut(|_| ());
                signals.add(0, 1);
            })
        };
        signals.wait(0, Cmp::Ge, 1, &StopFlag::new()).unwrap();
        window.with(|_| ());
        peer.join().unwrap();
    });
}

#[test]
fn every_waiter_is_woken() {
    super::check(|| {
        let signals = Signals::new(2);
        let waiter = {
            let signals = signals.clone();
            thread::spawn(move || signals.wait(1, Cmp::Eq, 1, &StopFlag::new()).unwrap())
        };
        let peer = {
            let signals = signals.clone();
            thread::spawn(move || {
                signals.set(0, 1);
                signals.set(1, 1);
            })
        };
        signals.wait(0, Cmp::Ge, 1, &StopFlag::new()).unwrap();
        waiter.join().unwrap();
        peer.join().unwrap();
    });
}

#[test]
fn ranks_in_lockstep_do_not_lose_each_other() {
    super::check(|| {
        let signals = Signals::new(2);
        let step = |signals: &Signals, rank: usize| {
            signals.add(rank, 1);
            signals.wait(1 - rank, Cmp::Ge, 1, &StopFlag::new()).unwrap();
        };
        let peer = {
            let signals = signals.clone();
            thread::spawn(move || step(&signals, 1))
        };
        step(&signals, 0);
        peer.join().unwrap();
    });
}
