//! Safe loops, compiled once per instruction path.

/// Defines a function whose body is compiled for AVX-512, for AVX2 and for the build target, and
/// which runs the best version that the machine supports.
///
/// The body is ordinary safe code; what it calls is vectorised along with it if it is
/// `#[inline(always)]`. Rust never fuses a product and a sum on its own, so the versions give the
/// same bits.
macro_rules! vectorised {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[expect(unsafe_code, reason = "calls target-feature functions after detection")]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            // Only inlined code is compiled with the features of its caller.
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            match $crate::simd::Path::best() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Path::best` returns a path that was detected.
                $crate::simd::Path::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::simd::Path::Avx2 => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}

pub(crate) use vectorised;
