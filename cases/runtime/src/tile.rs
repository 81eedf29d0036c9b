//! Two-dimensional views of tensor memory: what tile operations read and write.
//!
//! A tile has rows of contiguous elements, a fixed distance apart. It may be a window of a wider
//! tensor whose other columns belong to somebody else at the same time, so neither type ever makes
//! a slice that spans more than one row.

use std::marker::PhantomData;
use std::ops::Range;

use crate::element::Element;

/// Shared view of `rows × cols` elements.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a, T> {
    ptr: *const T,
    rows: usize,
    cols: usize,
    stride: usize,
    life: PhantomData<&'a [T]>,
}

/// Exclusive view of `rows × cols` elements.
#[derive(Debug)]
pub struct TileMut<'a, T> {
    ptr: *mut T,
    rows: usize,
    cols: usize,
    stride: usize,
    life: PhantomData<&'a mut [T]>,
}

/// Panics unless rows `0..rows` of `cols` elements, `stride` apart, lie within `len` elements.
#[track_caller]
fn check_shape(len: usize, rows: usize, cols: usize, stride: usize) {
    assert!(
        cols <= stride || rows <= 1,
        "rows of {cols} elements overlap at a stride of {stride}"
    );
    let need = match rows.checked_sub(1) {
        None => Some(0),
        Some(before) => before.checked_mul(stride).and_then(|last| last.checked_add(cols)),
    };
    // A product beyond the address space wraps in release builds, and would then pass.
    assert!(
        need.is_some_and(|need| need <= len),
        "a tile of {rows} × {cols} with stride {stride} doesn't fit {len} elements"
    );
}

#[expect(
    unsafe_code,
    reason = "row slices are made from a base pointer; see the type's invariant"
)]
impl<'a, T> Tile<'a, T> {
    /// View of a dense row-major matrix.
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// View of rows that start `stride` elements apart.
    pub fn strided(data: &'a [T], rows: usize, cols: usize, stride: usize) -> Self {
        check_shape(data.len(), rows, cols, stride);
        Self {
            ptr: data.as_ptr(),
            rows,
            cols,
            stride,
            life: PhantomData,
        }
    }

    /// View from raw parts.
    ///
    /// # Safety
    /// For `'a`, every element of every row is readable, initialised, and written by nobody.
    pub unsafe fn from_raw(ptr: *const T, rows: usize, cols: usize, stride: usize) -> Self {
        Self {
            ptr,
            rows,
            cols,
            stride,
            life: PhantomData,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of elements in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Distance of two rows, in elements.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Row `r`.
    #[track_caller]
    pub fn row(&self, r: usize) -> &'a [T] {
        assert!(r < self.rows, "row {r} of a tile with {} rows", self.rows);
        // SAFETY: the constructor's contract: row `r < rows` is readable and unwritten for `'a`.
        unsafe { std::slice::from_raw_parts(self.ptr.add(r * self.stride), self.cols) }
    }

    /// Window of this tile.
    #[must_use]
    #[track_caller]
    pub fn sub(&self, rows: Range<usize>, cols: Range<usize>) -> Tile<'a, T> {
        assert!(
            rows.start <= rows.end && rows.end <= self.rows,
            "rows {rows:?} of {}",
            self.rows
        );
        assert!(
            cols.start <= cols.end && cols.end <= self.cols,
            "columns {cols:?} of {}",
            self.cols
        );
        if rows.is_empty() || cols.is_empty() {
            return Tile {
                rows: rows.len(),
                cols: cols.len(),
                ..*self
            };
        }
        // SAFETY: the window's first element lies within this tile, hence within the allocation.
        let ptr = unsafe { self.ptr.add(rows.start * self.stride + cols.start) };
        Tile {
            ptr,
            rows: rows.len(),
            cols: cols.len(),
            stride: self.stride,
            life: PhantomData,
        }
    }

    /// Pointer to the first element, for vector code.
    pub fn as_ptr(&self) -> *const T {
        self.ptr
    }
}

