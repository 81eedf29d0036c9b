//! Asks for memory before it is needed.
//!
//! Lines go to the second-level cache: rows of a panel of a wide matrix share few sets of the first one,
//! and what is asked for ahead would evict what is in use. Against the first level, products of few rows
//! gained in measurements, and none lost.

use ring_runtime::Tile;

/// Asks for the cache lines of `len` elements from `ptr` on; nothing need be there.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, reason = "no stable prefetch elsewhere")
)]
#[expect(clippy::inline_always, reason = "two instructions in the loops of the kernels")]
#[inline(always)]
pub(super) fn ask_for<T>(ptr: *const T, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for byte in (0..len * size_of::<T>()).step_by(64) {
        let line = ptr.cast::<i8>().wrapping_add(byte);
        #[expect(unsafe_code, reason = "the intrinsic takes a pointer")]
        // SAFETY: a prefetch accesses nothing; the instruction is part of every x86-64.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(line);
        }
    }
}

/// Asks for the rows of `tile`: a window of rows is too short for the hardware to foresee.
pub(super) fn prefetch<T>(tile: &Tile<'_, T>) {
    for r in 0..tile.rows() {
        let row = tile.row(r);
        ask_for(row.as_ptr(), row.len());
    }
}
