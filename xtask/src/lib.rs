//! ringsweep: regression sweeps of ring-heap kernels.

pub mod case_id;
pub mod exit;
pub mod format;
pub mod outcome;
pub mod record;
