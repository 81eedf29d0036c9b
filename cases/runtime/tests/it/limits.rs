//! What the runtime refuses, with the original's codes.

use ring_runtime::{Fatal, MAX_ARGUMENTS, Proof, Resource, Runtime, ScopeMode, Tensor, TensorSpec};

use crate::support::{QUICK, config, fatal, limits, runtime, vector, verdict};

#[test]
fn code_1_a_scope_holds_at_most_window_minus_one_tasks() {
    let mut runtime = runtime(4096, 8, 16);
    let fill = |n: usize| {
        move |o: &mut ring_runtime::Orchestrator<'_>| {
            (0..n).try_for_each(|_| o.submit(vector("empty").dependency_only()).map(drop))
        }
    };
    assert!(runtime.run(fill(7)).passed());
    let report = runtime.run(fill(8));
    assert_eq!(verdict(&report), (1, "scope", 0));
    assert_eq!(fatal(&report).proof, Some(Proof::Immediate));
}

#[test]
fn code_3_slots_are_shared_by_nested_scopes_of_ring_three() {
    let report = runtime(1 << 16, 8, 16).run(|o| {
        (0..3).try_for_each(|_| o.begin_scope(ScopeMode::Auto))?;
        for _ in 0..3 {
            (0..4).try_for_each(|_| o.alloc(&[TensorSpec::bytes(8)]).map(drop))?;
            o.begin_scope(ScopeMode::Auto)?;
        }
        Ok(())
    });
    assert_eq!(verdict(&report), (3, "slots", 3));
    assert_eq!(fatal(&report).proof, Some(Proof::Structural));
}

#[test]
fn a_request_beyond_an_empty_ring_is_left_to_the_backstop() {
    let begin = std::time::Instant::now();
    let report = runtime(4096, 8, 16).run(|o| o.alloc(&[TensorSpec::bytes(4097)]).map(drop));
    assert_eq!(verdict(&report), (2, "heap", 0));
    assert_eq!(
        (fatal(&report).proof, fatal(&report).head),
        (Some(Proof::Backstop), None)
    );
    // Wall-clock, not a number of looks.
    assert!(begin.elapsed() >= QUICK.alloc, "issues 1132 and 1337");
}

#[test]
fn a_structural_deadlock_is_reported_without_waiting_issue_1132() {
    let mut config = config(limits(2048, 8, 16), 1);
    config.timeouts.alloc = std::time::Duration::from_hours(1);
    config.timeouts.scheduler = std::time::Duration::from_hours(2);
    let report = Runtime::new(config)
        .unwrap()
        .run(|o| (0..3).try_for_each(|_| o.alloc(&[TensorSpec::bytes(1024)]).map(drop)));
    assert_eq!(verdict(&report), (2, "heap", 0));
    assert_eq!(fatal(&report).proof, Some(Proof::Structural));
}

#[test]
fn code_5_two_gib_of_outputs_are_rejected() {
    let mut runtime = runtime(4096, 8, 16);
    let report = runtime.run(|o| {
        o.alloc(&[TensorSpec::bytes(1 << 30), TensorSpec::bytes(1 << 30)])
            .map(drop)
    });
    assert_eq!(verdict(&report), (5, "invalid_args", 0));
    let report = runtime.run(|o| o.alloc(&[TensorSpec::bytes((1 << 31) - 1024)]).map(drop));
    assert_eq!(verdict(&report), (2, "heap", 0), "the largest honest request");
}

#[test]
fn code_5_33_outputs_or_arguments() {
    let mut runtime = runtime(1 << 20, 8, 16);
    let specs = |n: usize| vec![TensorSpec::bytes(8); n];
    assert!(runtime.run(|o| o.alloc(&specs(MAX_ARGUMENTS)).map(drop)).passed());
    let report = runtime.run(|o| o.alloc(&specs(MAX_ARGUMENTS + 1)).map(drop));
    assert_eq!(verdict(&report), (5, "invalid_args", 0));
    let host = Tensor::zeros(ring_runtime::DType::I8, &[8]);
    let task = |n: usize| {
        (0..n)
            .fold(vector("wide"), |task, _| task.input(&host))
            .dependency_only()
    };
    assert!(runtime.run(|o| o.submit(task(MAX_ARGUMENTS)).map(drop)).passed());
    let report = runtime.run(|o| o.submit(task(MAX_ARGUMENTS + 1)).map(drop));
    assert_eq!(verdict(&report), (5, "invalid_args", 0));
}

