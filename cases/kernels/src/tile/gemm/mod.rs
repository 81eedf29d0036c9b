//! Matrix products of tiles: `C[M,N] (+)= A[M,K] · B`.
//!
//! | operands | result | arithmetic |
//! | --- | --- | --- |
//! | f32 · f32 | f32 | fused multiply-add in f32 (the portable path rounds the product too) |
//! | bf16 · bf16 | f32 | operands widened exactly to f32, then as above |
//! | i8 · i8 | i32 | exact, as long as the true sum fits an i32; it wraps otherwise |
//!
//! The f32 sums are formed in an order that depends on the instruction set and on the layout of B,
//! never on the values, the thread, or how often the product is repeated. With `u = 2⁻²⁴` the error
//! of an element is at most `K · u · Σ|a·b|` (first order); in practice it is far smaller, as K is
//! split over vector lanes and blocks.
//!
//! The bf16 product deliberately leaves `VDPBF16PS` alone: it flushes denormal inputs and results
//! and rounds pairs of products at once, so a result would no longer match the bound above near
//! underflow, and machines with and without it would disagree.
//!
//! NaN and infinity propagate as in the naive loop: no product is skipped, and padding is never
//! multiplied with data.

mod driver;
#[cfg(target_arch = "x86_64")]
mod kernel_avx2;
#[cfg(target_arch = "x86_64")]
mod kernel_avx512;
#[cfg(feature = "meter")]
pub mod meter;
mod pack;
mod pairs;
mod portable;
mod prefetch;
mod scratch;

#[cfg(test)]
mod tests;

use half::bf16;
use ring_runtime::{Element, Tile, TileMut};

use crate::simd::Path;

/// The right operand of a product, with its layout.
#[derive(Clone, Copy, Debug)]
pub enum Rhs<'a, T> {
    /// `K × N`: row `k` holds the `N` factors of `A[:, k]`.
    Kn(Tile<'a, T>),
    /// `N × K`: row `n` holds the factors of output column `n` (the product with a transpose, `A·Bᵀ`).
    Nk(Tile<'a, T>),
}

impl<T> Rhs<'_, T> {
    /// Length of the contraction.
    pub fn depth(&self) -> usize {
        match self {
            Self::Kn(b) => b.rows(),
            Self::Nk(b) => b.cols(),
        }
    }

    /// Number of output columns.
    pub fn width(&self) -> usize {
        match self {
            Self::Kn(b) => b.cols(),
            Self::Nk(b) => b.rows(),
        }
    }
}

/// What becomes of the previous contents of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// `C = A·B`; the old contents are not read, so they may be NaN.
    Overwrite,
    /// `C = C + A·B`.
    Accumulate,
}

/// An element type that can be multiplied.
pub trait Operand: Element {
    /// Type of the accumulated result.
    type Out: Element;

    /// The product on a given instruction path; see [`gemm`].
    ///
    /// # Panics
    /// If this machine lacks the path, or the shapes do not fit.
    fn gemm_on(path: Path, a: Tile<'_, Self>, b: Rhs<'_, Self>, c: &mut TileMut<'_, Self::Out>, store: Store);
}

/// `C (+)= A·B` on the calling thread, on the best instruction path of this machine.
///
/// Any M, N and K (zero too: `K = 0` overwrites with zeros) and any row strides.
///
/// # Panics
/// If the shapes of `a`, `b` and `c` do not fit.
#[track_caller]
pub fn gemm<T: Operand>(a: Tile<'_, T>, b: Rhs<'_, T>, c: &mut TileMut<'_, T::Out>, store: Store) {
    T::gemm_on(Path::best(), a, b, c, store);
}

macro_rules! operand {
    ($ty:ty => $out:ty: $avx512:ty, $avx2:ty, $portable:ty) => {
        impl Operand for $ty {
            type Out = $out;

            #[track_caller]
            fn gemm_on(path: Path, a: Tile<'_, Self>, b: Rhs<'_, Self>, c: &mut TileMut<'_, $out>, store: Store) {
                let path = path.checked();
                #[cfg(feature = "meter")]
                meter::note(a.rows(), &b);
                match path.path() {
                    #[cfg(target_arch = "x86_64")]
                    Path::Avx512 => driver::run::<$avx512>(path, a, b, c, store),
                    #[cfg(target_arch = "x86_64")]
                    Path::Avx2 => driver::run::<$avx2>(path, a, b, c, store),
                    Path::Portable => driver::run::<$portable>(path, a, b, c, store),
                    #[cfg(not(target_arch = "x86_64"))]
                    Path::Avx512 | Path::Avx2 => unreachable!("the check refuses x86 paths elsewhere"),
                }
            }
        }
    };
}

operand!(f32 => f32: kernel_avx512::Float<f32>, kernel_avx2::Float<f32>, portable::Float<f32>);
operand!(bf16 => f32: kernel_avx512::Float<bf16>, kernel_avx2::Float<bf16>, portable::Float<bf16>);
operand!(i8 => i32: kernel_avx512::Int, kernel_avx2::Int, portable::Int);
