//! Cores that stay where they are.

use std::sync::{Arc, Mutex};

use ring_runtime::Runtime;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu};

use crate::support::{config, limits, vector};

/// What the calling thread may use.
fn usable() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("this system has affinities");
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// The processors of the cores that ran blocks, of the program, and of its thread afterwards.
fn processors(first: Option<usize>, cores: usize) -> (Vec<Vec<usize>>, Vec<usize>, Vec<usize>) {
    let mut config = config(limits(4096, 8, 16), cores);
    config.first_processor = first;
    let mut runtime = Runtime::new(config).expect("a valid configuration");
    let (seen, mut program) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    let report = runtime.run(|o| {
        program = usable();
        let seen = Arc::clone(&seen);
        // Blocks that start together are on as many cores.
        let gang = vector("gang").blocks(cores).sync_start().run(move |_| {
            assert!(usable().contains(&sched_getcpu()));
            seen.lock().expect("nothing panics under it").push(usable());
        });
        o.submit(gang).map(drop)
    });
    assert!(report.passed(), "{:?}", report.end);
    let mut seen = seen.lock().expect("nothing panics under it").clone();
    seen.sort();
    (seen, program, usable())
}

#[test]
fn cores_stay_on_processors_of_their_own() {
    let all = usable();
    let expected = |first: usize, cores: usize| {
        let mut own: Vec<Vec<usize>> = (0..cores).map(|core| vec![all[(first + core) % all.len()]]).collect();
        own.sort();
        own
    };
    // More cores than processors share them, from the first one again; ranks begin at one of their own.
    for (first, cores) in [(0, 2), (1, 2), (0, all.len() + 1), (all.len() + 1, 2)] {
        let (seen, program, after) = processors(Some(first), cores);
        assert_eq!(seen, expected(first, cores), "from {first}, {cores} cores");
        assert_eq!(program, [all[first % all.len()]]);
        assert_eq!(after, all, "the caller's thread has its processors back");
    }
}

#[test]
fn the_system_places_cores_that_nobody_placed() {
    let all = usable();
    let (seen, program, after) = processors(None, 2);
    assert_eq!(seen, [all.clone(), all.clone()]);
    assert_eq!((program, after), (all.clone(), all));
}