#[test]
fn code_5_scopes_beyond_63_and_unbalanced_ends() {
    let mut runtime = runtime(4096, 8, 16);
    let nest = |n: usize| {
        move |o: &mut ring_runtime::Orchestrator<'_>| (0..n).try_for_each(|_| o.begin_scope(ScopeMode::Auto))
    };
    assert!(runtime.run(nest(63)).passed());
    assert_eq!(verdict(&runtime.run(nest(64))), (5, "invalid_args", 3));
    let report = runtime.run(|o| {
        o.end_scope()?;
        Ok(())
    });
    assert_eq!(verdict(&report), (5, "invalid_args", 0));
}

#[test]
fn code_5_automatic_inside_manual() {
    let mut runtime = runtime(4096, 8, 16);
    let nest = |inner| {
        move |o: &mut ring_runtime::Orchestrator<'_>| o.scope(ScopeMode::Manual, |o| o.scope(inner, |_| Ok(())))
    };
    assert!(runtime.run(nest(ScopeMode::Manual)).passed());
    assert_eq!(verdict(&runtime.run(nest(ScopeMode::Auto))), (5, "invalid_args", 1));
}

#[test]
fn code_7_more_blocks_together_than_cores() {
    let mut runtime = runtime(4096, 8, 16);
    let gang = |blocks| vector("gang").blocks(blocks).sync_start().run(|_| ());
    assert!(runtime.run(|o| o.submit(gang(2)).map(drop)).passed());
    let report = runtime.run(|o| o.submit(gang(3)).map(drop));
    assert_eq!(verdict(&report), (7, "cores", 0));
}

#[test]
fn code_8_tensor_data_that_does_not_come() {
    let report = runtime(4096, 8, 16).run(|o| {
        let never = vector("never").output(TensorSpec::bytes(8)).run(|block| {
            while !block.stopping() {
                std::thread::yield_now();
            }
        });
        let output = o.submit(never)?.outputs.remove(0);
        o.wait(&output)
    });
    assert_eq!(verdict(&report), (8, "tensor_data", 0));
}

#[test]
fn code_9_the_program_ends_itself() {
    let report = runtime(4096, 8, 16).run(|o| Err(o.fail("out of tokens")));
    assert_eq!(verdict(&report), (9, "program", 0));
    assert_eq!(fatal(&report).message, "out of tokens");
}

#[test]
fn code_11_the_tensor_map_is_full() {
    let mut small = config(limits(1 << 16, 64, 64), 1);
    small.tensormap_entries = 4;
    let mut runtime = Runtime::new(small).unwrap();
    let host = Tensor::zeros(ring_runtime::DType::I8, &[8]);
    let write = || vector("write").write(&host).dependency_only();
    // Entries of retired tasks are freed when room is needed.
    let report = runtime.run(|o| (0..100).try_for_each(|_| o.scope(ScopeMode::Auto, |o| o.submit(write()).map(drop))));
    assert!(report.passed(), "{:?}", report.end);
    assert_eq!(report.tensormap_high_water, 4);
    let report = runtime.run(|o| (0..5).try_for_each(|_| o.submit(write()).map(drop)));
    assert_eq!(verdict(&report), (11, "tensormap", 0));
    let Fatal { resource, .. } = fatal(&report);
    assert!(
        matches!(
            resource,
            Resource::TensorMap {
                needed: 1,
                used: 4,
                capacity: 4
            }
        ),
        "{resource:?}"
    );
}

#[test]
fn after_a_fatal_every_call_returns_at_once() {
    let report = runtime(4096, 8, 16).run(|o| {
        let halted = o.fail("first");
        assert!(o.begin_scope(ScopeMode::Auto).is_err() && o.alloc(&[TensorSpec::bytes(8)]).is_err());
        assert!(o.submit(vector("late").dependency_only()).is_err());
        o.fail("second");
        Err(halted)
    });
    assert_eq!(fatal(&report).message, "first", "the first error is the evidence");
    assert_eq!(report.tasks.submitted, 0);
}
