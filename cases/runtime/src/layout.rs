//! Shapes and strides: the index arithmetic of views, without any memory.

use crate::region::Region;

/// Greatest number of axes of a tensor.
pub const MAX_RANK: usize = 6;

/// Extents and distances of the axes, in elements. Distances fall from the first axis to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    rank: usize,
    dims: [usize; MAX_RANK],
    strides: [usize; MAX_RANK],
    /// Product of the extents. This and the next follow from the others; every access needs them.
    len: usize,
    /// Elements from the first to one past the last, gaps included.
    span: usize,
}

/// A layout seen as a matrix: the last axis across, all others folded into rows. In elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) stride: usize,
}

impl Layout {
    /// Row-major layout without gaps.
    ///
    /// Panics unless there are 1 to [`MAX_RANK`] axes and the number of elements times 8 fits `isize`.
    #[track_caller]
    pub(crate) fn dense(dims: &[usize]) -> Self {
        let rank = dims.len();
        assert!(
            (1..=MAX_RANK).contains(&rank),
            "a tensor has 1 to {MAX_RANK} axes, not {rank}"
        );
        let mut layout = Self {
            rank,
            dims: [1; MAX_RANK],
            strides: [1; MAX_RANK],
            len: 0,
            span: 0,
        };
        layout.dims[..rank].copy_from_slice(dims);
        let mut stride = 1usize;
        for axis in (0..rank).rev() {
            layout.strides[axis] = stride;
            stride = stride
                .checked_mul(dims[axis].max(1))
                .filter(|elements| *elements <= isize::MAX as usize / 8)
                .unwrap_or_else(|| panic!("a tensor of {dims:?} elements exceeds the address space"));
        }
        layout.measured()
    }

    /// Fills in what follows from extents and strides.
    fn measured(mut self) -> Self {
        self.len = self.dims().iter().product();
        let last: usize = self
            .dims()
            .iter()
            .zip(self.strides())
            .map(|(dim, stride)| dim.saturating_sub(1) * stride)
            .sum();
        self.span = if self.len == 0 { 0 } else { last + 1 };
        self
    }

    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    pub(crate) fn strides(&self) -> &[usize] {
        &self.strides[..self.rank]
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Elements from the first to one past the last, gaps included.
    pub(crate) fn span(&self) -> usize {
        self.span
    }

    /// Whether the elements follow each other without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.span() == self.len()
    }

    /// The window that starts at `offsets`: how many elements its first lies behind ours, and its layout.
    #[track_caller]
    pub(crate) fn window(&self, offsets: &[usize], dims: &[usize]) -> (usize, Self) {
        assert!(
            offsets.len() == self.rank && dims.len() == self.rank,
            "a view of a tensor with {} axes was asked for with {} offsets and {} extents",
            self.rank,
            offsets.len(),
            dims.len()
        );
        let fits = |((o, d), have): ((&usize, &usize), &usize)| o.checked_add(*d).is_some_and(|end| end <= *have);
        assert!(
            offsets.iter().zip(dims).zip(self.dims()).all(fits),
            "the view at {offsets:?} of {dims:?} leaves the tensor of {:?}",
            self.dims()
        );
        let mut layout = *self;
        layout.dims[..self.rank].copy_from_slice(dims);
        let layout = layout.measured();
        // An empty window may start one past the end of an axis; its start is never used, and the
        // parent's start is certain to lie inside the memory.
        let skip = if layout.len() == 0 {
            0
        } else {
            offsets.iter().zip(self.strides()).map(|(o, s)| o * s).sum()
        };
        (skip, layout)
    }

    /// The same elements in another shape.
    #[track_caller]
    pub(crate) fn reshaped(&self, dims: &[usize]) -> Self {
        assert!(
            self.is_contiguous(),
            "a view of {:?} with strides {:?} has gaps and can't be reshaped",
            self.dims(),
            self.strides()
        );
        let layout = Self::dense(dims);
        assert!(
            layout.len() == self.len(),
            "{:?} holds {} elements and can't be reshaped to {dims:?} with {}",
            self.dims(),
            self.len(),
            layout.len()
        );
        layout
    }

