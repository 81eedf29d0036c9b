//! What a log says: rules that are data find the lines that matter, precedence decides among them.
//!
//! A [`RuleSet`] is a list of anchored patterns with named captures; [`RuleSet::classify`] reads raw
//! bytes and gives a [`Finding`]: the outcome, the rule that said so, and the quoted lines. It knows
//! the log, the exit status and the command line, nothing else: what the harness itself saw (a
//! report, asked ring sizes) is weighed where the verdict of a case is made.

mod bench;
mod builtin;
mod decide;
mod engine;
mod explain;
mod facts;
pub mod index;
mod line;
mod number;
mod readback;
mod rule;
mod rule_file;
mod sentence;
mod status;

pub use bench::{BenchReport, Headline, bench_reports};
pub use builtin::{BUILTIN_NAMES, LoadError, load};
pub use decide::Finding;
pub use engine::Context;
pub use explain::{explain, json};
pub use facts::{FactName, Facts};
pub use line::{LogLine, lines, printable};
pub use number::parse_number;
pub use readback::{ReadBackError, parse_ring_line, parse_scope_stats, ring_sizes};
pub use rule::{Class, Rule, RuleSet};
pub use rule_file::{RuleFileError, RuleProblem, parse as parse_rules};
pub use status::{EndStatus, StatusError};
