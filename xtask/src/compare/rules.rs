//! Thresholds and levels of a comparison; `cases/gate.toml` sets them.

/// Which correction is used for the tests of one sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// Holm: at most this chance of any false alarm per sweep.
    Holm,
    /// Benjamini–Hochberg: at most this share of false alarms among the alarms.
    BenjaminiHochberg,
}

impl Correction {
    /// The p values, corrected.
    pub fn adjust(self, raw: &[f64]) -> Vec<f64> {
        match self {
            Self::Holm => crate::stats::holm(raw),
            Self::BenjaminiHochberg => crate::stats::benjamini_hochberg(raw),
        }
    }
}

/// Thresholds and levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Sweep-wide level of the latency tests.
    pub alpha: f64,
    /// Correction over the family of tests.
    pub correction: Correction,
    /// Confidence of the interval of one case's change.
    pub confidence: f64,
    /// A change smaller than this share is none, however sure.
    pub relative_floor: f64,
    /// A change smaller than this many nanoseconds is none, however sure.
    pub absolute_floor_ns: f64,
    /// `unchanged` is said only where the interval lies within this share (or the floor, if that is more).
    pub resolution: f64,
    /// A ratio of medians beyond this share is pointed out where no test can be made.
    pub plain_threshold: f64,
    /// Suspects are measured again from this share on.
    pub suspect_threshold: f64,
    /// Fresh process runs per side and look when suspects are measured again.
    pub confirm_repeats: usize,
    /// Most looks at a suspect: one that still seems slower than the floor is measured on.
    pub confirm_looks: usize,
    /// Less than this share of the reference's latency is too good to be true.
    pub implausible_ratio: f64,
    /// Less than this share of the reference's tasks or high-water is other work, not faster work.
    pub work_collapse: f64,
    /// A median ratio over all cases beyond this share points at the environment.
    pub common_mode: f64,
    /// A high-water mark may move by this share.
    pub ring_tolerance: f64,
    /// Capacity over high-water must be at least this.
    pub headroom: f64,
    /// A baseline older than this many days is pointed out.
    pub max_age_days: i64,
    /// A learnt noise floor above this share is pointed out: the case can't show small changes.
    pub max_noise_floor: f64,
}

impl Rules {
    /// What holds where `cases/gate.toml` sets nothing; the measured reasons stand in `xtask/src/audit.rs`.
    pub const STANDARD: Self = Self {
        alpha: 0.01,
        correction: Correction::Holm,
        confidence: 0.95,
        relative_floor: 0.02,
        absolute_floor_ns: 2_000.0,
        resolution: 0.05,
        plain_threshold: 0.10,
        suspect_threshold: 0.02,
        confirm_repeats: 6,
        confirm_looks: 6,
        implausible_ratio: 1.0 / 3.0,
        work_collapse: 0.5,
        common_mode: 0.03,
        ring_tolerance: 0.02,
        headroom: 2.0,
        max_age_days: 60,
        max_noise_floor: 0.10,
    };
}