    /// The matrix form, if the leading axes fold to one row stride.
    pub(crate) fn matrix(&self) -> Option<Matrix> {
        let cols = self.dims[self.rank - 1];
        let (mut rows, mut stride) = (1, cols);
        for axis in (0..self.rank - 1).rev() {
            let (dim, step) = (self.dims[axis], self.strides[axis]);
            if dim == 1 {
                continue;
            }
            if rows == 1 {
                stride = step;
            } else if step != rows * stride && dim > 0 {
                return None;
            }
            rows *= dim;
        }
        Some(Matrix { rows, cols, stride })
    }

    /// Position of the element with this row-major index, in elements behind the first.
    pub(crate) fn position(&self, mut index: usize) -> usize {
        let mut position = 0;
        for axis in (0..self.rank).rev() {
            position += index % self.dims[axis] * self.strides[axis];
            index /= self.dims[axis];
        }
        position
    }

    /// The bytes that the layout covers from byte `start` on; `None` if they are no rectangle.
    pub(crate) fn region(&self, start: usize, element: usize) -> Option<Region> {
        if self.is_contiguous() {
            return Some(Region::dense(start, self.len() * element));
        }
        let Matrix { rows, cols, stride } = self.matrix()?;
        Some(Region::new(start, cols * element, rows, stride * element))
    }

    /// The smallest range of bytes around the layout.
    pub(crate) fn bounds(&self, start: usize, element: usize) -> Region {
        Region::dense(start, self.span() * element)
    }

    /// Whether every element of `part`, which starts `at` elements behind our first, is one of ours.
    pub(crate) fn covers(&self, at: usize, part: &Self) -> bool {
        if let (Some(ours), Some(theirs)) = (self.matrix(), part.matrix())
            && (ours.stride == theirs.stride || theirs.rows == 1)
            && ours.stride > 0
        {
            // Rows in step: all lie as the first does, so the first column and the last row decide.
            let (row, col) = (at / ours.stride, at % ours.stride);
            if col + theirs.cols <= ours.cols && row + theirs.rows <= ours.rows {
                return true;
            }
        }
        let (runs, run) = part.runs();
        (0..runs).all(|index| self.covers_run(at + part.position(index * run), run))
    }

    /// Number and length of the contiguous pieces, in row-major order; each as long as the trailing
    /// axes without a gap between them allow.
    pub(crate) fn runs(&self) -> (usize, usize) {
        let (mut run, mut axis) = (1, self.rank);
        while axis > 0 && (self.dims[axis - 1] == 1 || self.strides[axis - 1] == run) {
            run *= self.dims[axis - 1];
            axis -= 1;
        }
        (self.dims[..axis].iter().product(), run)
    }

    /// Whether `len` contiguous elements, `at` elements behind our first, are all ours.
    ///
    /// Relies on each stride being at least the span of the axes behind it, which holds for every
    /// window of a dense tensor: then the axes of a position can be read off by division.
    fn covers_run(&self, at: usize, len: usize) -> bool {
        let run = self.runs().1;
        let mut rest = at;
        for (dim, stride) in self.dims().iter().zip(self.strides()) {
            // The axes within a run are one axis; pieces may cross their borders.
            if *stride < run || *dim == 1 {
                continue;
            }
            if rest / stride >= *dim {
                return false;
            }
            rest %= stride;
        }
        rest.checked_add(len).is_some_and(|end| end <= run)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All multi-indices below `dims`, in row-major order.
    fn indices(dims: &[usize]) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for dim in dims {
            all = all
                .into_iter()
                .flat_map(|index: Vec<usize>| (0..*dim).map(move |i| [index.as_slice(), &[i]].concat()))
                .collect();
        }
        all
    }

    /// Position of a multi-index in a dense tensor, by Horner's rule.
    fn dense_position(dims: &[usize], index: &[usize]) -> usize {
        index.iter().zip(dims).fold(0, |position, (i, dim)| position * dim + i)
    }

    /// A dense shape, and one window within another window of it: (dims, offsets, extents, offsets, extents).
    #[derive(Clone, Debug)]
    struct Nested {
        dims: Vec<usize>,
        outer: (Vec<usize>, Vec<usize>),
        inner: (Vec<usize>, Vec<usize>),
    }

