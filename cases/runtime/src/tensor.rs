//! Tensors: handles to typed windows of a memory.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::claims::Claimant;
use crate::element::{DType, Element};
use crate::guard::{self, ReadGuard, WriteGuard};
use crate::ids::{RingId, TaskId};
use crate::layout::Layout;
use crate::memory::{Home, MapError, Memory};
use crate::region::Region;
use crate::spec::TensorSpec;

/// A typed window of a ring heap or of host memory.
///
/// A handle is cheap to clone and keeps its memory mapped, but it does not keep its bytes: once the
/// task that owns a ring tensor is retired, the ring gives them to somebody else. Access through
/// such a stale handle is still defined (the bytes are claimed like any others, and every bit
/// pattern is a value of every [`Element`]), but what it reads is whatever was put there since, and
/// what it writes lands in another tensor, as on a device.
///
/// Offsets, extents and strides are in elements.
#[derive(Clone)]
pub struct Tensor {
    memory: Arc<Memory>,
    /// Byte of the memory at which the tensor starts that this one is a view of.
    buffer: usize,
    /// Byte of the memory at which the first element lies.
    start: usize,
    layout: Layout,
    dtype: DType,
    name: &'static str,
    owner: Option<TaskId>,
    untracked: bool,
}

impl Tensor {
    /// A zeroed row-major tensor in host memory of its own, page aligned, outside of the rings.
    ///
    /// # Panics
    /// On a bad shape, see [`TensorSpec::new`], and when the system refuses the memory, see
    /// [`try_zeros`](Self::try_zeros).
    #[track_caller]
    pub fn zeros(dtype: DType, dims: &[usize]) -> Self {
        Self::try_zeros(dtype, dims)
            .unwrap_or_else(|error| panic!("failed to {error} for a host tensor: {}", error.source))
    }

    /// Like [`zeros`](Self::zeros), for callers that can go on without the memory.
    #[track_caller]
    pub fn try_zeros(dtype: DType, dims: &[usize]) -> Result<Self, MapError> {
        let layout = Layout::dense(dims);
        Ok(Self {
            memory: Arc::new(Memory::map(layout.len() * dtype.size(), Home::Host)?),
            buffer: 0,
            start: 0,
            layout,
            dtype,
            name: "unnamed",
            owner: None,
            untracked: false,
        })
    }

    /// A host tensor with these elements, in row-major order.
    ///
    /// # Panics
    /// When `data` has not as many elements as `dims` say, and as [`zeros`](Self::zeros).
    #[track_caller]
    pub fn from_vec<T: Element>(dims: &[usize], data: Vec<T>) -> Self {
        let tensor = Self::zeros(T::DTYPE, dims);
        assert!(
            tensor.len() == data.len(),
            "{} elements were given for a tensor of {dims:?}",
            data.len()
        );
        tensor.write::<T>().copy_from_slice(&data);
        drop(data);
        tensor
    }

    /// The output that `owner` has at byte `offset` of its ring's heap.
    #[inline]
    #[track_caller]
    pub(crate) fn in_ring(memory: &Arc<Memory>, offset: usize, spec: &TensorSpec, owner: TaskId) -> Self {
        assert!(
            offset.is_multiple_of(spec.dtype().size()),
            "byte {offset} is no place for {}",
            spec.dtype().name()
        );
        let tensor = Self {
            memory: Arc::clone(memory),
            buffer: offset,
            start: offset,
            layout: *spec.layout(),
            dtype: spec.dtype(),
            name: spec.name(),
            owner: Some(owner),
            untracked: false,
        };
        assert!(
            tensor.bounds().end() <= memory.bytes(),
            "`{}` leaves its ring heap",
            tensor.name
        );
        tensor
    }

    /// The same tensor, left out of the tensor map: tasks that take this handle still wait for its
    /// creator and keep it alive, but are ordered neither behind earlier writers nor before later
    /// readers. Their order is the program's matter.
    #[must_use]
    pub fn untracked(mut self) -> Self {
        self.untracked = true;
        self
    }

    /// Whether the tensor map is left out, see [`untracked`](Self::untracked).
    pub fn is_untracked(&self) -> bool {
        self.untracked
    }

    /// The same tensor with a name for messages. Outputs have the name of their [`TensorSpec`].
    #[must_use]
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Name for messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents of the axes, in elements.
    pub fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    /// Distances of neighbours along each axis, in elements.
    pub fn strides(&self) -> &[usize] {
        self.layout.strides()
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.dims().len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the elements, in bytes, without the gaps of a view.
    pub fn bytes(&self) -> u64 {
        self.len() as u64 * self.dtype.size() as u64
    }

    /// Whether the elements follow each other without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The ring that holds the elements; `None` in host memory.
    pub fn ring(&self) -> Option<RingId> {
        match self.memory.home() {
            Home::Ring(ring) => Some(ring),
            Home::Host => None,
        }
    }

    /// The task that produced the tensor; `None` in host memory.
    pub fn owner(&self) -> Option<TaskId> {
        self.owner
    }

    /// Whether the two lie in the same ring heap, or are views of one host tensor.
    pub fn same_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }

