//! The element types that tensors hold.

use half::{bf16, f16};

/// Type of one element of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary16.
    F16,
    /// Signed 8-bit integer.
    I8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
}

impl DType {
    /// Size of one element, in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 => 1,
            Self::Bf16 | Self::F16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// Name as the specs print it: `f32`, `bf16`, `f16`, `i8`, `i32`, `i64`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::I8 => "i8",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A plain-data element: every bit pattern is a value, there is no padding, and size and alignment are those of [`DType::size`].
///
/// Sealed: the unsafe code that reinterprets ring memory relies on this list being closed.
pub trait Element: Copy + Default + Send + Sync + std::fmt::Debug + PartialEq + sealed::Sealed + 'static {
    /// The matching [`DType`].
    const DTYPE: DType;
}

macro_rules! element {
    ($($ty:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }
        const _: () = assert!(size_of::<$ty>() == DType::$dtype.size() && align_of::<$ty>() <= DType::$dtype.size());
    )*};
}

element! { f32 => F32, bf16 => Bf16, f16 => F16, i8 => I8, i32 => I32, i64 => I64 }
