//! Operations on tiles that the blocks of the kernels are made of.
//!
//! Everything here runs on the calling thread: a block has one worker core, and parallelism is the
//! business of the task graph. Nothing here knows about tensors, tasks or rings.

pub mod cast;
pub mod gemm;
pub mod math;
pub mod reduce;
pub mod rotary;
