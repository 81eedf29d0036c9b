//! Rotary position embedding of a row: adjacent lanes are the two coordinates of a point.

use crate::simd::vectorised;

/// Which way points turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// By the angle: `(x, y) → (x·cos − y·sin, y·cos + x·sin)`.
    Forward,
    /// By its negative, as attention outputs are turned back.
    Inverse,
}

vectorised! {
    /// Turns the points `(x[2i], x[2i+1])` by the angles whose cosines and sines are given.
    ///
    /// All in f32: `x[j]·cos[j/2] + x[j^1]·(±sin[j/2])`, both products rounded, then the sum.
    ///
    /// # Panics
    /// Unless `x` has twice as many elements as `cos` and `sin`.
    pub fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32], turn: Turn) {
        assert!(x.len() == 2 * cos.len() && cos.len() == sin.len(), "two lanes to an angle");
        let sign = match turn {
            Turn::Forward => 1.0,
            Turn::Inverse => -1.0,
        };
        for ((point, &c), &s) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
            let s = s * sign;
            let [x, y] = *point;
            *point = [x * c + y * -s, y * c + x * s];
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the expected values are exact")]
mod tests {
    use super::*;
    use crate::simd::Path;

    #[test]
    fn a_right_angle_and_back() {
        let mut x = [1f32, 2.0, 3.0, 4.0];
        rotate(&mut x, &[0.0, 1.0], &[1.0, 0.0], Turn::Forward);
        assert_eq!(x, [-2.0, 1.0, 3.0, 4.0]);
        rotate(&mut x, &[0.0, 1.0], &[1.0, 0.0], Turn::Inverse);
        assert_eq!(x, [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn rounding_is_that_of_the_formula() {
        Path::for_each(check_rounding);
    }

    fn check_rounding(_: Path) {
        let angle = |i: usize| 0.37f32 * i as f32;
        let (cos, sin): (Vec<f32>, Vec<f32>) = (0..32).map(|i| (angle(i).cos(), angle(i).sin())).unzip();
        let before: Vec<f32> = (0..64).map(|i| (i as f32 - 20.3) * 0.173).collect();
        for (turn, sigma) in [(Turn::Forward, [-1f32, 1.0]), (Turn::Inverse, [1.0, -1.0])] {
            let mut x = before.clone();
            rotate(&mut x, &cos, &sin, turn);
            for (j, x) in x.iter().enumerate() {
                let want = before[j] * cos[j / 2] + (before[j ^ 1] * sigma[j % 2]) * sin[j / 2];
                assert_eq!(x.to_bits(), want.to_bits(), "lane {j}");
            }
        }
    }
}
