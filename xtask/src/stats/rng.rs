//! A small seeded generator: resampling must give the same interval on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, passes BigCrush, ample for resampling.
#[derive(Clone, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1), never 0: its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Uniform below `bound`, which is at least 1. The bias of the multiplication is below 2⁻³² for our bounds.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Standard normal (Box–Muller, one of the pair).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut rng = SplitMix::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn draws_stay_in_their_ranges() {
        let mut rng = SplitMix::new(7);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..20_000 {
            assert!(rng.below(3) < 3);
            let unit = rng.unit();
            assert!(unit > 0.0 && unit < 1.0);
            let normal = rng.normal();
            sum += normal;
            squares += normal * normal;
        }
        assert!((sum / 20_000.0).abs() < 0.03 && (squares / 20_000.0 - 1.0).abs() < 0.05);
    }
}
