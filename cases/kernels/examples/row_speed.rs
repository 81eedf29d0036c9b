//! Speed of the row functions on a row that fits the first-level cache.
//!
//! `cargo run --release -p kernels --example row_speed`
//!
//! Prints 10⁹ elements per second on one core, from the median time of repeated batches (host-side,
//! monotonic clock).

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::hint::black_box;
use std::time::Instant;

use half::bf16;
use kernels::tile::{cast, math, reduce, rotary};

type Row = fn(&mut [f32]);

const LEN: usize = 2048;
const BATCH: usize = 200;

fn report(name: &str, mut work: impl FnMut()) {
    let mut times: Vec<f64> = (0..51)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..BATCH {
                work();
            }
            begin.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "{name:<24} {:>7.2}",
        (LEN * BATCH) as f64 / times[times.len() / 2] / 1e9
    );
}

fn main() {
    let source: Vec<f32> = (0..LEN).map(|i| (i as f32 - 1000.0) / 97.0).collect();
    let other: Vec<f32> = (0..LEN).map(|i| (i % 13) as f32 / 13.0).collect();
    let mut x = source.clone();
    let mut halves = vec![bf16::ZERO; LEN];
    let mut bytes = vec![0i8; LEN];
    let words: Vec<i32> = (0..LEN).map(|i| i as i32 * 7919).collect();

    // Functions in place are fed the source anew each time; the copy is part of the time.
    let in_place: [(&str, Row); 5] = [
        ("exp", math::exp_row),
        ("ln", math::ln_row),
        ("sigmoid", math::sigmoid_row),
        ("silu", math::silu_row),
        ("sqrt_softplus", math::sqrt_softplus_row),
    ];
    println!("{:<24} {:>7}", "copy and function", "Gelem/s");
    for (name, function) in in_place {
        report(name, || {
            x.copy_from_slice(black_box(&source));
            function(&mut x);
        });
    }
    report("softmax_parts", || {
        x.copy_from_slice(black_box(&source));
        black_box(math::softmax_parts(&mut x));
    });
    report("blend", || {
        math::blend(&mut x, black_box(0.5), &other, 0.5);
    });
    report("scale_mul", || {
        math::scale_mul(&mut x, black_box(1.0), &other);
    });
    report("rotate", || {
        rotary::rotate(&mut x, &other[..LEN / 2], &source[..LEN / 2], rotary::Turn::Forward);
    });

    println!("{:<24} {:>7}", "reduction", "Gelem/s");
    report("sum", || {
        black_box(reduce::sum(black_box(&source)));
    });
    report("sum_of_squares_chunked", || {
        black_box(reduce::sum_of_squares_chunked(black_box(&source), 256));
    });
    report("dot", || {
        black_box(reduce::dot(black_box(&source), &other));
    });
    report("max", || {
        black_box(reduce::max(black_box(&source)));
    });
    report("amax", || {
        black_box(reduce::amax(black_box(&source)));
    });

    println!("{:<24} {:>7}", "conversion", "Gelem/s");
    report("narrow", || cast::narrow(black_box(&source), &mut halves));
    report("widen", || cast::widen(black_box(&halves), &mut x));
    report("quantise_row", || {
        cast::quantise_row(black_box(&source), 10.0, &mut bytes);
    });
    report("dequantise", || {
        cast::dequantise(black_box(&words), 0.1, &other, &mut x);
    });
    black_box((x, halves, bytes));
}
