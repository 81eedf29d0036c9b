//! Arrays that come into being piece by piece.
//!
//! Windows and pools may be configured far larger than a run ever uses; a piece is made when
//! somebody first looks at it, and stays.

use std::sync::OnceLock;

/// Elements of one piece.
const PIECE: usize = if cfg!(loom) { 4 } else { 256 };

/// A fixed number of elements, each `T::default()` until somebody changes it.
#[derive(Debug)]
pub(crate) struct Segments<T> {
    pieces: Box<[OnceLock<Box<[T]>>]>,
}

impl<T: Default> Segments<T> {
    pub(crate) fn new(len: usize) -> Self {
        let array = Self {
            pieces: (0..len.div_ceil(PIECE)).map(|_| OnceLock::new()).collect(),
        };
        // loom does not see that a `OnceLock` orders the making of a piece before its use.
        if cfg!(loom) {
            (0..len).for_each(|index| _ = array.get(index));
        }
        array
    }

    /// Element `index < len`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &T {
        let piece = self.pieces[index / PIECE].get_or_init(|| (0..PIECE).map(|_| T::default()).collect());
        &piece[index % PIECE]
    }

    /// The elements of all pieces that exist.
    pub(crate) fn touched(&self) -> impl Iterator<Item = &T> {
        self.pieces
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|piece| piece.iter())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_looked_at_exists() {
        let array: Segments<u8> = Segments::new(1 << 30);
        assert_eq!(array.touched().count(), 0);
        assert_eq!(*array.get((1 << 30) - 1), 0);
        assert_eq!(array.touched().count(), PIECE);
    }
}
