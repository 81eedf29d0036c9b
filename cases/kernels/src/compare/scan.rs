//! The parallel pass over two tensors that every elementwise rule is made of.

use half::{bf16, f16};
use rayon::prelude::*;
use ring_runtime::{DType, ReadGuard, Tensor};

use super::verdict::{Outcome, TensorVerdict};

/// Read access to a tensor of any type; every value of every type but i64 beyond 2⁵³ is exact in f64.
pub(super) enum Values<'a> {
    F32(ReadGuard<'a, f32>),
    Bf16(ReadGuard<'a, bf16>),
    F16(ReadGuard<'a, f16>),
    I8(ReadGuard<'a, i8>),
    I32(ReadGuard<'a, i32>),
    I64(ReadGuard<'a, i64>),
}

/// The slices behind [`Values`], which threads share.
#[derive(Clone, Copy)]
pub(super) enum Slice<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    F16(&'a [f16]),
    I8(&'a [i8]),
    I32(&'a [i32]),
    I64(&'a [i64]),
}

impl<'a> Values<'a> {
    pub(super) fn of(tensor: &'a Tensor) -> Self {
        match tensor.dtype() {
            DType::F32 => Self::F32(tensor.read()),
            DType::Bf16 => Self::Bf16(tensor.read()),
            DType::F16 => Self::F16(tensor.read()),
            DType::I8 => Self::I8(tensor.read()),
            DType::I32 => Self::I32(tensor.read()),
            DType::I64 => Self::I64(tensor.read()),
        }
    }

    pub(super) fn slice(&self) -> Slice<'_> {
        match self {
            Self::F32(g) => Slice::F32(g),
            Self::Bf16(g) => Slice::Bf16(g),
            Self::F16(g) => Slice::F16(g),
            Self::I8(g) => Slice::I8(g),
            Self::I32(g) => Slice::I32(g),
            Self::I64(g) => Slice::I64(g),
        }
    }
}

impl Slice<'_> {
    /// Values `first..first + out.len()`.
    pub(super) fn load(self, first: usize, out: &mut [f64]) {
        fn each<T: Copy>(from: &[T], out: &mut [f64], wide: impl Fn(T) -> f64) {
            out.iter_mut().zip(from).for_each(|(o, v)| *o = wide(*v));
        }
        let range = first..first + out.len();
        match self {
            Self::F32(s) => each(&s[range], out, f64::from),
            Self::Bf16(s) => each(&s[range], out, f64::from),
            Self::F16(s) => each(&s[range], out, f64::from),
            Self::I8(s) => each(&s[range], out, f64::from),
            Self::I32(s) => each(&s[range], out, f64::from),
            Self::I64(s) => each(&s[range], out, |v| v as f64),
        }
    }

    /// All values.
    pub(super) fn all(self) -> Vec<f64> {
        let mut out = vec![0.0; self.len()];
        self.load(0, &mut out);
        out
    }

    fn len(self) -> usize {
        match self {
            Self::F32(s) => s.len(),
            Self::Bf16(s) => s.len(),
            Self::F16(s) => s.len(),
            Self::I8(s) => s.len(),
            Self::I32(s) => s.len(),
            Self::I64(s) => s.len(),
        }
    }
}

/// All values of a tensor, in f64.
pub(super) fn wide(tensor: &Tensor) -> Vec<f64> {
    Values::of(tensor).slice().all()
}

/// Which rows (of the last axis) a pass looks at.
#[derive(Clone, Debug)]
pub(super) enum Rows {
    /// Every row.
    All,
    /// These, ascending.
    Listed(Vec<usize>),
}

/// One element under a rule.
#[derive(Clone, Copy)]
pub(super) struct Judged {
    /// Outside of the tolerance.
    pub(super) bad: bool,
    /// The rule's own measure of the difference.
    pub(super) size: f64,
}

/// What a pass found.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    pub(super) total: u64,
    pub(super) bad: u64,
    /// First bad element: flat index, actual, expected.
    pub(super) first: Option<(u64, f64, f64)>,
    /// Largest measure of a bad element.
    pub(super) worst: f64,
    pub(super) max_abs: f64,
    pub(super) max_rel: f64,
    pub(super) nonfinite_actual: u64,
    pub(super) nonfinite_expected: u64,
    pub(super) first_nonfinite: Option<(u64, f64, f64)>,
    pub(super) first_row: Option<u64>,
    pub(super) nonfinite_rows: u64,
    pub(super) all_nan_rows: u64,
}

/// A maximum in which a NaN stays.
fn sticky(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

impl Scan {
    /// Joins the result of the rows that follow.
    fn join(self, next: &Self) -> Self {
        Self {
            total: self.total + next.total,
            bad: self.bad + next.bad,
            first: self.first.or(next.first),
            worst: self.worst.max(next.worst),
            max_abs: sticky(self.max_abs, next.max_abs),
            max_rel: sticky(self.max_rel, next.max_rel),
            nonfinite_actual: self.nonfinite_actual + next.nonfinite_actual,
            nonfinite_expected: self.nonfinite_expected + next.nonfinite_expected,
            first_nonfinite: self.first_nonfinite.or(next.first_nonfinite),
            first_row: self.first_row.or(next.first_row),
            nonfinite_rows: self.nonfinite_rows + next.nonfinite_rows,
            all_nan_rows: self.all_nan_rows + next.all_nan_rows,
        }
    }

    fn row(&mut self, row: u64, actual: &[f64], expected: &[f64], judge: &impl Fn(f64, f64) -> Judged) {
        let width = actual.len() as u64;
        self.total += width;
        let (mut nonfinite, mut nans) = (0u64, 0u64);
        for (i, (&a, &e)) in actual.iter().zip(expected).enumerate() {
            let at = (row * width + i as u64, a, e);
            if !(a.is_finite() && e.is_finite()) {
                nonfinite += u64::from(!a.is_finite());
                nans += u64::from(a.is_nan());
                self.nonfinite_expected += u64::from(!e.is_finite());
                self.first_nonfinite = self.first_nonfinite.or(Some(at));
            }
            // Equal infinities differ by nothing; any other pair with a non-finite value differs by NaN or infinity.
            let diff = if a == e { 0.0 } else { (a - e).abs() };
            self.max_abs = sticky(self.max_abs, diff);
            if e != 0.0 && diff != 0.0 {
                self.max_rel = sticky(self.max_rel, diff / e.abs());
            }
            let judged = judge(a, e);
            if judged.bad {
                self.bad += 1;
                self.worst = self.worst.max(judged.size);
                self.first = self.first.or(Some(at));
            }
        }
        self.nonfinite_actual += nonfinite;
        if nonfinite > 0 {
            self.first_row = self.first_row.or(Some(row));
            self.nonfinite_rows += 1;
        }
        self.all_nan_rows += u64::from(width > 0 && nans == width);
    }

    /// Copies the evidence into a verdict, and fails it on a non-finite value.
    pub(super) fn explain(&self, verdict: &mut TensorVerdict) {
        verdict.total = self.total;
        verdict.mismatched += self.bad;
        verdict.max_abs_err = sticky(verdict.max_abs_err, self.max_abs);
        verdict.max_rel_err = sticky(verdict.max_rel_err, self.max_rel);
        verdict.nonfinite_actual += self.nonfinite_actual;
        verdict.nonfinite_expected += self.nonfinite_expected;
        verdict.first_row = verdict.first_row.or(self.first_row);
        verdict.nonfinite_rows += self.nonfinite_rows;
        verdict.all_nan_rows += self.all_nan_rows;
        if verdict.nonfinite_actual + verdict.nonfinite_expected > 0 {
            verdict.outcome = if verdict.nonfinite_expected > 0 {
                Outcome::GoldenNan
            } else {
                Outcome::Nan
            };
            verdict.message = format!(
                "illegal values in comparison: {} non-finite in the output, {} in the golden",
                verdict.nonfinite_actual, verdict.nonfinite_expected
            );
            if let Some((flat, a, e)) = self.first_nonfinite {
                verdict.first = None;
                verdict.point(flat, a, e);
            }
        } else if let Some((flat, a, e)) = self.first {
            verdict.point(flat, a, e);
        }
    }
}

/// Length of a row: the last axis.
pub(super) fn row_width(tensor: &Tensor) -> usize {
    tensor.dims().last().copied().unwrap_or(1)
}

/// Checks that both sides have one type and shape, then judges every element of `rows`.
pub(super) fn scan(actual: &Tensor, expected: &Tensor, rows: &Rows, judge: impl Fn(f64, f64) -> Judged + Sync) -> Scan {
    assert_eq!(
        (actual.dtype(), actual.dims()),
        (expected.dtype(), expected.dims()),
        "an output and its golden have one type and shape"
    );
    let width = row_width(actual);
    if width == 0 {
        return Scan::default();
    }
    let (actual_values, expected_values) = (Values::of(actual), Values::of(expected));
    let (a, e) = (actual_values.slice(), expected_values.slice());
    let count = match rows {
        Rows::All => actual.len() / width,
        Rows::Listed(list) => list.len(),
    };
    let block = (16_384 / width).max(1);
    (0..count.div_ceil(block))
        .into_par_iter()
        .map_init(
            || (vec![0.0; width], vec![0.0; width]),
            |(actual, expected), b| {
                let mut scan = Scan::default();
                for i in b * block..count.min((b + 1) * block) {
                    let row = match rows {
                        Rows::All => i,
                        Rows::Listed(list) => list[i],
                    };
                    a.load(row * width, actual);
                    e.load(row * width, expected);
                    scan.row(row as u64, actual, expected, &judge);
                }
                scan
            },
        )
        // `reduce` joins neighbours in order, so "first" means first.
        .reduce(Scan::default, |a, b| a.join(&b))
}
