//! The result of comparing one output, with bounded evidence.

use ring_runtime::{DType, Tensor};

/// How an output compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Within the rule.
    Pass,
    /// Finite, but outside of the rule.
    Mismatch,
    /// The output has a NaN or an infinity where the rule allows none.
    Nan,
    /// The golden has one: the reference is broken.
    GoldenNan,
}

/// The first element that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Index along each axis.
    pub index: Vec<usize>,
    /// The program's value.
    pub actual: f64,
    /// The golden's value.
    pub expected: f64,
}

/// Comparison of one output with its golden.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorVerdict {
    /// Output name, as in the spec.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// The rule with its parameters.
    pub rule: String,
    /// How it compared.
    pub outcome: Outcome,
    /// Elements under the rule.
    pub total: u64,
    /// Elements outside of the tolerance.
    pub mismatched: u64,
    /// Most that may be outside.
    pub allowed: u64,
    /// Largest |actual − expected|; NaN when a difference is.
    pub max_abs_err: f64,
    /// Largest |actual − expected| / |expected| over expected ≠ 0; NaN when a difference is.
    pub max_rel_err: f64,
    /// The first element that failed.
    pub first: Option<Mismatch>,
    /// Non-finite values of the output.
    pub nonfinite_actual: u64,
    /// Non-finite values of the golden.
    pub nonfinite_expected: u64,
    /// First row (of the last axis) with a non-finite output value.
    pub first_row: Option<u64>,
    /// Rows with any.
    pub nonfinite_rows: u64,
    /// Rows with nothing but NaN: never written, more often than not.
    pub all_nan_rows: u64,
    /// What went wrong, in one line; empty on a pass.
    pub message: String,
}

impl TensorVerdict {
    /// A verdict on `actual` that passes so far.
    pub(super) fn start(name: &str, actual: &Tensor, rule: &dyn std::fmt::Display) -> Self {
        Self {
            name: name.to_owned(),
            dtype: actual.dtype(),
            shape: actual.dims().to_vec(),
            rule: rule.to_string(),
            outcome: Outcome::Pass,
            total: actual.len() as u64,
            mismatched: 0,
            allowed: 0,
            max_abs_err: 0.0,
            max_rel_err: 0.0,
            first: None,
            nonfinite_actual: 0,
            nonfinite_expected: 0,
            first_row: None,
            nonfinite_rows: 0,
            all_nan_rows: 0,
            message: String::new(),
        }
    }

    /// Whether the output is within its rule.
    pub fn passed(&self) -> bool {
        self.outcome == Outcome::Pass
    }

    /// Records a finite failure; the first message is kept, and a non-finite one is not covered up.
    pub(super) fn mismatch(&mut self, message: impl FnOnce() -> String) {
        if self.outcome == Outcome::Pass {
            self.outcome = Outcome::Mismatch;
            self.message = message();
        }
    }

    /// Points at the element `flat` (row-major) as the first that failed, unless one is known.
    pub(super) fn point(&mut self, flat: u64, actual: f64, expected: f64) {
        if self.first.is_none() {
            self.first = Some(Mismatch {
                index: unravel(flat, &self.shape),
                actual,
                expected,
            });
        }
    }
}

/// Index along each axis of element `flat`.
pub(super) fn unravel(flat: u64, shape: &[usize]) -> Vec<usize> {
    let mut rest = flat as usize;
    let mut index = vec![0; shape.len()];
    for (i, dim) in shape.iter().enumerate().rev() {
        index[i] = rest % dim.max(&1);
        rest /= dim.max(&1);
    }
    index
}
