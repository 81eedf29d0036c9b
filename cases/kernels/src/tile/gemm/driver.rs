//! Cache blocking: cuts a product into the pieces that the micro-kernels take.
//!
//! `K × N` right operands go through the *outer* form: a block of B is packed into panels, and each
//! step of a kernel multiplies a broadcast element of A with a vector of columns. `N × K` right
//! operands go through the *dot* form: vectors run along K in both operands, nothing is transposed
//! or copied, and a tile of sums is reduced across lanes once per block of K.

use ring_runtime::{Element, Tile, TileMut};

use super::scratch::{self, Word};
use super::{Rhs, Store};
use crate::simd::Supported;

/// Rows of A that are staged at a time: 128, the prefill panel.
const LHS_ROWS: usize = 128;

/// Largest output tile of any kernel, in elements.
const EDGE: usize = 12 * 32;

/// Where a kernel leaves its output tile.
pub(super) struct Target<C> {
    /// First element of the tile.
    pub(super) ptr: *mut C,
    /// Distance of two rows, in elements.
    pub(super) stride: usize,
    /// Overwrite or accumulate.
    pub(super) store: Store,
}

/// A result element.
pub(super) trait Total: Element + Word {
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
}

impl Total for f32 {
    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Total for i32 {
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// The micro-kernels of one operand type on one path, and their geometry.
///
/// # Safety
/// The associated constants are relied upon by the driver and must describe what the functions
/// access: at most what their contracts name.
///
/// All functions: the machine supports the path.
#[expect(
    unsafe_code,
    reason = "kernels work on pointers, on instructions that the machine may lack"
)]
pub(super) trait Kernels {
    /// Element of the operands.
    type In: Element + Word;
    /// Staged element of A.
    type Lhs: Word;
    /// Packed element of B.
    type Rhs: Word;
    /// Element of the result.
    type Out: Total;

    /// Outer form: most rows of a tile, columns of a tile, length of a block of K, columns packed at once.
    const OUTER_MR: usize;
    const OUTER_NR: usize;
    const OUTER_KC: usize;
    const OUTER_NC: usize;
    /// Outer form: distance of two staged rows of A; at least `OUTER_KC`, and odd in cache lines.
    const OUTER_STRIDE: usize;
    /// Consecutive `k` that lie together in a panel.
    const KU: usize;
    /// Outer form: up to so many rows of A, B is read in place, as packing would not pay.
    const OUTER_IN_PLACE: usize;

    /// Dot form: most rows and columns of a tile, length of a block of K, distance of two staged rows.
    const DOT_MR: usize;
    const DOT_NR: usize;
    const DOT_KC: usize;
    const DOT_STRIDE: usize;
    /// Dot form: rows of A that pass over a block of B together, so that they stay in the first-level cache.
    const DOT_ROWS: usize;
    /// Dot form: rows of B that all rows of A pass over before the next ones.
    const DOT_COLS: usize;
    /// Dot form: elements of K per step.
    const LANES: usize;

    /// Converts a row of A, zero-padded to `dst.len()`, and returns the term its sums start from.
    unsafe fn stage_lhs(src: &[Self::In], dst: &mut [Self::Lhs]) -> Self::Out;

