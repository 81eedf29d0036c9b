//! Every path and layout against naive f64 and i64 loops.

use half::bf16;
use proptest::prelude::*;
use ring_runtime::{Element, Tile, TileMut};

use super::{Operand, Path, Rhs, Store};

/// Counter-based pseudo-random bits (splitmix64).
fn bits(seed: u64, i: usize) -> u64 {
    let mut z = seed.wrapping_add((i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What the tests need of an operand: random values, and a reference in wide numbers.
trait Sample: Operand<Out: Into<f64> + Copy> {
    fn sample(bits: u64) -> Self;
    fn wide(self) -> f64;
    fn out(bits: u64) -> Self::Out;
    /// Largest error of a sum of `k` products whose magnitudes sum to `magnitude`.
    fn bound(k: usize, magnitude: f64) -> f64;
}

fn unit(bits: u64) -> f32 {
    (bits >> 40) as f32 / (1u32 << 23) as f32 - 1.0
}

fn float_bound(k: usize, magnitude: f64) -> f64 {
    // One rounding per product (portable path) and one per addition, plus the old contents.
    (k as f64 + 2.0) * 2f64.powi(-24) * magnitude * 1.001
}

impl Sample for f32 {
    fn sample(bits: u64) -> Self {
        // Magnitudes spread over 2¹⁶, so that cancellation and absorption occur.
        unit(bits) * f32::from(1u16 << (bits % 16))
    }

    fn wide(self) -> f64 {
        self.into()
    }

    fn out(bits: u64) -> f32 {
        unit(bits)
    }

    fn bound(k: usize, magnitude: f64) -> f64 {
        float_bound(k, magnitude)
    }
}

impl Sample for bf16 {
    fn sample(bits: u64) -> Self {
        Self::from_f32(f32::sample(bits))
    }

    fn wide(self) -> f64 {
        self.into()
    }

    fn out(bits: u64) -> f32 {
        unit(bits)
    }

    fn bound(k: usize, magnitude: f64) -> f64 {
        float_bound(k, magnitude)
    }
}

impl Sample for i8 {
    fn sample(bits: u64) -> Self {
        // Extremes are frequent: they are where saturating instructions go wrong.
        match bits % 8 {
            0 => i8::MIN,
            1 => i8::MAX,
            _ => (bits >> 32) as i8,
        }
    }

    fn wide(self) -> f64 {
        self.into()
    }

    fn out(bits: u64) -> i32 {
        (bits >> 40) as i32
    }

    fn bound(_: usize, _: f64) -> f64 {
        0.0
    }
}

fn supported() -> impl Iterator<Item = Path> {
    Path::ALL.into_iter().filter(|path| path.is_supported())
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    /// Elements between the end of a row and the next, for A, B and C.
    gap: [usize; 3],
}

fn fill<T: Element>(len: usize, value: impl Fn(usize) -> T) -> Vec<T> {
    (0..len).map(value).collect()
}

#[track_caller]
fn check<T: Sample>(shape: Shape, seed: u64) {
    let Shape { m, n, k, gap } = shape;
    let (sa, sc) = (k + gap[0], n + gap[2]);
    let a = fill(m * sa, |i| T::sample(bits(seed, i)));
    let before = fill(m * sc, |i| T::out(bits(seed + 2, i)));
    for transposed in [false, true] {
        let (rows, cols) = if transposed { (n, k) } else { (k, n) };
        let sb = cols + gap[1];
        let b = fill(rows * sb, |i| T::sample(bits(seed + 1, i)));
        let tile = Tile::strided(&b, rows, cols, sb);
        let rhs = if transposed { Rhs::Nk(tile) } else { Rhs::Kn(tile) };
        for store in [Store::Overwrite, Store::Accumulate] {
            for path in supported() {
                let mut c = before.clone();
                T::gemm_on(
                    path,
                    Tile::strided(&a, m, k, sa),
                    rhs,
                    &mut TileMut::strided(&mut c, m, n, sc),
                    store,
                );
                for (i, (&got, &old)) in c.iter().zip(&before).enumerate() {
                    let (r, j) = (i / sc, i % sc);
                    if j >= n {
                        assert_eq!(
                            got, old,
                            "{path:?} {shape:?} {transposed} {store:?}: wrote beyond column {n}"
                        );
                        continue;
                    }
                    let at = |p: usize| if transposed { b[j * sb + p] } else { b[p * sb + j] };
                    let start = if store == Store::Accumulate { old.into() } else { 0.0 };
                    let (mut want, mut magnitude) = (start, f64::abs(start));
                    for p in 0..k {
                        let product = a[r * sa + p].wide() * at(p).wide();
                        want += product;
                        magnitude += product.abs();
                    }
                    let error = (got.into() - want).abs();
                    assert!(
                        error <= T::bound(k, magnitude),
                        "{path:?} {shape:?} transposed {transposed} {store:?} at ({r}, {j}): {got:?}, not {want}"
                    );
                }
            }
        }
    }
}

fn check_all(shape: Shape, seed: u64) {
    check::<f32>(shape, seed);
    check::<bf16>(shape, seed);
    check::<i8>(shape, seed);
}

#[test]
fn shapes_around_every_blocking_edge() {
    for (m, n, k) in [
        (1, 1, 1),
        (1, 64, 128),
        (4, 4, 64),
        (5, 7, 3),
        (12, 32, 256),
        (13, 33, 257),
        (25, 65, 300),
        (8, 300, 1030),
        (16, 24, 4200),
        (128, 128, 256),
        (130, 40, 70),
        (3, 1, 2100),
        (7, 16, 0),
        (0, 5, 5),
        (5, 0, 5),
    ] {
        check_all(
            Shape {
                m,
                n,
                k,
                gap: [0, 0, 0],
            },
            7,
        );
        check_all(
            Shape {
                m,
                n,
                k,
                gap: [5, 3, 9],
            },
            8,
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_shape_and_stride(
        m in 0usize..40,
        n in 0usize..80,
        k in 0usize..600,
        gap in [0usize..20, 0usize..20, 0usize..20],
        seed: u64,
    ) {
        check_all(Shape { m, n, k, gap }, seed);
    }
}

#[test]
fn extreme_bytes_stay_exact() {
    let k = 8192;
    for (x, y) in [(-128i8, -128i8), (-128, 127), (127, 127), (127, -128), (-1, -128)] {
        let (a, b) = (vec![x; 5 * k], vec![y; 36 * k]);
        for path in supported() {
            for rhs in [Rhs::Kn(Tile::new(&b, k, 36)), Rhs::Nk(Tile::new(&b, 36, k))] {
                let mut c = vec![0; 5 * 36];
                i8::gemm_on(
                    path,
                    Tile::new(&a, 5, k),
                    rhs,
                    &mut TileMut::new(&mut c, 5, 36),
                    Store::Overwrite,
                );
                let want = i32::from(x) * i32::from(y) * k as i32;
                assert!(
                    c.iter().all(|&got| got == want),
                    "{path:?}: {x} · {y}: {} not {want}",
                    c[0]
                );
            }
        }
    }
}

/// A special value reaches exactly the row or the column that it takes part in.
#[track_caller]
fn check_spread(special: f32, also_zero: bool) {
    let (m, n, k) = (14, 37, 530);
    for path in supported() {
        for transposed in [false, true] {
            for in_lhs in [true, false] {
                let mut a = vec![1f32; m * k];
                let mut b = vec![if also_zero { 0f32 } else { 1.0 }; n * k];
                if in_lhs {
                    a[3 * k + 517] = special;
                } else {
                    a.fill(if also_zero { 0.0 } else { 1.0 });
                    b.fill(1.0);
                    b[if transposed { 9 * k + 517 } else { 517 * n + 9 }] = special;
                }
                let tile = |b| {
                    if transposed {
                        Rhs::Nk(Tile::new(b, n, k))
                    } else {
                        Rhs::Kn(Tile::new(b, k, n))
                    }
                };
                let mut c = vec![f32::NAN; m * n];
                f32::gemm_on(
                    path,
                    Tile::new(&a, m, k),
                    tile(&b),
                    &mut TileMut::new(&mut c, m, n),
                    Store::Overwrite,
                );
                for (i, got) in c.iter().enumerate() {
                    let hit = if in_lhs { i / n == 3 } else { i % n == 9 };
                    let fine = match (hit, also_zero || special.is_nan()) {
                        (true, true) => got.is_nan(),
                        (true, false) => got.to_bits() == special.to_bits(),
                        (false, _) => got.is_finite(),
                    };
                    assert!(
                        fine,
                        "{path:?} transposed {transposed} in_lhs {in_lhs}: element {i} is {got}"
                    );
                }
            }
        }
    }
}

#[test]
fn nan_and_infinity_propagate() {
    check_spread(f32::NAN, false);
    check_spread(f32::INFINITY, false);
    check_spread(f32::NEG_INFINITY, false);
    // 0 · ∞ is NaN: a path that skips zeros would give 0.
    check_spread(f32::INFINITY, true);
}

#[test]
fn bf16_products_keep_denormals() {
    // 2⁻¹³³ is a denormal bf16; times 2¹⁰⁰ it is an ordinary f32.
    let (a, b) = (vec![bf16::from_bits(1); 32], vec![bf16::from_f32(2f32.powi(100)); 32]);
    for path in supported() {
        for rhs in [Rhs::Kn(Tile::new(&b, 32, 1)), Rhs::Nk(Tile::new(&b, 1, 32))] {
            let mut c = [0f32];
            bf16::gemm_on(
                path,
                Tile::new(&a, 1, 32),
                rhs,
                &mut TileMut::new(&mut c, 1, 1),
                Store::Overwrite,
            );
            assert_eq!(c[0].to_bits(), (32.0 * 2f32.powi(-33)).to_bits(), "{path:?}");
        }
    }
}

#[test]
#[should_panic(expected = "product of 2 × 3 and 4 × 5 into 2 × 5")]
fn shapes_that_do_not_fit_are_refused() {
    let (a, b, mut c) = ([0f32; 6], [0f32; 20], [0f32; 10]);
    super::gemm(
        Tile::new(&a, 2, 3),
        Rhs::Kn(Tile::new(&b, 4, 5)),
        &mut TileMut::new(&mut c, 2, 5),
        Store::Overwrite,
    );
}
