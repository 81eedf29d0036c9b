//! Sums of products of pairs of i16: `lane[l] + x[2l]·y[2l] + x[2l+1]·y[2l+1]`.
//!
//! The instruction for it is part of every x86-64, but the compiler finds it in plain code in the
//! simplest of loops only, so it is named there. Elsewhere the plain form stands.

/// Four i32 sums.
pub(super) use imp::Lanes;
/// Eight i16 factors.
pub(super) use imp::Words;

impl Lanes {
    /// The sum of the lanes; it wraps.
    pub(super) fn total(self) -> i32 {
        self.get().into_iter().fold(0, i32::wrapping_add)
    }
}

#[cfg(target_arch = "x86_64")]
mod imp {
    #![expect(unsafe_code, reason = "vector instructions; SSE2 is part of every x86-64")]

    use std::arch::x86_64::{
        __m128i, _mm_add_epi32, _mm_loadl_epi64, _mm_loadu_si128, _mm_madd_epi16, _mm_set1_epi32, _mm_setzero_si128,
        _mm_srai_epi16, _mm_storeu_si128, _mm_unpacklo_epi8,
    };

    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Lanes(__m128i);

    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Words(__m128i);

    impl Words {
        pub(in super::super) fn load(words: &[i16; 8]) -> Self {
            // SAFETY: SSE2; the array has the 16 bytes that are read.
            Self(unsafe { _mm_loadu_si128(words.as_ptr().cast()) })
        }

        /// Bytes, widened.
        pub(in super::super) fn widen(bytes: [i8; 8]) -> Self {
            // SAFETY: SSE2; the array has the 8 bytes that are read.
            Self(unsafe {
                let bytes = _mm_loadl_epi64(bytes.as_ptr().cast());
                _mm_srai_epi16::<8>(_mm_unpacklo_epi8(bytes, bytes))
            })
        }

        /// One pair, four times.
        pub(in super::super) fn repeat([x, y]: [i16; 2]) -> Self {
            let pair = i32::from(y) << 16 | i32::from(x.cast_unsigned());
            // SAFETY: SSE2.
            Self(unsafe { _mm_set1_epi32(pair) })
        }
    }

    impl Lanes {
        pub(in super::super) fn zero() -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_setzero_si128() })
        }

        pub(in super::super) fn plus_products(self, x: Words, y: Words) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_add_epi32(self.0, _mm_madd_epi16(x.0, y.0)) })
        }

        pub(in super::super) fn get(self) -> [i32; 4] {
            let mut lanes = [0; 4];
            // SAFETY: SSE2; the array has the 16 bytes that are written.
            unsafe { _mm_storeu_si128(lanes.as_mut_ptr().cast(), self.0) };
            lanes
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
use plain as imp;

#[cfg(any(test, not(target_arch = "x86_64")))]
mod plain {
    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Lanes([i32; 4]);

    #[derive(Clone, Copy, Debug)]
    pub(in super::super) struct Words([i16; 8]);

    impl Words {
        pub(in super::super) fn load(words: &[i16; 8]) -> Self {
            Self(*words)
        }

        /// Bytes, widened.
        pub(in super::super) fn widen(bytes: [i8; 8]) -> Self {
            Self(bytes.map(i16::from))
        }

        /// One pair, four times.
        pub(in super::super) fn repeat([x, y]: [i16; 2]) -> Self {
            Self([x, y, x, y, x, y, x, y])
        }
    }

    impl Lanes {
        pub(in super::super) fn zero() -> Self {
            Self([0; 4])
        }

        pub(in super::super) fn plus_products(self, Words(x): Words, Words(y): Words) -> Self {
            Self(std::array::from_fn(|l| {
                let products = [2 * l, 2 * l + 1].map(|i| i32::from(x[i]) * i32::from(y[i]));
                self.0[l].wrapping_add(products[0]).wrapping_add(products[1])
            }))
        }

        pub(in super::super) fn get(self) -> [i32; 4] {
            self.0
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{imp, plain};

    proptest! {
        #[test]
        fn the_instruction_does_what_the_plain_form_does(x: [i8; 8], y: [i16; 8], pair: [i16; 2]) {
            let fast = imp::Lanes::zero()
                .plus_products(imp::Words::widen(x), imp::Words::load(&y))
                .plus_products(imp::Words::repeat(pair), imp::Words::load(&y));
            let plain = plain::Lanes::zero()
                .plus_products(plain::Words::widen(x), plain::Words::load(&y))
                .plus_products(plain::Words::repeat(pair), plain::Words::load(&y));
            prop_assert_eq!(fast.get(), plain.get());
        }
    }
}
