//! Dynamic int8 quantisation of activation rows.

/// Rows of codes, and what turns them back into values.
#[derive(Clone, Debug, PartialEq)]
pub struct CodedRows {
    /// Codes, row-major.
    pub codes: Vec<i8>,
    /// One scale per row: value ≈ code · scale.
    pub scales: Vec<f32>,
}

/// Nearest integer, ties to even, cut to int8: |value| ≤ 127.5 by construction of the scale.
pub fn round_code(value: f32) -> i8 {
    value.round_ties_even() as i8
}

/// Codes of each row of `cols` values: amax = max(1e-4, max|x|), multiplier 127/amax, scale 1/multiplier.
pub fn code_rows(values: &[f32], cols: usize) -> CodedRows {
    let mut rows = CodedRows {
        codes: Vec::with_capacity(values.len()),
        scales: Vec::new(),
    };
    for row in values.chunks(cols) {
        let amax = row.iter().fold(1e-4f32, |m, v| m.max(v.abs()));
        let multiplier = 127.0 / amax;
        rows.codes.extend(row.iter().map(|v| round_code(v * multiplier)));
        rows.scales.push(1.0 / multiplier);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_of_a_row_takes_the_largest_code() {
        let rows = code_rows(&[1.0, -2.0, 0.5, 0.0, 0.0, 0.0], 3);
        assert_eq!(rows.codes, [64, -127, 32, 0, 0, 0]);
        assert_eq!(rows.scales, [1.0 / 63.5, 1.0 / (127.0 / 1e-4)]);
    }
}
