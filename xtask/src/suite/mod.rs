//! Suites: the TOML files under `cases/` that declare what is swept.

pub mod budget;
pub mod expect;
pub mod runner;
pub mod template;
