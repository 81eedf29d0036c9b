//! The report of a case: one JSON object a line, appended while the case runs.
//!
//! The program on the other side owns its own structs; these are the harness's reading of the same
//! protocol. A reader ignores fields and events that it doesn't know, forgives a last line that a
//! kill cut short, and refuses a newer major. Anything else that it can't read makes the report
//! [`Damage`], and a damaged report never shows a pass.

mod read;
mod report;
mod wire;

pub use read::{Damage, PROTOCOL_MAJOR, read};
pub use report::{DispatchFacts, FatalFacts, Report, Trouble, Validation, VerdictClaim};
