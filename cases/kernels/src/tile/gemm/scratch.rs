//! Thread-local buffers for staged and packed operands: a block multiplies without allocating.

use std::cell::RefCell;

/// A cache line; gives the buffers their alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A growing buffer whose bytes are viewed as whatever the product at hand needs.
struct Buffer(Vec<Line>);

mod sealed {
    pub(in super::super) trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::bf16 {}
    impl Sealed for i8 {}
    impl Sealed for i16 {}
    impl Sealed for i32 {}
}

/// Plain numbers without padding or invalid bit patterns: what a buffer may be viewed as.
pub(super) trait Word: Copy + Default + sealed::Sealed + 'static {}
impl<T: Copy + Default + sealed::Sealed + 'static> Word for T {}

/// The buffers of one product.
pub(super) struct Scratch<'a, L, R, C> {
    /// The staged left operand.
    pub(super) lhs: &'a mut [L],
    /// The packed right operand, or a padded copy of its edge.
    pub(super) rhs: &'a mut [R],
    /// One term per row of the left operand that the kernels start from.
    pub(super) bias: &'a mut [C],
}

impl Buffer {
    #[expect(unsafe_code, reason = "the bytes of the buffer are viewed as numbers")]
    fn view<T: Word>(&mut self, len: usize) -> &mut [T] {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line([0; 64]));
        }
        // SAFETY: the vector holds at least `len` elements' worth of initialised bytes, aligned to 64;
        // every bit pattern is a `Word`; the borrow of `self` keeps the view exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), len) }
    }
}

/// Lends the calling thread's buffers, at the lengths asked for, with unspecified contents.
pub(super) fn with<L: Word, R: Word, C: Word, T>(
    lhs: usize,
    rhs: usize,
    bias: usize,
    body: impl FnOnce(Scratch<'_, L, R, C>) -> T,
) -> T {
    thread_local! {
        static BUFFERS: RefCell<[Buffer; 3]> = const { RefCell::new([Buffer(Vec::new()), Buffer(Vec::new()), Buffer(Vec::new())]) };
    }
    BUFFERS.with_borrow_mut(|[a, b, c]| {
        body(Scratch {
            lhs: a.view(lhs),
            rhs: b.view(rhs),
            bias: c.view(bias),
        })
    })
}
