//! Byte rectangles of a memory: equally long rows, a fixed distance apart.

use std::fmt;

/// A set of bytes `{ offset + r * stride + b : r < rows, b < row_bytes }` of one memory.
///
/// Normalised: rows that touch are one row, one row has a stride of its own length, and the empty
/// set has no rows. Matrix never overlap each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    offset: usize,
    row_bytes: usize,
    rows: usize,
    stride: usize,
}

impl Region {
    /// The rectangle; all quantities but `rows` are in bytes.
    ///
    /// Panics when rows would overlap, which no view of a tensor can ask for.
    pub(crate) fn new(offset: usize, row_bytes: usize, rows: usize, stride: usize) -> Self {
        if rows == 0 || row_bytes == 0 {
            return Self::dense(offset, 0);
        }
        if rows == 1 || stride == row_bytes {
            return Self::dense(offset, rows * row_bytes);
        }
        assert!(
            stride > row_bytes,
            "rows of {row_bytes} B overlap at a stride of {stride} B"
        );
        Self {
            offset,
            row_bytes,
            rows,
            stride,
        }
    }

    /// The `bytes` bytes from `offset` on.
    pub(crate) fn dense(offset: usize, bytes: usize) -> Self {
        Self {
            offset,
            row_bytes: bytes,
            rows: usize::from(bytes > 0),
            stride: bytes,
        }
    }

    /// Whether the set holds no byte.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// One past the last byte.
    pub(crate) fn end(&self) -> usize {
        match self.rows {
            0 => self.offset,
            rows => self.offset + (rows - 1) * self.stride + self.row_bytes,
        }
    }

    /// First byte of every row.
    fn row_starts(&self) -> impl Iterator<Item = usize> {
        (0..self.rows).map(|r| self.offset + r * self.stride)
    }

    /// Whether the two sets share a byte. Exact.
    #[inline]
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        if self.is_empty() || other.is_empty() || self.offset >= other.end() || other.offset >= self.end() {
            return false;
        }
        if self.rows == 1 && other.rows == 1 {
            return true;
        }
        if self.rows == 1 || other.rows == 1 || self.stride == other.stride {
            return self.overlaps_in_step(other);
        }
        // Two windows of differently reshaped tensors. The side with fewer rows is walked: each
        // row is a rectangle of one row, for which the closed form holds. Taking the bounding
        // range instead would refuse columns of one tensor beside rows of the same memory seen
        // in another shape, which is a thing that kernels do.
        let (few, many) = if self.rows <= other.rows {
            (self, other)
        } else {
            (other, self)
        };
        few.row_starts()
            .any(|start| Self::dense(start, few.row_bytes).overlaps(many))
    }

    /// Closed form for equal strides, or for a single row against any stride.
    ///
    /// Row `i` of `self` meets row `j` of `other` iff `-other.row_bytes < d + k * s < self.row_bytes`,
    /// where `d` is the distance of the offsets and `k = j - i`; `k` takes every value in
    /// `-(self.rows - 1)..=other.rows - 1`.
    fn overlaps_in_step(&self, other: &Self) -> bool {
        let stride = if self.rows == 1 { other.stride } else { self.stride } as i128;
        let distance = other.offset as i128 - self.offset as i128;
        let least = (-(other.row_bytes as i128) - distance).div_euclid(stride) + 1;
        let greatest = (self.row_bytes as i128 - distance - 1).div_euclid(stride);
        least.max(1 - self.rows as i128) <= greatest.min(other.rows as i128 - 1)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            offset,
            row_bytes,
            rows,
            stride,
        } = self;
        match rows {
            0 | 1 => write!(f, "bytes {offset}..{}", self.end()),
            _ => write!(f, "{rows} rows of {row_bytes} B, {stride} B apart, from byte {offset}"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Offset, row bytes, rows, stride: small, so that near misses are frequent, and with few
    /// different strides, so that equal ones are too.
    fn rectangle() -> impl Strategy<Value = (usize, usize, usize, usize)> {
        (
            0..60usize,
            0..8usize,
            0..8usize,
            prop_oneof![Just(0usize), Just(1), Just(3), 0..9usize],
        )
            .prop_map(|(offset, row_bytes, rows, gap)| (offset, row_bytes, rows, row_bytes + gap))
    }

    fn bytes((offset, row_bytes, rows, stride): (usize, usize, usize, usize)) -> BTreeSet<usize> {
        (0..rows)
            .flat_map(|r| (0..row_bytes).map(move |b| offset + r * stride + b))
            .collect()
    }

    fn region((offset, row_bytes, rows, stride): (usize, usize, usize, usize)) -> Region {
        Region::new(offset, row_bytes, rows, stride)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn overlap_is_a_common_byte(a in rectangle(), b in rectangle()) {
            let common = !bytes(a).is_disjoint(&bytes(b));
            prop_assert_eq!(region(a).overlaps(&region(b)), common);
            prop_assert_eq!(region(b).overlaps(&region(a)), common);
        }

        #[test]
        fn overlap_of_equal_strides_is_a_common_byte(a in rectangle(), b in rectangle(), stride in 8..12usize) {
            let (a, b) = ((a.0, a.1, a.2, stride), (b.0, b.1, b.2, stride));
            prop_assert_eq!(region(a).overlaps(&region(b)), !bytes(a).is_disjoint(&bytes(b)));
        }

        #[test]
        fn the_end_is_behind_the_last_byte(a in rectangle()) {
            prop_assert_eq!(region(a).end(), bytes(a).last().map_or(a.0, |last| last + 1));
            prop_assert_eq!(region(a).is_empty(), bytes(a).is_empty());
        }
    }

    #[test]
    fn far_apart_rectangles_do_not_wrap() {
        let far = Region::new(isize::MAX as usize - 64, 8, 3, 16);
        assert!(!far.overlaps(&Region::new(0, 8, 3, 16)));
        assert!(far.overlaps(&Region::new(isize::MAX as usize - 60, 1, 2, 16)));
    }
}
