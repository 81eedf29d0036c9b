//! ringsweep: regression sweeps of ring-heap kernels.

pub mod exit;
pub mod outcome;
