//! Guards: the references to tensor memory that exist right now, each with the claim behind it.
//!
//! Invariant *claimed elements*: a guard points at elements of its type that lie in the memory of
//! its claim, aligned, and all inside the claimed region. Each constructor derives both from the
//! same tensor, and nothing changes them afterwards.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::claims::{Access, Claimant};
use crate::element::Element;
use crate::layout::Matrix;
use crate::memory::{Held, Memory};
use crate::tensor::Tensor;
use crate::tile::{Tile, TileMut};

/// Shared access to a tensor without gaps, as a slice in row-major order.
#[derive(Debug)]
pub struct ReadGuard<'a, T> {
    first: NonNull<T>,
    len: usize,
    _held: Held<'a>,
    _elements: PhantomData<&'a [T]>,
}

/// Exclusive access to a tensor without gaps, as a slice in row-major order.
#[derive(Debug)]
pub struct WriteGuard<'a, T> {
    first: NonNull<T>,
    len: usize,
    _held: Held<'a>,
    _elements: PhantomData<&'a mut [T]>,
}

/// Shared access to a matrix, or to a window of one. The last axis runs across, the others fold into rows.
#[derive(Debug)]
pub struct TileGuard<'a, T> {
    first: NonNull<T>,
    shape: Matrix,
    _held: Held<'a>,
    _elements: PhantomData<&'a [T]>,
}

/// Exclusive access to a matrix, or to a window of one. The last axis runs across, the others fold into rows.
#[derive(Debug)]
pub struct TileMutGuard<'a, T> {
    first: NonNull<T>,
    shape: Matrix,
    _held: Held<'a>,
    _elements: PhantomData<&'a mut [T]>,
}

/// Claims a tensor that has no gaps; `memory` is the tensor's, borrowed for as long as the guard is to live.
#[track_caller]
fn claim_slice<'a, T: Element>(
    memory: &'a Memory,
    tensor: &Tensor,
    access: Access,
    claimant: Claimant,
) -> (NonNull<T>, Held<'a>) {
    tensor.expect_dtype::<T>();
    assert!(
        tensor.is_contiguous(),
        "{tensor:?} has gaps and can't be accessed as a slice"
    );
    claim_footprint(memory, tensor, access, claimant)
}

/// Claims a tensor whose leading axes fold into rows.
#[track_caller]
fn claim_tile<'a, T: Element>(
    memory: &'a Memory,
    tensor: &Tensor,
    access: Access,
    claimant: Claimant,
) -> (NonNull<T>, Matrix, Held<'a>) {
    tensor.expect_dtype::<T>();
    let shape = tensor.layout().matrix().unwrap_or_else(|| {
        panic!("the leading axes of {tensor:?} don't fold to one row distance, so it can't be accessed as a tile")
    });
    let (first, held) = claim_footprint(memory, tensor, access, claimant);
    (first, shape, held)
}

#[track_caller]
fn claim_footprint<'a, T: Element>(
    memory: &'a Memory,
    tensor: &Tensor,
    access: Access,
    claimant: Claimant,
) -> (NonNull<T>, Held<'a>) {
    assert!(tensor.lies_in(memory), "the memory of a guard is that of its tensor");
    let held = memory.claim(tensor.footprint(), access, claimant, tensor.name());
    let first = memory.at(tensor.start()).cast::<T>();
    debug_assert!(first.is_aligned(), "tensors start at a multiple of their element size");
    (first, held)
}

impl<'a, T: Element> ReadGuard<'a, T> {
    #[track_caller]
    pub(crate) fn claim(memory: &'a Memory, tensor: &Tensor, claimant: Claimant) -> Self {
        let (first, held) = claim_slice(memory, tensor, Access::Read, claimant);
        Self {
            first,
            len: tensor.len(),
            _held: held,
            _elements: PhantomData,
        }
    }
}

impl<'a, T: Element> WriteGuard<'a, T> {
    #[track_caller]
    pub(crate) fn claim(memory: &'a Memory, tensor: &Tensor, claimant: Claimant) -> Self {
        let (first, held) = claim_slice(memory, tensor, Access::Write, claimant);
        Self {
            first,
            len: tensor.len(),
            _held: held,
            _elements: PhantomData,
        }
    }
}

impl<'a, T: Element> TileGuard<'a, T> {
    #[track_caller]
    pub(crate) fn claim(memory: &'a Memory, tensor: &Tensor, claimant: Claimant) -> Self {
        let (first, shape, held) = claim_tile(memory, tensor, Access::Read, claimant);
        Self {
            first,
            shape,
            _held: held,
            _elements: PhantomData,
        }
    }