#[expect(
    unsafe_code,
    reason = "row slices are made from a base pointer; see the type's invariant"
)]
impl<'a, T> TileMut<'a, T> {
    /// View of a dense row-major matrix.
    pub fn new(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// View of rows that start `stride` elements apart.
    pub fn strided(data: &'a mut [T], rows: usize, cols: usize, stride: usize) -> Self {
        check_shape(data.len(), rows, cols, stride);
        Self {
            ptr: data.as_mut_ptr(),
            rows,
            cols,
            stride,
            life: PhantomData,
        }
    }

    /// View from raw parts.
    ///
    /// # Safety
    /// For `'a`, every element of every row is initialised and reached through this view only.
    pub unsafe fn from_raw(ptr: *mut T, rows: usize, cols: usize, stride: usize) -> Self {
        Self {
            ptr,
            rows,
            cols,
            stride,
            life: PhantomData,
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of elements in a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Distance of two rows, in elements.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Row `r`, shared.
    #[track_caller]
    pub fn row(&self, r: usize) -> &[T] {
        self.as_tile().row(r)
    }

    /// Row `r`, exclusive.
    #[track_caller]
    pub fn row_mut(&mut self, r: usize) -> &mut [T] {
        assert!(r < self.rows, "row {r} of a tile with {} rows", self.rows);
        // SAFETY: the constructor's contract: row `r < rows` is reached through this view only, and
        // the returned borrow of `self` keeps a second row slice from being made meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(r * self.stride), self.cols) }
    }

    /// Shared view of the same elements while `self` is borrowed.
    pub fn as_tile(&self) -> Tile<'_, T> {
        Tile {
            ptr: self.ptr,
            rows: self.rows,
            cols: self.cols,
            stride: self.stride,
            life: PhantomData,
        }
    }

    /// Exclusive window of this tile, while `self` is borrowed.
    #[track_caller]
    pub fn sub_mut(&mut self, rows: Range<usize>, cols: Range<usize>) -> TileMut<'_, T> {
        let window = self.as_tile().sub(rows, cols);
        TileMut {
            ptr: window.ptr.cast_mut(),
            rows: window.rows,
            cols: window.cols,
            stride: window.stride,
            life: PhantomData,
        }
    }

    /// Pointer to the first element, for vector code.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.ptr
    }
}

impl<T: Element> TileMut<'_, T> {
    /// Sets every element to `value`.
    pub fn fill(&mut self, value: T) {
        for r in 0..self.rows {
            self.row_mut(r).fill(value);
        }
    }
}

// SAFETY: a tile is a borrowed view; it may go to another thread exactly when the slice that it stands for may.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Sync> Send for Tile<'_, T> {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Sync> Sync for Tile<'_, T> {}
// SAFETY: as above, for an exclusive slice.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Send> Send for TileMut<'_, T> {}
// SAFETY: as above; a shared borrow of an exclusive view only reads.
#[expect(unsafe_code, reason = "raw pointers opt out of Send and Sync")]
unsafe impl<T: Sync> Sync for TileMut<'_, T> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn windows_address_the_parent() {
        let data: Vec<i32> = (0..20).collect();
        let tile = Tile::strided(&data, 4, 3, 5);
        assert_eq!(tile.row(2), [10, 11, 12]);
        let window = tile.sub(1..3, 1..3);
        assert_eq!((window.row(0), window.row(1)), (&[6, 7][..], &[11, 12][..]));
    }

    #[test]
    fn writing_a_window_leaves_the_rest() {
        let mut data = vec![0i32; 12];
        let mut tile = TileMut::new(&mut data, 3, 4);
        tile.sub_mut(1..3, 2..4).fill(7);
        assert_eq!(data, [0, 0, 0, 0, 0, 0, 7, 7, 0, 0, 7, 7]);
    }

    #[test]
    #[should_panic(expected = "doesn't fit 11 elements")]
    fn a_tile_larger_than_its_memory_is_refused() {
        let _ = Tile::strided(&[0f32; 11], 3, 2, 5);
    }

    #[test]
    #[should_panic(expected = "doesn't fit 4 elements")]
    fn a_tile_beyond_the_address_space_is_refused() {
        let _ = Tile::strided(&[0f32; 4], (1 << 32) + 1, 1, 1 << 32);
    }
}
