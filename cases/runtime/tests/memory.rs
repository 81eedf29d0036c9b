//! Memory is bounded by the configured capacities, however many tasks run. A process of its own, since
//! it looks at the whole process.
#![cfg(target_os = "linux")]

use std::num::NonZeroUsize;

use ring_runtime::{RINGS, RingLimits, Runtime, RuntimeConfig, ScopeMode, Task, TensorSpec, Unit};

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .expect("second field")
        .parse()
        .expect("a number");
    pages * 4096
}

#[test]
fn many_tasks_take_no_more_memory_than_few() {
    let limits = RingLimits::new(1 << 20, 256, 256).expect("valid");
    let config = RuntimeConfig::new([limits; RINGS], NonZeroUsize::new(2).expect("not zero"));
    let mut runtime = Runtime::new(config).expect("valid");
    let mut run = |scopes: usize| {
        let report = runtime.run(|o| {
            for _ in 0..scopes {
                o.scope(ScopeMode::Auto, |o| {
                    let x = o.alloc(&[TensorSpec::bytes(4096)])?.remove(0);
                    for _ in 0..8 {
                        let change = Task::new("change", Unit::Vector)
                            .inout(&x)
                            .output(TensorSpec::bytes(64));
                        let x = x.clone();
                        o.submit(change.run(move |block| block.write::<i8>(&x).fill(1)))?;
                    }
                    o.submit(Task::new("read", Unit::Vector).input(&x).dependency_only())
                        .map(drop)
                })?;
            }
            Ok(())
        });
        assert!(report.passed(), "{:?}", report.end);
        assert!(report.tensormap_high_water <= 256 + 64);
    };
    run(1000);
    let few = resident();
    run(30_000);
    let many = resident();
    assert!(
        many < few + (4 << 20),
        "{few} bytes after 10 thousand tasks, {many} after 300 thousand more"
    );
}
