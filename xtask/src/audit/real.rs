//! Real sessions: process runs of kernels on this machine.
