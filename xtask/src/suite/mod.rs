//! Suites: the TOML files under `cases/` that declare what is swept.
//!
//! A file is read into a [`file::Suite`] whose cases are expanded, with every mistake collected;
//! [`crate::catalogue`] reads all of them and checks what no single file can know.

mod axis;
pub mod budget;
pub mod expect;
pub mod file;
pub mod layer;
pub mod matrix;
pub(crate) mod read;
pub(crate) mod read_runner;
pub mod runner;
pub mod stack;
pub mod template;
