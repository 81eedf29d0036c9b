//! Valid rows: which part of an output a rule looks at, and what must hold beyond.

use std::fmt;

use ring_runtime::Tensor;

use crate::compare::scan::{Judged, Rows, Scan, row_width, scan};
use crate::compare::verdict::TensorVerdict;

/// What the rows after the valid ones must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Anything: not looked at.
    Free,
    /// Exactly zero.
    Zero,
    /// Exactly the golden's values.
    Equal,
}

/// The rows of an axis that a rule looks at: `0..rows` of `axis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Valid {
    pub(super) axis: usize,
    pub(super) rows: usize,
    pub(super) tail: Tail,
}

impl Valid {
    /// Last-axis rows within, and those beyond.
    pub(super) fn split(self, tensor: &Tensor) -> (Vec<usize>, Vec<usize>) {
        let dims = tensor.dims();
        assert!(
            self.axis + 1 < dims.len(),
            "valid rows are counted along an axis before the last"
        );
        let inner = dims[self.axis + 1..dims.len() - 1].iter().product::<usize>();
        (0..tensor.len() / row_width(tensor).max(1)).partition(|row| row / inner % dims[self.axis] < self.rows)
    }
}

impl fmt::Display for Valid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", valid_rows={}, valid_axis={}", self.rows, self.axis)?;
        match self.tail {
            Tail::Free => Ok(()),
            Tail::Zero => write!(f, ", zero_tail"),
            Tail::Equal => write!(f, ", equal_tail"),
        }
    }
}

pub(super) fn display(valid: Option<Valid>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    valid.map_or(Ok(()), |v| write!(f, "{v}"))
}

/// Scans the valid rows into `verdict`, checks the tail, and hands back what was found among the valid rows.
pub(super) fn judge_valid(
    verdict: &mut TensorVerdict,
    actual: &Tensor,
    expected: &Tensor,
    valid: Option<Valid>,
    judge: impl Fn(f64, f64) -> Judged + Sync,
) -> Scan {
    let Some(valid) = valid else {
        let found = scan(actual, expected, &Rows::All, judge);
        found.explain(verdict);
        return found;
    };
    let (within, beyond) = valid.split(actual);
    let found = scan(actual, expected, &Rows::Listed(within), judge);
    found.explain(verdict);
    let tail = match valid.tail {
        Tail::Free => return found,
        Tail::Zero => scan(actual, expected, &Rows::Listed(beyond), |a, _| Judged {
            bad: a != 0.0,
            size: a.abs(),
        }),
        Tail::Equal => scan(actual, expected, &Rows::Listed(beyond), |a, e| Judged {
            bad: a != e,
            size: (a - e).abs(),
        }),
    };
    let total = verdict.total;
    tail.explain(verdict);
    verdict.total = total + tail.total;
    if tail.bad > 0 {
        verdict.mismatch(|| match valid.tail {
            Tail::Zero => format!("inactive tail contains {} nonzero values", tail.bad),
            Tail::Free | Tail::Equal => format!("inactive tail differs from the golden in {} values", tail.bad),
        });
    }
    found
}

/// Most elements that may be outside: `ratio · total`, ties to even.
pub(in crate::compare) fn allowance(ratio: f64, total: u64) -> u64 {
    (ratio * total as f64).round_ties_even() as u64
}
