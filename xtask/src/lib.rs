//! ringsweep: regression sweeps of ring-heap kernels.
