//! Byte rectangles of a memory: equally long rows, a fixed distance apart.

use std::fmt;

/// A set of bytes `{ offset + r * stride + b : r < rows, b < row_bytes }` of one memory.
///
/// Normalised: rows that touch are one row, one row has a stride of its own length, and the empty
/// set has no rows. Rows never overlap each other.
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
