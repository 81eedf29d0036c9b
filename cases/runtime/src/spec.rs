//! Description of a tensor that a task is to produce.

use crate::element::DType;
use crate::layout::Layout;

/// Name, element type and shape of a fresh output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    name: &'static str,
    dtype: DType,
    layout: Layout,
}

impl TensorSpec {
    /// A row-major tensor of `dims` elements.
    ///
    /// # Panics
    /// Unless there are 1 to [`MAX_RANK`](crate::MAX_RANK) axes and the size fits the address space.
    #[track_caller]
    pub fn new(name: &'static str, dtype: DType, dims: &[usize]) -> Self {
        Self {
            name,
            dtype,
            layout: Layout::dense(dims),
        }
    }

    /// `bytes` bytes without further structure.
    #[track_caller]
    pub fn bytes(bytes: usize) -> Self {
        Self::new("bytes", DType::I8, &[bytes])
    }

    /// Name for messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, in elements.
    pub fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    /// Size in bytes, before the allocator pads it.
    pub fn size(&self) -> u64 {
        self.layout.len() as u64 * self.dtype.size() as u64
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}
