//! ringsweep: regression sweeps of ring-heap kernels.

pub mod baseline;
pub mod case_id;
pub mod ci;
pub mod cli;
pub mod cmd;
pub mod compare;
pub mod duration;
pub mod exit;
pub mod format;
pub mod gate;
pub mod host_class;
pub mod outcome;
pub mod plan;
pub mod platform;
pub mod process;
pub mod protocol;
pub mod record;
pub mod ring;
pub mod runner;
pub mod size;
pub mod stats;
pub mod suite;
pub mod verdict;
