//! A verdict as JSON, for whoever reads it by machine.
//!
//! Changelog of the format: 1.0: first.

use serde::Serialize;

use super::{GateVerdict, Reason};
use crate::case_id::CaseId;

#[derive(Serialize)]
struct VerdictWire<'a> {
    format: &'static str,
    major: u32,
    minor: u32,
    policy: &'a str,
    run_id: &'a str,
    reference: &'a str,
    passed: bool,
    exit_code: u8,
    compared: usize,
    failures: usize,
    warnings: usize,
    reasons: Vec<ReasonWire<'a>>,
}

#[derive(Serialize)]
struct ReasonWire<'a> {
    action: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    case: Option<&'a str>,
    message: &'a str,
}

impl<'a> ReasonWire<'a> {
    fn new(reason: &'a Reason) -> Self {
        Self {
            action: reason.action.token(),
            kind: reason.kind.token(),
            case: reason.case.as_ref().map(CaseId::as_str),
            message: &reason.message,
        }
    }
}

/// The verdict as one JSON object.
pub fn verdict_json(verdict: &GateVerdict) -> String {
    let failures = verdict.failures().count();
    let wire = VerdictWire {
        format: "ringsweep-gate",
        major: 1,
        minor: 0,
        policy: &verdict.policy,
        run_id: &verdict.run_id,
        reference: &verdict.reference,
        passed: verdict.passed(),
        exit_code: verdict.exit as u8,
        compared: verdict.compared,
        failures,
        warnings: verdict.reasons.len() - failures,
        reasons: verdict.reasons.iter().map(ReasonWire::new).collect(),
    };
    serde_json::to_string_pretty(&wire).expect("text and numbers always serialise")
}
