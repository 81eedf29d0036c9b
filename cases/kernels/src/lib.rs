//! Programs of the DeepSeek-V4-Pro model on the four-ring runtime.

pub mod tile;
