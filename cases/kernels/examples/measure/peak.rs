//! Peak loops: as many independent multiply-adds as hide the latency, operands in registers.

#![expect(unsafe_code, reason = "target-feature functions are called after detection")]

use std::hint::black_box;

use kernels::simd::Path;

use crate::clock::times;

const STEPS: usize = 1 << 20;

/// 10⁹ f32 operations per second.
pub(crate) fn float(path: Path, threads: usize) -> f64 {
    let lanes = match path {
        Path::Avx512 => 16,
        Path::Avx2 => 8,
        Path::Portable => 4,
    };
    rate(threads, 2 * lanes, || match path {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `main` measures supported paths only.
        Path::Avx512 => unsafe { x86::float_avx512() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Path::Avx2 => unsafe { x86::float_avx2() },
        _ => float_portable(),
    })
}

/// 10⁹ i8 operations per second.
pub(crate) fn int(path: Path, threads: usize) -> f64 {
    let products = match path {
        Path::Avx512 => 64,
        Path::Avx2 => 16,
        Path::Portable => 8,
    };
    rate(threads, 2 * products, || match path {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `main` measures supported paths only.
        Path::Avx512 => unsafe { x86::int_avx512() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Path::Avx2 => unsafe { x86::int_avx2() },
        _ => int_portable(),
    })
}

/// Vector operations that `ops_per_vector` counts: [`CHAINS`] per step.
fn rate(threads: usize, ops_per_vector: usize, work: impl Fn() + Sync) -> f64 {
    let time = times(threads, |_| &work)[0];
    (threads * STEPS * CHAINS * ops_per_vector) as f64 / time.as_secs_f64() / 1e9
}

const CHAINS: usize = 12;

/// Twelve chains of four lanes: what the baseline of any build target has.
fn float_portable() {
    let (x, y) = (black_box([0.999f32; 4]), black_box([0.001f32; 4]));
    let mut sums = black_box([[1f32; 4]; CHAINS]);
    for _ in 0..STEPS {
        for sum in &mut sums {
            for l in 0..4 {
                sum[l] = sum[l] * x[l] + y[l];
            }
        }
    }
    black_box(sums);
}

/// Twelve chains of four lanes of pairs of 16-bit products.
fn int_portable() {
    let y = black_box([3i16; 8]);
    let mut sums = black_box([[1i32; 4]; CHAINS]);
    for step in 0..STEPS {
        let x = [step as i16; 8];
        for sum in &mut sums {
            for l in 0..4 {
                let pair =
                    i32::from(x[2 * l]) * i32::from(y[2 * l]) + i32::from(x[2 * l + 1]) * i32::from(y[2 * l + 1]);
                sum[l] = (sum[l] ^ l as i32).wrapping_add(pair);
            }
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm256_add_epi32, _mm256_fmadd_ps, _mm256_madd_epi16, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps,
        _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps,
    };
    use std::hint::black_box;

    use super::{CHAINS, STEPS};

    #[target_feature(enable = "avx512f")]
    pub(super) fn float_avx512() {
        let (x, y) = (_mm512_set1_ps(black_box(0.999)), _mm512_set1_ps(black_box(0.001)));
        let mut sums = [_mm512_set1_ps(black_box(1.0)); CHAINS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm512_set1_ps(black_box(i as f32));
        }
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, x, y);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn float_avx2() {
        let (x, y) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
        let mut sums = [_mm256_set1_ps(black_box(1.0)); CHAINS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_set1_ps(black_box(i as f32));
        }
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, x, y);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn int_avx512() {
        let (x, y) = (_mm512_set1_epi8(black_box(77)), _mm512_set1_epi8(black_box(3)));
        let mut sums = [_mm512_set1_epi32(black_box(1)); CHAINS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm512_set1_epi32(black_box(i as i32));
        }
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, x, y);
            }
        }
        black_box(sums);
    }

    /// Every pair of products is computed anew, as in a product of matrices: the sum feeds back into
    /// the factor, so that the multiply cannot be hoisted.
    #[target_feature(enable = "avx2")]
    pub(super) fn int_avx2() {
        let y = _mm256_set1_epi16(black_box(3));
        let mut sums = [_mm256_set1_epi32(black_box(1)); CHAINS];
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_set1_epi32(black_box(i as i32));
        }
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(*sum, y));
            }
        }
        black_box(sums);
    }
}