    /// The elements.
    pub fn tile(&self) -> Tile<'_, T> {
        let Matrix { rows, cols, stride } = self.shape;
        #[expect(unsafe_code, reason = "the one place that turns a claim into a tile")]
        // SAFETY: *claimed elements*: every row lies in the claimed region, the claim lasts as long
        // as the borrow of `self`, and by *claimed access* nobody writes there meanwhile. Mapped
        // memory is initialised.
        unsafe {
            Tile::from_raw(self.first.as_ptr(), rows, cols, stride)
        }
    }
}

impl<'a, T: Element> TileMutGuard<'a, T> {
    #[track_caller]
    pub(crate) fn claim(memory: &'a Memory, tensor: &Tensor, claimant: Claimant) -> Self {
        let (first, shape, held) = claim_tile(memory, tensor, Access::Write, claimant);
        Self {
            first,
            shape,
            _held: held,
            _elements: PhantomData,
        }
    }

    /// The elements, shared.
    pub fn tile(&self) -> Tile<'_, T> {
        let Matrix { rows, cols, stride } = self.shape;
        #[expect(unsafe_code, reason = "the one place that turns a write claim into a shared tile")]
        // SAFETY: as in `TileGuard::tile`; an exclusive tile would need the exclusive borrow of `self`.
        unsafe {
            Tile::from_raw(self.first.as_ptr(), rows, cols, stride)
        }
    }

    /// The elements, exclusive.
    pub fn tile_mut(&mut self) -> TileMut<'_, T> {
        let Matrix { rows, cols, stride } = self.shape;
        #[expect(
            unsafe_code,
            reason = "the one place that turns a write claim into an exclusive tile"
        )]
        // SAFETY: *claimed elements* under a write claim, so by *claimed access* nobody else reads or
        // writes these bytes; the exclusive borrow of `self` keeps a second tile from being made.
        unsafe {
            TileMut::from_raw(self.first.as_ptr(), rows, cols, stride)
        }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];

    #[expect(unsafe_code, reason = "the one place that turns a claim into a slice")]
    fn deref(&self) -> &[T] {
        // SAFETY: *claimed elements*: `len` elements from `first` on lie in the claimed region, the
        // claim outlives the borrow of `self`, and by *claimed access* nobody writes there meanwhile.
        // Mapped memory is initialised.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = [T];

    #[expect(unsafe_code, reason = "the one place that turns a write claim into a shared slice")]
    fn deref(&self) -> &[T] {
        // SAFETY: as for `ReadGuard`; an exclusive slice would need the exclusive borrow of `self`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    #[expect(
        unsafe_code,
        reason = "the one place that turns a write claim into an exclusive slice"
    )]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: *claimed elements* under a write claim, so by *claimed access* nobody else reads or
        // writes these bytes; the exclusive borrow of `self` keeps a second slice from being made.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

/// Copies the elements of `from` to `to`, which have the same type and shape, gaps or not.
///
/// Panics on a conflicting access, as on tensors that share bytes.
#[track_caller]
pub(crate) fn copy(from: (&Memory, &Tensor), to: (&Memory, &Tensor), claimant: Claimant) {
    let ((source, from), (target, to)) = (from, to);
    assert!(
        from.dtype() == to.dtype() && from.dims() == to.dims(),
        "{from:?} can't be copied to {to:?}"
    );
    let (first, _reading) = claim_footprint::<i8>(source, from, Access::Read, claimant);
    let (last, _writing) = claim_footprint::<i8>(target, to, Access::Write, claimant);
    let size = from.dtype().size();
    let dense = from.is_contiguous() && to.is_contiguous();
    let run = if dense {
        from.len()
    } else {
        from.dims()[from.rank() - 1]
    };
    for index in (0..from.len()).step_by(run.max(1)) {
        let (read, written) = (from.layout().position(index), to.layout().position(index));
        #[expect(unsafe_code, reason = "rows are copied between two mappings")]
        // SAFETY: `run` elements from row-major `index` on are contiguous on both sides and lie in the footprints that were just claimed, which are disjoint:
        // a write claim is granted beside no other access of the same bytes.
        unsafe {
            let (read, written) = (first.add(read * size), last.add(written * size));
            read.copy_to_nonoverlapping(written, run * size);
        }
    }
}

// SAFETY: a guard is a shared slice with its claim; a claim may be released from any thread.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Sync> Send for ReadGuard<'_, T> {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Sync> Sync for ReadGuard<'_, T> {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Sync> Send for TileGuard<'_, T> {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Sync> Sync for TileGuard<'_, T> {}
// SAFETY: a guard is an exclusive slice with its claim; a claim may be released from any thread.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Send> Send for WriteGuard<'_, T> {}
// SAFETY: a shared borrow of the guard only reads.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Sync> Sync for WriteGuard<'_, T> {}
// SAFETY: as for `WriteGuard`.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Send> Send for TileMutGuard<'_, T> {}
// SAFETY: as for `WriteGuard`.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Sync> Sync for TileMutGuard<'_, T> {}
