//! ringsweep: regression sweeps of ring-heap kernels.

pub mod case_id;
pub mod ci;
pub mod cli;
pub mod cmd;
pub mod duration;
pub mod exit;
pub mod format;
pub mod outcome;
pub mod plan;
pub mod platform;
pub mod record;
pub mod ring;
pub mod size;
pub mod suite;
