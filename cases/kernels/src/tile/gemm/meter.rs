//! Which products a program makes: for benchmarks that ask what bounds it.

use std::sync::{Mutex, PoisonError};

use ring_runtime::{DType, Element};

use super::Rhs;

/// One product `C[M,N] (+)= A[M,K] · B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Type of the operands.
    pub dtype: DType,
    /// Rows of A.
    pub m: usize,
    /// Columns of B.
    pub n: usize,
    /// Length of the contraction.
    pub k: usize,
    /// Address of B: products with the same one read the same memory.
    pub b: usize,
}

impl Product {
    /// Operations, a multiply and an add counting as two.
    pub fn operations(&self) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64
    }

    /// Bytes of B.
    pub fn bytes_of_b(&self) -> u64 {
        (self.n * self.k * self.dtype.size()) as u64
    }
}

static RECORD: Mutex<Option<Vec<Product>>> = Mutex::new(None);

/// Runs `work` and returns the products that any thread made meanwhile, in the order in which they began.
pub fn record<R>(work: impl FnOnce() -> R) -> (R, Vec<Product>) {
    let slot = || RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    *slot() = Some(Vec::new());
    let result = work();
    let products = slot().take().unwrap_or_default();
    (result, products)
}

pub(super) fn note<T: Element>(m: usize, b: &Rhs<'_, T>) {
    if let Some(products) = &mut *RECORD.lock().unwrap_or_else(PoisonError::into_inner) {
        let address = match b {
            Rhs::Kn(b) | Rhs::Nk(b) => b.as_ptr() as usize,
        };
        products.push(Product {
            dtype: T::DTYPE,
            m,
            n: b.width(),
            k: b.depth(),
            b: address,
        });
    }
}
