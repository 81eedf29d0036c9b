//! As many trivial test cases as `RINGSWEEP_THOUSAND` says, none without it.
//!
//! `cargo bench -p xtask --bench supervision` starts this program case by case: through a shell
//! loop, through cargo-nextest (whose protocol for such programs it speaks), and through the
//! harness. It does the least that a case can do, so what is timed is the cost of starting,
//! watching and recording one.

use std::io::{Write, stdout};

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let mut out = stdout().lock();
    if has("--list") {
        let count = std::env::var("RINGSWEEP_THOUSAND")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        // Ignored cases are asked for separately; there are none.
        for n in 0..if has("--ignored") { 0 } else { count } {
            writeln!(out, "case_{n}: test")?;
        }
        return Ok(());
    }
    match arguments.first().filter(|argument| argument.starts_with("case_")) {
        Some(case) => writeln!(out, "{case}: nothing to do"),
        None => Ok(()),
    }
}
