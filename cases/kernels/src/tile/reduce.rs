//! Reductions of rows, in a stated order.
//!
//! Sums run in 64 lanes: lane `l` adds the elements `l, l + 64, l + 128, …` ascending, then the upper
//! half of the lanes is added to the lower half until one is left. The order depends on the length
//! only, so a sum has the same bits on every machine.
//!
//! The `_chunked` forms sum as the vector unit of the specs does: in each chunk, groups of 64 elements are
//! added pairwise, neighbours first, and group sums are added ascending; chunk sums are added ascending, from 0.
//! These sums stand before roundings to bf16 and int8, where another order would tip values over an edge.
//!
//! Maxima keep NaN: a row with a NaN has a NaN maximum.

use crate::simd::vectorised;

const LANES: usize = 64;

/// Folds the lanes by halves.
#[expect(clippy::inline_always, reason = "see `vectorised!`")]
#[inline(always)]
fn fold(mut lanes: [f32; LANES], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = combine(lanes[l], lanes[l + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Combines the terms `term(i)` of `0..len`, `LANES` at a time, then across the lanes.
#[expect(clippy::inline_always, reason = "see `vectorised!`")]
#[inline(always)]
fn in_lanes<const N: usize>(
    rows: [&[f32]; N],
    start: f32,
    term: impl Fn([f32; N]) -> f32,
    combine: impl Fn(f32, f32) -> f32,
) -> f32 {
    let len = rows[0].len();
    assert!(rows.iter().all(|row| row.len() == len), "rows of one length");
    let mut lanes = [start; LANES];
    let whole = len - len % LANES;
    for i in (0..whole).step_by(LANES) {
        let parts: [&[f32; LANES]; N] = rows.map(|row| row[i..i + LANES].try_into().expect("cut to size"));
        for l in 0..LANES {
            lanes[l] = combine(lanes[l], term(parts.map(|part| part[l])));
        }
    }
    for i in whole..len {
        lanes[i - whole] = combine(lanes[i - whole], term(rows.map(|row| row[i])));
    }
    fold(lanes, combine)
}

/// Adds neighbours: element `i` is the sum of elements `2i` and `2i + 1`.
#[expect(clippy::inline_always, reason = "see `vectorised!`")]
#[inline(always)]
fn halve<const N: usize>(terms: &[f32]) -> [f32; N] {
    std::array::from_fn(|i| terms[2 * i] + terms[2 * i + 1])
}

/// Adds neighbours, then neighbours of the sums, until one is left.
#[expect(clippy::inline_always, reason = "see `vectorised!`")]
#[inline(always)]
fn pairwise(terms: &[f32; LANES]) -> f32 {
    let sums: [f32; 32] = halve(terms);
    let sums: [f32; 16] = halve(&sums);
    let sums: [f32; 8] = halve(&sums);
    let sums: [f32; 4] = halve(&sums);
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Sum of `term` over consecutive chunks; see the module's documentation.
#[expect(clippy::inline_always, reason = "see `vectorised!`")]
#[inline(always)]
fn in_chunks<const N: usize>(rows: [&[f32]; N], chunk: usize, term: impl Fn([f32; N]) -> f32) -> f32 {
    let len = rows[0].len();
    assert!(rows.iter().all(|row| row.len() == len), "rows of one length");
    let mut total = 0.0;
    for first in (0..len).step_by(chunk) {
        let end = len.min(first + chunk);
        let mut sum = 0.0;
        for i in (first..end).step_by(LANES) {
            let mut terms = [0f32; LANES];
            if i + LANES <= end {
                let parts: [&[f32; LANES]; N] = rows.map(|row| row[i..i + LANES].try_into().expect("cut to size"));
                for l in 0..LANES {
                    terms[l] = term(parts.map(|part| part[l]));
                }
            } else {
                for (l, t) in terms[..end - i].iter_mut().enumerate() {
                    *t = term(rows.map(|row| row[i + l]));
                }
            }
            sum += pairwise(&terms);
        }
        total += sum;
    }
    total
}

/// The larger one; NaN if either is NaN. Unlike `f32::max` it is a compare and a select.
#[expect(clippy::inline_always, reason = "see `vectorised!`")]
#[inline(always)]
fn larger(x: f32, y: f32) -> f32 {
    if y > x || y.is_nan() { y } else { x }
}

vectorised! {
    /// Sum of a row.
    pub fn sum(x: &[f32]) -> f32 {
        in_lanes([x], 0.0, |[x]| x, |x, y| x + y)
    }
}

vectorised! {
    /// Sum of the squares of a row.
    pub fn sum_of_squares(x: &[f32]) -> f32 {
        in_lanes([x], 0.0, |[x]| x * x, |x, y| x + y)
    }
}

vectorised! {
    /// Dot product of two rows; products are rounded before they are added.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn dot(x: &[f32], y: &[f32]) -> f32 {
        in_lanes([x, y], 0.0, |[x, y]| x * y, |x, y| x + y)
    }
}

vectorised! {
    /// Largest element; −∞ for an empty row, NaN if there is one.
    pub fn max(x: &[f32]) -> f32 {
        in_lanes([x], f32::NEG_INFINITY, |[x]| x, larger)
    }
}

vectorised! {
    /// Largest magnitude; 0 for an empty row, NaN if there is one.
    pub fn amax(x: &[f32]) -> f32 {
        in_lanes([x], 0.0, |[x]| x.abs(), larger)
    }
}

vectorised! {
    /// Largest magnitude of the products `x · y`, each rounded to f32; 0 for empty rows, NaN if there is one.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn amax_of_products(x: &[f32], y: &[f32]) -> f32 {
        in_lanes([x, y], 0.0, |[x, y]| (x * y).abs(), larger)
    }
}

vectorised! {
    /// Sum of a row by chunks of `chunk` elements.
    pub fn sum_chunked(x: &[f32], chunk: usize) -> f32 {
        in_chunks([x], chunk, |[x]| x)
    }
}

vectorised! {
    /// Sum of the squares of a row by chunks of `chunk` elements.
    pub fn sum_of_squares_chunked(x: &[f32], chunk: usize) -> f32 {
        in_chunks([x], chunk, |[x]| x * x)
    }
}

vectorised! {
    /// Dot product of two rows by chunks of `chunk` elements; products are rounded before they are added.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn dot_chunked(x: &[f32], y: &[f32], chunk: usize) -> f32 {
        in_chunks([x, y], chunk, |[x, y]| x * y)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Path;

    fn row(len: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
            })
            .collect()
    }

    /// The order of the module's documentation, written out.
    fn stated_order(terms: &[f32]) -> f32 {
        let mut lanes = vec![0f32; 64];
        for (i, t) in terms.iter().enumerate() {
            lanes[i % 64] += t;
        }
        while lanes.len() > 1 {
            let upper = lanes.split_off(lanes.len() / 2);
            lanes.iter_mut().zip(upper).for_each(|(l, u)| *l += u);
        }
        lanes[0]
    }

    /// The order of a group of the chunked sums.
    fn neighbours_first(group: &[f32]) -> f32 {
        let mut sums = group.to_vec();
        sums.resize(64, 0.0);
        while sums.len() > 1 {
            sums = sums.chunks(2).map(|pair| pair[0] + pair[1]).collect();
        }
        sums[0]
    }

    #[track_caller]
    fn check_same(got: f32, want: f32) {
        assert_eq!(got.to_bits(), want.to_bits(), "{got} not {want}");
    }

    #[test]
    fn sums_follow_the_stated_order() {
        Path::for_each(check_sums);
    }

    fn check_sums(_: Path) {
        for len in [0, 1, 63, 64, 65, 256, 448, 1000] {
            let (x, y) = (row(len, 1), row(len, 2));
            let squares: Vec<f32> = x.iter().map(|x| x * x).collect();
            let products: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x * y).collect();
            check_same(sum(&x), stated_order(&x));
            check_same(sum_of_squares(&x), stated_order(&squares));
            check_same(dot(&x, &y), stated_order(&products));
            let chunk_sum = |c: &[f32]| c.chunks(64).fold(0.0, |sum, group| sum + neighbours_first(group));
            let chunked = |terms: &[f32]| terms.chunks(96).fold(0.0, |total, c| total + chunk_sum(c));
            check_same(sum_chunked(&x, 96), chunked(&x));
            check_same(sum_of_squares_chunked(&x, 96), chunked(&squares));
            check_same(dot_chunked(&x, &y, 96), chunked(&products));
        }
    }

    #[test]
    fn maxima_of_any_position() {
        Path::for_each(check_maxima);
    }

    fn check_maxima(_: Path) {
        for len in [1, 5, 64, 200] {
            for at in [0, len / 2, len - 1] {
                let mut x = row(len, 3);
                x[at] = 5.0;
                check_same(max(&x), 5.0);
                x[at] = -6.0;
                check_same(amax(&x), 6.0);
                check_same(amax_of_products(&x, &vec![-2.0; len]), 12.0);
                x[at] = f32::NAN;
                assert!(max(&x).is_nan() && amax(&x).is_nan() && sum(&x).is_nan());
            }
        }
        check_same(max(&[]), f32::NEG_INFINITY);
        check_same(max(&[f32::NEG_INFINITY; 70]), f32::NEG_INFINITY);
    }
}