    /// The hyper-rectangle of `dims` elements that starts at `offsets`.
    ///
    /// # Panics
    /// When it leaves the tensor, or has another number of axes.
    #[must_use]
    #[track_caller]
    pub fn view(&self, offsets: &[usize], dims: &[usize]) -> Self {
        let (skip, layout) = self.layout.window(offsets, dims);
        Self {
            start: self.start + skip * self.dtype.size(),
            layout,
            ..self.clone()
        }
    }

    /// The part with these indices along the first axis.
    ///
    /// # Panics
    /// When the range leaves the axis or is reversed.
    #[must_use]
    #[track_caller]
    pub fn rows(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end, "rows {range:?} are reversed");
        let (mut offsets, mut dims) = ([0; crate::MAX_RANK], [0; crate::MAX_RANK]);
        dims[..self.rank()].copy_from_slice(self.dims());
        (offsets[0], dims[0]) = (range.start, range.len());
        self.view(&offsets[..self.rank()], &dims[..self.rank()])
    }

    /// The same elements in another row-major shape.
    ///
    /// # Panics
    /// When the tensor has gaps, or the shape another number of elements.
    #[must_use]
    #[track_caller]
    pub fn reshape(&self, dims: &[usize]) -> Self {
        Self {
            layout: self.layout.reshaped(dims),
            ..self.clone()
        }
    }

    /// Shared access from outside of a task, in row-major order.
    ///
    /// # Panics
    /// On another element type, on gaps, and when somebody writes any of it at this moment.
    #[track_caller]
    pub fn read<T: Element>(&self) -> ReadGuard<'_, T> {
        ReadGuard::claim(&self.memory, self, Claimant::Outside)
    }

    /// Exclusive access from outside of a task, in row-major order.
    ///
    /// # Panics
    /// On another element type, on gaps, and when somebody accesses any of it at this moment.
    #[track_caller]
    pub fn write<T: Element>(&self) -> WriteGuard<'_, T> {
        WriteGuard::claim(&self.memory, self, Claimant::Outside)
    }

    /// The element with this row-major index; gaps are allowed.
    ///
    /// # Panics
    /// On another element type, an index out of range, and when somebody writes it at this moment.
    #[track_caller]
    pub fn get<T: Element>(&self, index: usize) -> T {
        self.expect_dtype::<T>();
        assert!(
            index < self.len(),
            "element {index} of `{}` with {}",
            self.name,
            self.len()
        );
        let element = Self {
            start: self.start + self.layout.position(index) * self.dtype.size(),
            layout: Layout::dense(&[1]),
            ..self.clone()
        };
        element.read::<T>()[0]
    }

    /// Copies every element of `other`; gaps are allowed on both sides.
    ///
    /// # Panics
    /// When type or shape differ, when the two share elements, and when somebody writes `other` or
    /// accesses `self` at this moment. A view whose leading axes don't fold to one row distance
    /// claims the whole range from its first element to its last.
    #[track_caller]
    pub fn copy_from(&self, other: &Self) {
        guard::copy((&other.memory, other), (&self.memory, self), Claimant::Outside);
    }

    /// A deep copy in host memory, without gaps.
    ///
    /// # Panics
    /// When somebody writes any of it at this moment, and when the system refuses the memory.
    #[must_use]
    #[track_caller]
    pub fn snapshot(&self) -> Self {
        let copy = Self::zeros(self.dtype, self.dims()).named(self.name);
        copy.copy_from(self);
        copy
    }
}

/// For the rest of the crate.
impl Tensor {
    /// Address of the tensor that this one is a view of: the key of the tensor map.
    pub(crate) fn buffer_address(&self) -> usize {
        self.memory.address() + self.buffer
    }

    /// Position of the first element behind the start of that tensor, in elements.
    pub(crate) fn buffer_offset(&self) -> usize {
        (self.start - self.buffer) / self.dtype.size()
    }

