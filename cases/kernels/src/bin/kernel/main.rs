//! Runs one case of one kernel and reports how it ended.

fn main() {}
