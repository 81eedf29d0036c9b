//! Programs that compute something.

use ring_runtime::{DType, ScopeMode, Tensor, TensorSpec};

use crate::support::{runtime, vector};

#[test]
fn blocks_compute_through_ring_memory() {
    let mut runtime = runtime(1 << 20, 64, 64);
    let input = Tensor::from_vec(&[8, 16], (0..128).map(|i| i as f32).collect());
    let result = Tensor::zeros(DType::F32, &[8, 16]);
    for _ in 0..3 {
        result.write::<f32>().fill(0.0);
        let (input, result) = (input.clone(), result.clone());
        let report = runtime.run(|o| {
            o.scope(ScopeMode::Auto, |o| {
                let source = input.clone();
                let double = vector("double")
                    .blocks(8)
                    .input(&input)
                    .output(TensorSpec::new("doubled", DType::F32, &[8, 16]))
                    .run(move |block| {
                        let row = block.index()..block.index() + 1;
                        let mut out = block.write::<f32>(&block.output(0).rows(row.clone()));
                        for (out, x) in out.iter_mut().zip(block.read::<f32>(&source.rows(row)).iter()) {
                            *out = 2.0 * x;
                        }
                    });
                let doubled = o.submit(double)?.outputs.remove(0);
                let (from, to) = (doubled.clone(), result.clone());
                let add = vector("add").input(&doubled).inout(&result).run(move |block| {
                    let from = block.read::<f32>(&from);
                    for (to, x) in block.write::<f32>(&to).iter_mut().zip(from.iter()) {
                        *to += x + 1.0;
                    }
                });
                o.submit(add)?;
                Ok(())
            })?;
            assert_eq!(o.read_scalar::<f32>(&result, 127)?.to_bits(), 255f32.to_bits());
            Ok(())
        });
        assert!(report.passed(), "{:?}", report.end);
        assert_eq!(
            (report.tasks.kernels, report.tasks.blocks, report.tasks.retired),
            (2, 9, 2)
        );
        assert!(report.first_launch);
    }
    let expected: Vec<f32> = (0..128).map(|i| 2.0 * i as f32 + 1.0).collect();
    assert_eq!(*result.read::<f32>(), expected[..]);
}

#[test]
fn a_chain_of_dependency_only_tasks_ripples_through() {
    // While the first task waits for a core, a whole window of tasks holds entries, and they come back in steps of 64.
    let mut runtime = runtime(4096, 64, 1024);
    let report = runtime.run(|o| {
        let mut last = o.submit(vector("first").run(|_| ()))?.id;
        for _ in 0..5000 {
            o.scope(ScopeMode::Auto, |o| {
                last = o.submit(vector("next").after(last).dependency_only())?.id;
                Ok(())
            })?;
        }
        Ok(())
    });
    assert!(report.passed(), "{:?}", report.end);
    assert_eq!((report.tasks.completed, report.tasks.retired), (5001, 5001));
}

#[test]
fn a_program_without_tasks_ends_at_once() {
    let report = runtime(4096, 4, 4).run(|_| Ok(()));
    assert!(report.passed());
    assert!(!report.first_launch);
}
