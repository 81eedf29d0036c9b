//! How two windows of one buffer relate.

use crate::layout::Layout;

/// How a window relates to one that was written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// No element in common.
    None,
    /// The new window contains the old one.
    Covered,
    /// They share, or can't be shown not to share, some element.
    Other,
}

/// A window of a buffer: where it starts and how it is laid out, in elements of `element` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) offset: usize,
    pub(crate) element: usize,
    pub(crate) layout: Layout,
    /// Generation of the content; a reader of a later generation than the writer's is never covered.
    pub(crate) version: u32,
}

impl Window {
    /// Bytes from the first element to one past the last.
    fn span(&self) -> (usize, usize) {
        let start = self.offset * self.element;
        (start, start + self.layout.span() * self.element)
    }

    /// How `self` relates to `entry`, which was written before.
    ///
    /// First the ranges of elements; then, for windows of equal strides, each axis of the two
    /// hyper-rectangles; anything else is [`Overlap::Other`].
    pub(crate) fn against(&self, entry: &Self) -> Overlap {
        let ((a, a_end), (b, b_end)) = (self.span(), entry.span());
        if a_end <= b || b_end <= a {
            return Overlap::None;
        }
        if self.version > entry.version {
            return Overlap::Other;
        }
        if self.element != entry.element || self.layout.strides() != entry.layout.strides() {
            return Overlap::Other;
        }
        self.rectangles(entry)
    }

    /// Compares axis by axis; both have the same strides.
    fn rectangles(&self, entry: &Self) -> Overlap {
        let (mut a, mut b) = (self.offset, entry.offset);
        let mut covered = true;
        let strides = self.layout.strides();
        for (axis, &stride) in strides.iter().enumerate() {
            let (a_at, b_at) = (a / stride, b / stride);
            (a, b) = (a % stride, b % stride);
            let (a_len, b_len) = (self.layout.dims()[axis], entry.layout.dims()[axis]);
            // A window that runs over the end of its stride is no rectangle in these coordinates.
            let fits = |at: usize, len: usize| axis == 0 || at + len <= strides[axis - 1] / stride;
            if !fits(a_at, a_len) || !fits(b_at, b_len) {
                return Overlap::Other;
            }
            if a_at + a_len <= b_at || b_at + b_len <= a_at {
                return Overlap::None;
            }
            covered &= a_at <= b_at && b_at + b_len <= a_at + a_len;
        }
        if covered { Overlap::Covered } else { Overlap::Other }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Window at `offsets` of `dims` in a buffer of 8 rows of 16.
    fn window(offsets: [usize; 2], dims: [usize; 2]) -> Window {
        let (offset, layout) = Layout::dense(&[8, 16]).window(&offsets, &dims);
        Window {
            offset,
            element: 4,
            layout,
            version: 0,
        }
    }

    #[track_caller]
    fn check(new: Window, old: Window, expected: Overlap) {
        assert_eq!(new.against(&old), expected);
    }

    #[test]
    fn disjoint_element_ranges_do_not_overlap() {
        check(window([0, 0], [2, 16]), window([2, 0], [1, 4]), Overlap::None);
    }

    #[test]
    fn interleaved_columns_do_not_overlap() {
        check(window([0, 0], [8, 8]), window([0, 8], [8, 8]), Overlap::None);
    }

    #[test]
    fn a_rectangle_covers_what_lies_inside() {
        check(window([1, 2], [4, 8]), window([2, 3], [2, 5]), Overlap::Covered);
        check(window([2, 3], [2, 5]), window([1, 2], [4, 8]), Overlap::Other);
        check(window([1, 2], [4, 8]), window([1, 2], [4, 8]), Overlap::Covered);
    }

    #[test]
    fn other_strides_can_not_be_compared() {
        let dense = Window {
            offset: 0,
            element: 4,
            layout: Layout::dense(&[128]),
            version: 0,
        };
        check(dense, window([0, 0], [8, 8]), Overlap::Other);
        check(dense, window([0, 0], [8, 16]), Overlap::Other);
    }

    #[test]
    fn a_later_version_is_never_covered() {
        let newer = Window {
            version: 1,
            ..window([0, 0], [8, 16])
        };
        check(newer, window([0, 0], [8, 16]), Overlap::Other);
        check(window([0, 0], [8, 16]), newer, Overlap::Covered);
    }

    #[test]
    fn an_empty_window_overlaps_nothing() {
        check(window([0, 0], [0, 16]), window([0, 0], [8, 16]), Overlap::None);
    }

    proptest::proptest! {
        /// Against the sets of elements: `None` and `Covered` must be true statements.
        #[test]
        fn agrees_with_sets_of_elements(
            a in (0usize..8, 0usize..16, 1usize..8, 1usize..16),
            b in (0usize..8, 0usize..16, 1usize..8, 1usize..16),
        ) {
            let clip = |(r, c, h, w): (usize, usize, usize, usize)| window([r, c], [h.min(8 - r), w.min(16 - c)]);
            let (a, b) = (clip(a), clip(b));
            let elements = |w: &Window| -> std::collections::BTreeSet<usize> {
                (0..w.layout.len()).map(|i| w.offset + w.layout.position(i)).collect()
            };
            let (ea, eb) = (elements(&a), elements(&b));
            match a.against(&b) {
                Overlap::None => proptest::prop_assert!(ea.is_disjoint(&eb)),
                Overlap::Covered => proptest::prop_assert!(ea.is_superset(&eb)),
                Overlap::Other => proptest::prop_assert!(!ea.is_disjoint(&eb) && !ea.is_superset(&eb)),
            }
        }
    }
}
