//! Rotation of interleaved pairs.

/// Which way lanes are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// By the angle: what queries and keys get.
    Forward,
    /// By its negative: what an attention output gets.
    Inverse,
}

/// Turns pairs `(x₀, x₁)` of `lanes` in f32; pair `i` by the angle with this cosine and sine.
pub fn rotate(lanes: &mut [f32], cos: impl Fn(usize) -> f32, sin: impl Fn(usize) -> f32, direction: Direction) {
    for (i, pair) in lanes.chunks_exact_mut(2).enumerate() {
        let (c, s) = (
            cos(i),
            match direction {
                Direction::Forward => sin(i),
                Direction::Inverse => -sin(i),
            },
        );
        let (x0, x1) = (pair[0], pair[1]);
        pair[0] = x0 * c - x1 * s;
        pair[1] = x1 * c + x0 * s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_and_its_inverse_cancel() {
        let mut lanes = [1.0, 0.0, 0.0, 2.0];
        let (cos, sin) = (|_| 0.0, |_| 1.0);
        rotate(&mut lanes, cos, sin, Direction::Forward);
        assert_eq!(lanes, [0.0, 1.0, -2.0, 0.0]);
        rotate(&mut lanes, cos, sin, Direction::Inverse);
        assert_eq!(lanes, [1.0, 0.0, 0.0, 2.0]);
    }
}
