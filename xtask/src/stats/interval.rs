//! Hodges–Lehmann shift between two sets of numbers, with its distribution-free interval.

use super::rank::{EXACT_LIMIT, quantile_of_tail, untied};
use super::{median, sorted};

/// How far `b` lies above `a`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    /// Median of all differences `b − a`.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The shift from `a` to `b` with an interval of at least `confidence` (0 to 1).
///
/// The ends are order statistics of the differences, chosen from the null distribution of the rank
/// test. `None` if there are too few numbers for that confidence.
pub fn hodges_lehmann(a: &[f64], b: &[f64], confidence: f64) -> Option<Shift> {
    let differences: Vec<f64> = a.iter().flat_map(|a| b.iter().map(move |b| b - a)).collect();
    let trim = trimmed(a.len(), b.len(), (1.0 - confidence) / 2.0)?;
    let differences = sorted(&differences);
    Some(Shift {
        estimate: median(&differences)?,
        low: differences[trim],
        high: differences[differences.len() - 1 - trim],
    })
}

/// How many differences may be cut off at each end: the largest `k` with P(U ≤ k) ≤ `tail`.
fn trimmed(n: usize, m: usize, tail: f64) -> Option<usize> {
    if n == 0 || m == 0 {
        return None;
    }
    if n + m > EXACT_LIMIT {
        let (n, m) = (n as f64, m as f64);
        let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
        let cut = (n * m / 2.0 - quantile_of_tail(tail) * deviation - 0.5).floor();
        return (cut >= 0.0).then_some(cut as usize);
    }
    let counts = untied(n, m);
    let all: f64 = counts.iter().sum();
    // A doubled rank sum of n·(n+1) is U = 0; U rises by one for every two.
    let mut below = 0.0;
    let mut cut = None;
    for (u, count) in counts.iter().skip(n * (n + 1)).step_by(2).enumerate() {
        below += count;
        if below / all > tail {
            break;
        }
        cut = Some(u);
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabled_cuts() {
        // Critical values of U, two-sided 5 %, from the usual table: 5 against 5 is 2, 8 against 8 is 13.
        assert_eq!(trimmed(5, 5, 0.025), Some(2));
        assert_eq!(trimmed(8, 8, 0.025), Some(13));
        assert_eq!(trimmed(10, 10, 0.005), Some(16));
        assert_eq!(trimmed(3, 3, 0.025), None);
        assert_eq!(trimmed(4, 4, 0.025), Some(0));
    }

    #[test]
    fn a_pure_shift_is_found() {
        let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let b = a.map(|x| x + 10.0);
        let shift = hodges_lehmann(&a, &b, 0.95).unwrap();
        assert!((shift.estimate - 10.0).abs() < 1e-12 && shift.low < 10.0 && shift.high > 10.0);
        let back = hodges_lehmann(&b, &a, 0.95).unwrap();
        assert!((back.low + shift.high).abs() < 1e-12 && (back.high + shift.low).abs() < 1e-12);
        assert_eq!(hodges_lehmann(&[1.0], &[2.0], 0.95), None);
    }

    #[test]
    fn many_numbers_use_the_normal_cut() {
        let exact = trimmed(20, 20, 0.025).unwrap() as f64;
        let near = 20.0 * 20.0 / 2.0 - quantile_of_tail(0.025) * (400.0f64 * 41.0 / 12.0).sqrt();
        assert!((exact - near).abs() < 2.0, "{exact} {near}");
        assert!(trimmed(50, 50, 0.025).is_some());
    }
}
