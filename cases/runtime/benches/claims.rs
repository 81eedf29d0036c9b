//! What it costs to claim and release tensor memory.
//!
//! `cargo bench -p ring-runtime --bench claims` prints the median over passes of the host time per
//! operation (monotonic clock), in nanoseconds. One operation makes a guard and drops it.
#![expect(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ring_runtime::{DType, Tensor};

const PASSES: usize = 15;
const OPERATIONS: u32 = 200_000;

fn report(what: &str, mut operation: impl FnMut()) {
    let mut passes: Vec<f64> = (0..PASSES)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..OPERATIONS {
                operation();
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS)
        })
        .collect();
    passes.sort_by(f64::total_cmp);
    println!(
        "{what:<48} {:>8.1} ns  (least {:.1}, greatest {:.1})",
        passes[PASSES / 2],
        passes[0],
        passes[PASSES - 1]
    );
}

fn main() {
    let tensor = Tensor::zeros(DType::F32, &[256, 1024]);
    let rows: Vec<Tensor> = (0..256).map(|row| tensor.rows(row..row + 1)).collect();

    report("read, nobody else", || {
        black_box(rows[0].read::<f32>());
    });
    report("write, nobody else", || {
        black_box(rows[0].write::<f32>());
    });
    for others in [4, 16, 64] {
        let _held: Vec<_> = rows[1..=others].iter().map(|row| row.write::<f32>()).collect();
        report(&format!("write beside {others} writers of other rows"), || {
            black_box(rows[0].write::<f32>());
        });
    }
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                black_box(rows[1].write::<f32>());
            }
        });
        report("write, against another thread that does the same", || {
            black_box(rows[0].write::<f32>());
        });
        end.store(true, Ordering::Relaxed);
    });
    report("copy of a 256 x 4 window", {
        let (from, to) = (tensor.view(&[0, 0], &[256, 4]), tensor.view(&[0, 8], &[256, 4]));
        move || to.copy_from(&from)
    });
}
