//! The `cargo xtask` command line.

fn main() {}