    fn window(dims: Vec<usize>) -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
        dims.into_iter()
            .map(|dim| (0..=dim).prop_flat_map(move |offset| (Just(offset), 0..=dim - offset)))
            .collect::<Vec<_>>()
            .prop_map(|axes| axes.into_iter().unzip())
    }

    fn nested() -> impl Strategy<Value = Nested> {
        prop::collection::vec(1..5usize, 1..5).prop_flat_map(|dims| {
            (Just(dims.clone()), window(dims)).prop_flat_map(|(dims, outer)| {
                (Just(dims), Just(outer.clone()), window(outer.1)).prop_map(|(dims, outer, inner)| Nested {
                    dims,
                    outer,
                    inner,
                })
            })
        })
    }

    /// Positions that a window of a window must address, computed on multi-indices.
    fn expected(nested: &Nested) -> Vec<usize> {
        indices(&nested.inner.1)
            .into_iter()
            .map(|index| {
                let place: Vec<usize> = (0..index.len())
                    .map(|axis| index[axis] + nested.inner.0[axis] + nested.outer.0[axis])
                    .collect();
                dense_position(&nested.dims, &place)
            })
            .collect()
    }

    fn positions(start: usize, layout: &Layout) -> Vec<usize> {
        (0..layout.len()).map(|index| start + layout.position(index)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn windows_address_what_indices_say(nested in nested()) {
            let dense = Layout::dense(&nested.dims);
            let (at, outer) = dense.window(&nested.outer.0, &nested.outer.1);
            let (further, inner) = outer.window(&nested.inner.0, &nested.inner.1);
            let expected = expected(&nested);
            prop_assert_eq!(positions(at + further, &inner), expected.clone());

            let gapless = expected.windows(2).all(|pair| pair[1] == pair[0] + 1);
            prop_assert_eq!(inner.is_contiguous(), gapless);
            if gapless {
                let flat = inner.reshaped(&[expected.len()]);
                prop_assert_eq!(positions(at + further, &flat), expected.clone());
            }

            let (runs, run) = inner.runs();
            prop_assert_eq!(runs * run, expected.len());
            let pieces: Vec<usize> = (0..runs.min(expected.len()))
                .flat_map(|i| (0..run).map(move |j| (i, j)))
                .map(|(i, j)| at + further + inner.position(i * run) + j)
                .collect();
            prop_assert_eq!(pieces, expected.clone());

            if let Some(Matrix { rows, cols, stride }) = inner.matrix() {
                let folded: Vec<usize> = (0..rows).flat_map(|r| (0..cols).map(move |c| at + further + r * stride + c)).collect();
                prop_assert_eq!(folded, expected.clone());
            }

            // Bytes of the region (element size 2) are those of the elements, or a range around them.
            let region = inner.region((at + further) * 2, 2);
            prop_assert_eq!(region.is_some(), inner.matrix().is_some() || gapless);
            for byte in 0..2 * dense.len() {
                let mine = expected.contains(&(byte / 2));
                let in_region = |region: Region| region.overlaps(&Region::dense(byte, 1));
                if let Some(region) = region {
                    prop_assert_eq!(in_region(region), mine);
                }
                prop_assert!(!mine || in_region(inner.bounds((at + further) * 2, 2)));
            }
        }

        #[test]
        fn covering_is_being_a_subset(nested in nested(), before in prop::collection::vec(0..2usize, 4), more in prop::collection::vec(0..3usize, 4)) {
            let dense = Layout::dense(&nested.dims);
            let (at, window) = dense.window(&nested.outer.0, &nested.outer.1);
            let mine = positions(at, &window);
            // A window of the window, grown by a little on some sides, and clipped to the tensor.
            let axes = 0..nested.dims.len();
            let offsets: Vec<usize> = axes
                .clone()
                .map(|axis| (nested.outer.0[axis] + nested.inner.0[axis]).saturating_sub(before[axis]))
                .collect();
            let dims: Vec<usize> = axes
                .map(|axis| (nested.inner.1[axis] + more[axis]).min(nested.dims[axis] - offsets[axis]))
                .collect();
            let (part_at, part) = dense.window(&offsets, &dims);
            let theirs = positions(part_at, &part);
            // `covers` is asked only about parts within the bounds.
            if !theirs.is_empty() && part_at >= at && part_at + part.span() <= at + window.span() {
                let subset = theirs.iter().all(|position| mine.contains(position));
                prop_assert_eq!(window.covers(part_at - at, &part), subset);
            }
        }
    }

    #[test]
    #[should_panic(expected = "exceeds the address space")]
    fn a_shape_beyond_the_address_space_panics() {
        Layout::dense(&[1 << 31, 1 << 31, 4]);
    }

    #[test]
    #[should_panic(expected = "has 1 to 6 axes, not 0")]
    fn a_shape_without_axes_panics() {
        Layout::dense(&[]);
    }
}