    /// Packs a block of B (`K × N`) for the outer form; see `pack::panels`.
    unsafe fn pack(src: Tile<'_, Self::In>, dst: &mut [Self::Rhs]);

    /// `rows × OUTER_NR` sums over `k` (a multiple of `KU`).
    ///
    /// `1 ≤ rows ≤ OUTER_MR`; `lhs` has `rows` rows of `k` elements, `OUTER_STRIDE` apart; `rhs` has
    /// `k · OUTER_NR` elements; `bias` has `rows`; the target has `rows × OUTER_NR`.
    unsafe fn outer(
        rows: usize,
        k: usize,
        lhs: *const Self::Lhs,
        rhs: *const Self::Rhs,
        bias: *const Self::Out,
        target: Target<Self::Out>,
    );

    /// As `outer`, on B itself: `rhs` has `k` rows of `OUTER_NR` elements, its second part apart.
    /// Called for at most `OUTER_IN_PLACE` rows of A. `ahead` is where the next such rows start; it is
    /// for prefetching alone, and they may lie outside of B.
    unsafe fn outer_in_place(
        rows: usize,
        k: usize,
        lhs: *const Self::Lhs,
        rhs: (*const Self::In, usize),
        ahead: *const Self::In,
        target: Target<Self::Out>,
    );

    /// `rows × DOT_NR` sums over `k` (a multiple of `LANES`).
    ///
    /// `1 ≤ rows ≤ DOT_MR`; `lhs` has `rows` rows of `k` elements, `DOT_STRIDE` apart; `rhs` has
    /// `DOT_NR` rows of `k` elements, `rhs_stride` apart; `bias` has `rows`; the target has `rows × DOT_NR`.
    /// `ahead` is where the next such rows of B start, their first part apart from the second, when they are
    /// not in the caches yet; it is for prefetching alone.
    unsafe fn dot(
        rows: usize,
        k: usize,
        lhs: *const Self::Lhs,
        rhs: (*const Self::In, usize),
        bias: *const Self::Out,
        ahead: Option<(*const Self::In, usize)>,
        target: Target<Self::Out>,
    );
}

/// Evaluates `$call` with the constant `$r` at the value of `$rows`, one of the literals.
macro_rules! by_rows {
    ($rows:expr, $r:ident => $call:expr, $($n:literal)*) => {
        match $rows {
            $($n => {
                const $r: usize = $n;
                $call
            })*
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
}

pub(super) use by_rows;

/// Stores an outer tile, rows of two vectors of `$lanes` sums, to a target of that size.
macro_rules! put {
    ($sums:ident => $target:ident, $lanes:literal, $load:ident, $add:ident, $store:ident) => {
        for (r, row) in $sums.into_iter().enumerate() {
            for (half, sum) in row.into_iter().enumerate() {
                let c = $target.ptr.add(r * $target.stride + half * $lanes);
                let sum = match $target.store {
                    Store::Overwrite => sum,
                    Store::Accumulate => $add($load(c.cast_const().cast()), sum),
                };
                $store(c.cast(), sum);
            }
        }
    };
}

pub(super) use put;

/// The product; see [`super::gemm`].
#[track_caller]
pub(super) fn run<K: Kernels>(
    path: Supported,
    a: Tile<'_, K::In>,
    b: Rhs<'_, K::In>,
    c: &mut TileMut<'_, K::Out>,
    store: Store,
) {
    let (m, n, k) = (a.rows(), b.width(), a.cols());
    assert!(
        b.depth() == k && c.rows() == m && c.cols() == n,
        "product of {m} × {k} and {} × {n} into {} × {}",
        b.depth(),
        c.rows(),
        c.cols()
    );
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if store == Store::Overwrite {
            c.fill(K::Out::default());
        }
        return;
    }
    for m0 in (0..m).step_by(LHS_ROWS) {
        let rows = m0..m.min(m0 + LHS_ROWS);
        let a = a.sub(rows.clone(), 0..k);
        let mut c = c.sub_mut(rows, 0..n);
        match b {
            Rhs::Kn(b) => outer::<K>(path, a, b, &mut c, store),
            Rhs::Nk(b) => dot::<K>(path, a, b, &mut c, store),
        }
    }
}

/// What happens to the result in block `k0` of K.
fn store_at(k0: usize, store: Store) -> Store {
    if k0 == 0 { store } else { Store::Accumulate }
}

/// Splits `total` rows into tiles of at most `most` whose heights differ by at most one: a last tile
/// of one or two rows would leave the multipliers idle.
fn even_split(total: usize, most: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let parts = total.div_ceil(most);
    (0..parts).map(move |i| (i * total / parts)..((i + 1) * total / parts))
}

#[expect(unsafe_code, reason = "calls micro-kernels on staged and packed memory")]
fn outer<K: Kernels>(
    _path: Supported,
    a: Tile<'_, K::In>,
    b: Tile<'_, K::In>,
    c: &mut TileMut<'_, K::Out>,
    store: Store,
) {
    let (m, n, k) = (a.rows(), b.cols(), a.cols());
    let deepest = k.min(K::OUTER_KC).next_multiple_of(K::KU);
    let widest = n.min(K::OUTER_NC).next_multiple_of(K::OUTER_NR);
    scratch::with::<K::Lhs, K::Rhs, K::Out, ()>(m * K::OUTER_STRIDE, deepest * widest, m, |s| {
        for k0 in (0..k).step_by(K::OUTER_KC) {
            let kc = K::OUTER_KC.min(k - k0);
            let depth = kc.next_multiple_of(K::KU);
            for r in 0..m {
                let row = &a.row(r)[k0..k0 + kc];
                // SAFETY: `_path` witnesses the instruction set.
                s.bias[r] = unsafe { K::stage_lhs(row, &mut s.lhs[r * K::OUTER_STRIDE..][..depth]) };
            }
            for n0 in (0..n).step_by(K::OUTER_NC) {
                let nc = K::OUTER_NC.min(n - n0);
                if m <= K::OUTER_IN_PLACE && nc % K::OUTER_NR == 0 {
                    for j in (n0..n0 + nc).step_by(K::OUTER_NR) {
                        let rhs = b.sub(k0..k0 + kc, j..j + K::OUTER_NR);
                        let ahead = if j + K::OUTER_NR < n {
                            rhs.as_ptr().wrapping_add(K::OUTER_NR)
                        } else {
                            b.as_ptr().wrapping_add((k0 + kc) * b.stride())
                        };
                        for rows in even_split(m, K::OUTER_MR) {
                            let lhs = s.lhs[rows.start * K::OUTER_STRIDE..].as_ptr();
                            let mut out = c.sub_mut(rows.clone(), j..j + K::OUTER_NR);
                            let store = store_at(k0, store);
                            let target = Target {
                                ptr: out.as_mut_ptr(),
                                stride: out.stride(),
                                store,
                            };
                            // SAFETY: `_path`; `lhs` starts at row `rows.start` of `m` staged rows; `rhs` and
                            // `out` are windows of `OUTER_NR` columns.
                            unsafe {
                                K::outer_in_place(rows.len(), kc, lhs, (rhs.as_ptr(), rhs.stride()), ahead, target);
                            };
                        }
                    }
                    continue;
                }
                // SAFETY: as above.
                unsafe { K::pack(b.sub(k0..k0 + kc, n0..n0 + nc), s.rhs) };
                for (panel, j) in (0..nc).step_by(K::OUTER_NR).enumerate() {
                    let rhs = &s.rhs[panel * depth * K::OUTER_NR..][..depth * K::OUTER_NR];
                    let cols = K::OUTER_NR.min(nc - j);
                    for rows in even_split(m, K::OUTER_MR) {
                        let lhs = &s.lhs[rows.start * K::OUTER_STRIDE..];
                        let bias = &s.bias[rows.clone()];
                        let out = c.sub_mut(rows.clone(), n0 + j..n0 + j + cols);
                        into_tile(out, K::OUTER_NR, store_at(k0, store), |target| {
                            // SAFETY: `_path`; `lhs` starts at row `rows.start` of `m` staged rows, `rhs` and
                            // `bias` were cut to size, and `into_tile` gives a target of `rows × OUTER_NR`.
                            unsafe {
                                K::outer(rows.len(), depth, lhs.as_ptr(), rhs.as_ptr(), bias.as_ptr(), target);
                            }
                        });
                    }
                }
            }
        }
    });
}

#[expect(unsafe_code, reason = "calls micro-kernels on staged memory")]
fn dot<K: Kernels>(
    _path: Supported,
    a: Tile<'_, K::In>,
    b: Tile<'_, K::In>,
    c: &mut TileMut<'_, K::Out>,
    store: Store,
) {
    let (m, n, k) = (a.rows(), b.rows(), a.cols());
    let edge = K::DOT_NR * K::DOT_KC.min(k).next_multiple_of(K::LANES);
    scratch::with::<K::Lhs, K::In, K::Out, ()>(m * K::DOT_STRIDE, edge, m, |s| {
        for k0 in (0..k).step_by(K::DOT_KC) {
            let kc = K::DOT_KC.min(k - k0);
            let depth = kc.next_multiple_of(K::LANES);
            for r in 0..m {
                let row = &a.row(r)[k0..k0 + kc];
                // SAFETY: `_path` witnesses the instruction set.
                s.bias[r] = unsafe { K::stage_lhs(row, &mut s.lhs[r * K::DOT_STRIDE..][..depth]) };
            }
            for n0 in (0..n).step_by(K::DOT_COLS) {
                let nc = K::DOT_COLS.min(n - n0);
                for r0 in (0..m).step_by(K::DOT_ROWS) {
                    let chunk = K::DOT_ROWS.min(m - r0);
                    for j in (n0..n0 + nc).step_by(K::DOT_NR) {
                        let cols = K::DOT_NR.min(n - j);
                        // What comes next: more rows of this block, or the first ones of the next block.
                        let next = if j + 2 * K::DOT_NR <= n {
                            (j + K::DOT_NR, k0)
                        } else {
                            (0, k0 + kc)
                        };
                        let mut ahead = (r0 == 0 && next.1 + kc <= k && next.0 + K::DOT_NR <= n)
                            .then(|| b.sub(next.0..next.0 + K::DOT_NR, next.1..next.1 + kc))
                            .map(|next| (next.as_ptr(), next.stride()));
                        let window = b.sub(j..j + cols, k0..k0 + kc);
                        let rhs = if cols == K::DOT_NR && depth == kc {
                            (window.as_ptr(), window.stride())
                        } else {
                            s.rhs.fill(K::In::default());
                            for (row, copy) in s.rhs.chunks_exact_mut(depth).enumerate().take(cols) {
                                copy[..kc].copy_from_slice(window.row(row));
                            }
                            (s.rhs.as_ptr(), depth)
                        };
                        for rows in even_split(chunk, K::DOT_MR) {
                            let rows = r0 + rows.start..r0 + rows.end;
                            let lhs = &s.lhs[rows.start * K::DOT_STRIDE..];
                            let bias = &s.bias[rows.clone()];
                            let out = c.sub_mut(rows.clone(), j..j + cols);
                            into_tile(out, K::DOT_NR, store_at(k0, store), |target| {
                                // SAFETY: `_path`; `lhs` starts at row `rows.start` of `m` staged rows; `rhs` is a
                                // window of `DOT_NR` rows of `depth` elements, or a padded copy of what there is.
                                unsafe {
                                    K::dot(
                                        rows.len(),
                                        depth,
                                        lhs.as_ptr(),
                                        rhs,
                                        bias.as_ptr(),
                                        ahead.take(),
                                        target,
                                    );
                                }
                            });
                        }
                    }
                }
            }
        }
    });
}

/// Runs `kernel` on `out`, or, when `out` is narrower than the `cols` columns that the kernel writes,
/// on a tile of its own that is then folded into `out`.
fn into_tile<C: Total>(mut out: TileMut<'_, C>, cols: usize, store: Store, kernel: impl FnOnce(Target<C>)) {
    if out.cols() == cols {
        return kernel(Target {
            ptr: out.as_mut_ptr(),
            stride: out.stride(),
            store,
        });
    }
    let mut edge = [C::default(); EDGE];
    let whole = &mut edge[..out.rows() * cols];
    kernel(Target {
        ptr: whole.as_mut_ptr(),
        stride: cols,
        store: Store::Overwrite,
    });
    for (r, sums) in edge.chunks_exact(cols).take(out.rows()).enumerate() {
        for (c, &sum) in out.row_mut(r).iter_mut().zip(sums) {
            *c = match store {
                Store::Overwrite => sum,
                Store::Accumulate => c.plus(sum),
            };
        }
    }
}
