//! A rate with its interval.

use std::fmt;

/// `hits` of `trials`, with the 95 % interval of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// How often it happened.
    pub hits: usize,
    /// How often it could have.
    pub trials: usize,
    /// Lower end, 0 to 1.
    pub low: f64,
    /// Upper end, 0 to 1.
    pub high: f64,
}

/// The Wilson score interval at 95 %: right for small counts and for rates near 0 and 1, where the
/// textbook interval has no width. No trials leave everything possible.
pub fn wilson(hits: usize, trials: usize) -> Rate {
    wilson_of(hits, trials, trials)
}

/// The interval of [`wilson`] as if only `independent` of the trials had been made: for trials that share
/// what they drew from.
pub fn wilson_of(hits: usize, trials: usize, independent: usize) -> Rate {
    let independent = independent.min(trials);
    let (low, high) = if independent == 0 {
        (0.0, 1.0)
    } else {
        let (z, n) = (1.959_964_f64, independent as f64);
        let p = hits as f64 / trials as f64;
        let scale = 1.0 + z * z / n;
        let centre = (p + z * z / (2.0 * n)) / scale;
        let half = z / scale * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        ((centre - half).max(0.0), (centre + half).min(1.0))
    };
    Rate {
        hits,
        trials,
        low,
        high,
    }
}

impl Rate {
    /// The rate; `None` without trials.
    pub fn rate(&self) -> Option<f64> {
        (self.trials > 0).then(|| self.hits as f64 / self.trials as f64)
    }
}

impl fmt::Display for Rate {
    /// `3.1 % [1.2, 7.8]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(rate) = self.rate() else {
            return f.pad("no trials");
        };
        let text = format!(
            "{:.1} % [{:.1}, {:.1}]",
            rate * 100.0,
            self.low * 100.0,
            self.high * 100.0
        );
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_intervals() {
        let rate = wilson(0, 10);
        assert!(rate.low.abs() < 1e-12 && (rate.high - 0.277_5).abs() < 1e-3);
        let rate = wilson(81, 263);
        assert!((rate.low - 0.255_3).abs() < 1e-3 && (rate.high - 0.366_2).abs() < 1e-3);
        assert_eq!(wilson(0, 0).to_string(), "no trials");
        assert_eq!(wilson_of(0, 100, 0).high.to_string(), "1");
        let (few, many) = (wilson_of(50, 100, 10), wilson(50, 100));
        assert!(few.low < many.low && few.high > many.high && few.rate() == many.rate());
        assert_eq!(wilson_of(5, 10, 1000), wilson(5, 10));
        assert_eq!(wilson(1, 2).to_string(), "50.0 % [9.5, 90.5]");
    }
}