    /// Elements from the first to one past the last, gaps included.
    pub(crate) fn span(&self) -> usize {
        self.layout.span()
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Byte of the memory at which the first element lies.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The bytes that the elements lie in, or the smallest range around them if they are no rectangle.
    pub(crate) fn footprint(&self) -> Region {
        self.layout
            .region(self.start, self.dtype.size())
            .unwrap_or_else(|| self.bounds())
    }

    fn bounds(&self) -> Region {
        self.layout.bounds(self.start, self.dtype.size())
    }

    #[track_caller]
    pub(crate) fn expect_dtype<T: Element>(&self) {
        assert!(
            self.dtype == T::DTYPE,
            "`{}` holds {} and can't be accessed as {}",
            self.name,
            self.dtype.name(),
            T::DTYPE.name()
        );
    }

    /// Whether every element of `part` is one of ours.
    #[inline]
    pub(crate) fn covers(&self, part: &Self) -> bool {
        if !self.same_memory(part) || self.dtype != part.dtype {
            return false;
        }
        let (size, span) = (self.dtype.size(), part.span());
        if span == 0 {
            return true;
        }
        if part.start < self.start || part.start + span * size > self.start + self.span() * size {
            return false;
        }
        // Both start at a multiple of the element size.
        self.is_contiguous() || self.layout.covers((part.start - self.start) / size, &part.layout)
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn lies_in(&self, memory: &Memory) -> bool {
        std::ptr::eq(&raw const *self.memory, memory)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {} {:?}", self.name, self.dtype.name(), self.dims())?;
        if !self.is_contiguous() {
            write!(f, " with strides {:?}", self.strides())?;
        }
        match (self.ring(), self.owner) {
            (Some(ring), Some(owner)) => write!(f, " of task {owner} in ring {ring}"),
            (Some(ring), None) => write!(f, " in ring {ring}"),
            (None, _) => Ok(()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn counting(dims: &[usize]) -> Tensor {
        Tensor::from_vec(dims, (0..dims.iter().product::<usize>() as i32).collect()).named("counting")
    }

    #[test]
    fn a_view_reads_its_elements() {
        let tensor = counting(&[3, 4, 5]);
        let view = tensor.view(&[1, 1, 2], &[2, 2, 3]);
        assert_eq!((view.dims(), view.strides()), (&[2, 2, 3][..], &[20, 5, 1][..]));
        let copy = view.snapshot();
        assert_eq!(*copy.read::<i32>(), [27, 28, 29, 32, 33, 34, 47, 48, 49, 52, 53, 54]);
        assert_eq!(view.get::<i32>(7), 48);
        assert!(view.same_memory(&tensor) && !copy.same_memory(&tensor));
    }

    #[test]
    fn rows_and_reshape_address_the_same_memory() {
        let tensor = counting(&[6, 4]);
        tensor.rows(2..4).write::<i32>().fill(-1);
        let flat = tensor.reshape(&[24]);
        assert_eq!(flat.read::<i32>()[7..17], [7, -1, -1, -1, -1, -1, -1, -1, -1, 16]);
    }

    #[test]
    fn copying_keeps_the_surroundings() {
        let tensor = Tensor::zeros(DType::I32, &[3, 4]);
        tensor.view(&[1, 1], &[2, 2]).copy_from(&counting(&[2, 2]));
        assert_eq!(*tensor.read::<i32>(), [0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 3, 0]);
    }

    #[test]
    fn empty_tensors_and_views_are_harmless() {
        let tensor = counting(&[4, 4]);
        let nothing = tensor.view(&[4, 0], &[0, 4]);
        assert!(nothing.is_empty() && nothing.snapshot().read::<i32>().is_empty());
        let _all = tensor.write::<i32>();
        assert!(nothing.read::<i32>().is_empty());
    }

    #[test]
    #[should_panic(
        expected = "conflicting access: code outside of any task reads `counting` (bytes 0..16), while code outside of any task writes `counting` (bytes 8..24)"
    )]
    fn reading_what_is_being_written_panics() {
        let tensor = counting(&[8]);
        let (front, middle) = (tensor.rows(0..4), tensor.rows(2..6));
        let _writer = middle.write::<i32>();
        let _reader = front.read::<i32>();
    }

    #[test]
    #[should_panic(expected = "conflicting access")]
    fn copying_onto_itself_panics() {
        let tensor = counting(&[8]);
        tensor.rows(0..4).copy_from(&tensor.rows(2..6));
    }

    #[test]
    #[should_panic(expected = "`counting` holds i32 and can't be accessed as f32")]
    fn another_element_type_panics() {
        let _ = counting(&[2]).read::<f32>();
    }

    #[test]
    #[should_panic(expected = "has gaps and can't be accessed as a slice")]
    fn a_slice_of_a_window_panics() {
        let _ = counting(&[2, 2]).view(&[0, 0], &[2, 1]).read::<i32>();
    }

    #[test]
    #[should_panic(expected = "the view at [1, 3] of [1, 2] leaves the tensor of [2, 4]")]
    fn a_view_out_of_range_panics() {
        let _ = counting(&[2, 4]).view(&[1, 3], &[1, 2]);
    }

    #[test]
    #[should_panic(expected = "can't be reshaped")]
    fn reshaping_a_window_panics() {
        let _ = counting(&[2, 4]).view(&[0, 0], &[2, 2]).reshape(&[4]);
    }

    #[test]
    #[should_panic(expected = "failed to map")]
    fn memory_that_does_not_exist_panics() {
        let _ = Tensor::zeros(DType::I8, &[1 << 55]);
    }
}
