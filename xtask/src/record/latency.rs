//! Raw latency samples. Statistics are derived elsewhere, never stored instead of the samples.

use std::fmt;

/// A duration that was measured: nanoseconds, greater than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nanos(u64);

/// Why a number is no latency.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LatencyError {
    /// Nothing takes no time.
    #[error("a latency of zero is no measurement")]
    Zero,
    /// Time doesn't run backwards.
    #[error("a latency of {0} ns is negative")]
    Negative(f64),
    /// NaN or infinite.
    #[error("a latency of {0} is not finite")]
    NotFinite(f64),
    /// More than a year: a unit was mixed up.
    #[error("a latency of {0:e} ns is longer than a year")]
    TooLong(f64),
}

/// The longest latency that is believed, ns: one year.
const LONGEST_NS: u64 = 366 * 24 * 3600 * 1_000_000_000;

impl Nanos {
    /// A whole number of nanoseconds.
    pub fn new(ns: u64) -> Result<Self, LatencyError> {
        match ns {
            0 => Err(LatencyError::Zero),
            ns if ns > LONGEST_NS => Err(LatencyError::TooLong(ns as f64)),
            ns => Ok(Self(ns)),
        }
    }

    /// A number of nanoseconds that some program printed; rounded to whole nanoseconds, at least one.
    pub fn from_f64(ns: f64) -> Result<Self, LatencyError> {
        if !ns.is_finite() {
            return Err(LatencyError::NotFinite(ns));
        }
        if ns < 0.0 {
            return Err(LatencyError::Negative(ns));
        }
        if ns == 0.0 {
            return Err(LatencyError::Zero);
        }
        if ns > LONGEST_NS as f64 {
            return Err(LatencyError::TooLong(ns));
        }
        Ok(Self((ns.round() as u64).max(1)))
    }

    /// Nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Nanos {
    /// Three significant digits and a unit: `2.75 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (ns / 1e3, "µs"),
            1_000_000..1_000_000_000 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        let digits = match value {
            v if v < 10.0 => 2,
            v if v < 100.0 => 1,
            _ => 0,
        };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

/// Which clock a sample was taken with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Clock {
    /// The runtime's own: from the start of the program to its last task.
    Device,
    /// The host's monotonic clock around the dispatch.
    Host,
}

impl Clock {
    /// `device` or `host`.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
        }
    }
}

/// One timed dispatch.
pub type Sample = Nanos;

/// The timed dispatches of one process run, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    clock: Clock,
    samples: Vec<Sample>,
}

impl Latency {
    /// At least one sample; `None` for an empty list, which is no measurement.
    pub fn new(clock: Clock, samples: Vec<Sample>) -> Option<Self> {
        (!samples.is_empty()).then_some(Self { clock, samples })
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Samples in the order in which they were taken; never empty.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positive_finite_numbers_are_latencies() {
        for bad in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30] {
            assert!(Nanos::from_f64(bad).is_err(), "{bad}");
        }
        assert_eq!(Nanos::from_f64(1.2e6).unwrap().get(), 1_200_000);
        assert_eq!(Nanos::from_f64(5e-324).unwrap().get(), 1);
        assert!(Nanos::new(0).is_err() && Nanos::new(u64::MAX).is_err());
    }

    #[test]
    fn three_digits_and_a_unit() {
        let shown = [1, 999, 1_000, 2_752_000, 19_804_000, 3_000_000_000].map(|ns| Nanos::new(ns).unwrap().to_string());
        assert_eq!(shown, ["1 ns", "999 ns", "1.00 µs", "2.75 ms", "19.8 ms", "3.00 s"]);
    }
}
