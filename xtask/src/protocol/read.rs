//! Reading a report, whatever state its writer left it in.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::report::{DispatchFacts, FatalFacts, Report, RingReport, Trouble, Validation, VerdictClaim};
use super::wire;
use crate::record::{Clock, Nanos, ResourceSizes, RingShortage, RingUsage, StallFacts, TensorFacts, WorkCounters};

/// The protocol that this harness reads.
pub const PROTOCOL_MAJOR: u32 = 1;

/// Why a report can't be believed to be whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A line in the middle is not what the protocol says.
    #[error("line {line} of the report is unreadable: {reason}")]
    Line {
        /// From 1.
        line: usize,
        /// What the parser says.
        reason: String,
    },
    /// The writer is newer than this harness.
    #[error("the report has protocol {major}.x, this harness reads {PROTOCOL_MAJOR}.x")]
    Newer {
        /// The writer's major.
        major: u32,
    },
    /// It doesn't begin with `hello`.
    #[error("the report does not begin with `hello`")]
    NoHello,
    /// It has two verdicts.
    #[error("the report has two verdicts")]
    TwoVerdicts,
}

/// Reads a report from its bytes; what was read before the damage is kept, since it may hold the cause of the end.
pub fn read(bytes: &[u8]) -> (Report, Option<Damage>) {
    let mut report = Report::default();
    let mut damage = None;
    let mut begun = false;
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    for (index, line) in lines.iter().enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        // What stands behind the last newline was cut short by a kill.
        let torn = index + 1 == lines.len();
        let result = take(&mut report, line, begun);
        begun = true;
        match result {
            Ok(()) => {}
            Err(Failed::Unreadable(_)) if torn => {}
            Err(Failed::Unreadable(reason)) => {
                damage = damage.or(Some(Damage::Line {
                    line: index + 1,
                    reason,
                }));
            }
            Err(Failed::Stop(stop)) => return (report, Some(stop)),
        }
    }
    (report, damage)
}

enum Failed {
    Unreadable(String),
    Stop(Damage),
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Failed> {
    serde_json::from_slice(line).map_err(|error| Failed::Unreadable(error.to_string()))
}

fn take(report: &mut Report, line: &[u8], begun: bool) -> Result<(), Failed> {
    let tagged: wire::Tagged = parse(line)?;
    if !begun && tagged.event != "hello" {
        return Err(Failed::Stop(Damage::NoHello));
    }
    match tagged.event.as_str() {
        "hello" => {
            let hello: wire::Hello = parse(line)?;
            if hello.protocol.major != PROTOCOL_MAJOR {
                return Err(Failed::Stop(Damage::Newer {
                    major: hello.protocol.major,
                }));
            }
            report.program = hello.program;
            report.kernel_hash = hello.kernel_hash;
            report.seed = hello.seed;
            report.params = hello
                .params
                .into_iter()
                .map(|(name, value)| (name, plain(&value)))
                .collect();
        }
        "stage" => {
            let stage: wire::StageEvent = parse(line)?;
            if stage.phase == "begin" {
                report.open_stage = Some(stage.stage);
            } else {
                report.open_stage = None;
                report
                    .stages
                    .push((stage.stage, stage.elapsed_ns.unwrap_or(0), stage.ok));
            }
        }
        "rings" => {
            let rings: wire::Rings = parse(line)?;
            report.rings.push(RingReport {
                dispatch: rings.dispatch,
                rank: rings.rank,
                asked: sizes(rings.asked),
                effective: rings.effective.map(sizes),
            });
        }
        "dispatch" => report.dispatches.push(dispatch(parse(line)?)),
        "sample" => {
            let sample: wire::Sample = parse(line)?;
            let clock = if sample.clock == "host" {
                Clock::Host
            } else {
                Clock::Device
            };
            match Nanos::new(sample.device_ns) {
                Ok(ns) => report.samples.push((clock, ns.get())),
                Err(_) => report.bad_samples += 1,
            }
        }
        "fatal" => report.troubles.push(Trouble::Fatal(fatal(parse(line)?))),
        "stall" => report.troubles.push(stall(parse(line)?)),
        "panic" => {
            let panic: wire::Panic = parse(line)?;
            let task = panic.task.as_ref().map(plain);
            report.troubles.push(Trouble::Panic {
                dispatch: panic.dispatch,
                task,
                message: panic.message,
            });
        }
        "tensor" => report.tensors.push(tensor(parse(line)?)),
        "memory" => report.peak_rss_bytes = parse::<wire::Memory>(line)?.peak_rss_bytes,
        "verdict" => {
            let verdict: wire::VerdictEvent = parse(line)?;
            if report.verdict.is_some() {
                return Err(Failed::Stop(Damage::TwoVerdicts));
            }
            report.verdict = Some(VerdictClaim {
                verdict: verdict.verdict,
                cause: verdict.cause.unwrap_or_default(),
                message: verdict.message.unwrap_or_default(),
            });
        }
        // A later minor version may say more.
        _ => {}
    }
    Ok(())
}

/// A JSON value as evidence shows it: text without quotes, anything else as JSON.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn sizes(wire: wire::Sizes) -> ResourceSizes {
    ResourceSizes {
        heap: wire.heap,
        task_window: wire.task_window,
        dep_pool: wire.dep_pool,
    }
}

fn dispatch(wire: wire::Dispatch) -> DispatchFacts {
    let usage: Vec<RingUsage> = wire
        .usage
        .into_iter()
        .map(|usage| RingUsage {
            heap_capacity_bytes: usage.heap_capacity_bytes,
            heap_high_water_bytes: usage.heap_high_water_bytes,
            task_window: usage.task_window,
            tasks_high_water: usage.tasks_high_water,
            dep_pool: usage.dep_pool,
            dep_pool_high_water: usage.dep_pool_high_water,
            tasks_submitted: usage.tasks_submitted,
        })
        .collect();
    DispatchFacts {
        index: wire.index,
        rank: wire.rank,
        usage: usage.try_into().ok(),
        work: wire.tasks.map(|tasks| WorkCounters {
            tasks_submitted: tasks.submitted,
            tasks_dispatched: tasks.dispatched,
        }),
        launched: wire.launched,
    }
}

fn fatal(wire: wire::Fatal) -> FatalFacts {
    FatalFacts {
        dispatch: wire.dispatch,
        rank: wire.rank,
        code: wire.code,
        name: wire.name,
        shortage: RingShortage {
            code: Some(wire.code),
            resource: wire.resource,
            ring: wire.ring,
            requested: wire.requested,
            free: wire.free,
            capacity: wire.capacity,
            proof: wire.proof,
            task: wire.task,
            head_task: wire.head_task,
            launched: None,
        },
        message: wire.message,
    }
}

fn stall(wire: wire::Stall) -> Trouble {
    Trouble::Stall {
        dispatch: wire.dispatch,
        class: wire.class,
        facts: StallFacts {
            completed: wire.completed,
            total: wire.total,
            running: wire.running,
            ready: wire.ready,
            waiting: wire.waiting,
            orch_done: wire.orch_done,
            stuck_task: wire.stuck_task.as_ref().map(plain),
            stuck_core: wire.stuck_core,
        },
    }
}

fn tensor(wire: wire::Tensor) -> Validation {
    let text = |value: &Option<Value>| value.as_ref().filter(|value| !value.is_null()).map(plain);
    Validation {
        facts: TensorFacts {
            name: wire.name,
            verdict: wire.verdict,
            rule: wire.rule,
            total: wire.total,
            mismatched: wire.mismatched,
            allowed: wire.allowed,
            max_abs_err: text(&wire.max_abs_err),
            max_rel_err: text(&wire.max_rel_err),
            first_index: wire.first_index.unwrap_or_default(),
            actual: text(&wire.actual),
            expected: text(&wire.expected),
            first_row: wire.first_row,
            all_nan_rows: wire.all_nan_rows,
        },
        nonfinite_actual: wire.nonfinite_actual.unwrap_or(0),
        nonfinite_expected: wire.nonfinite_expected.unwrap_or(0),
        message: wire.message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: &str = r#"{"event":"hello","protocol":{"major":1,"minor":4},"program":"rmsnorm","pid":7,"seed":3,"kernel_hash":"ab","platform":"host","params":{"mode":"decode","rows":8},"later":true}"#;
    const VERDICT: &str = r#"{"event":"verdict","verdict":"pass","cause":null,"message":null}"#;

    fn report(lines: &[&str]) -> (Report, Option<Damage>) {
        read(format!("{}\n", lines.join("\n")).as_bytes())
    }

    #[test]
    fn unknown_fields_and_events_are_ignored() {
        let (report, damage) = report(&[HELLO, r#"{"event":"weather","sky":"blue"}"#, VERDICT]);
        assert_eq!(damage, None);
        assert_eq!((report.program.as_str(), report.seed), ("rmsnorm", Some(3)));
        assert_eq!(report.params["rows"], "8");
        assert_eq!(report.verdict.unwrap().verdict, "pass");
    }

    #[test]
    fn a_torn_last_line_is_forgiven_wherever_it_was_cut() {
        for cut in 1..VERDICT.len() {
            let text = format!("{HELLO}\n{}", &VERDICT[..cut]);
            let (report, damage) = read(text.as_bytes());
            assert_eq!((report.verdict, damage), (None, None), "cut at {cut}");
        }
        // A whole line without its newline still counts.
        assert!(read(format!("{HELLO}\n{VERDICT}").as_bytes()).0.verdict.is_some());
    }

    #[test]
    fn damage_is_told_and_what_was_read_is_kept() {
        let (kept, damage) = report(&[HELLO, "{not json", VERDICT]);
        assert!(matches!(damage, Some(Damage::Line { line: 2, .. })));
        assert!(kept.verdict.is_some());
        assert_eq!(report(&[VERDICT]).1, Some(Damage::NoHello));
        assert_eq!(report(&[HELLO, VERDICT, VERDICT]).1, Some(Damage::TwoVerdicts));
        let newer = HELLO.replace(r#""major":1"#, r#""major":2"#);
        assert_eq!(report(&[&newer]).1, Some(Damage::Newer { major: 2 }));
        assert_eq!(read(b""), (Report::default(), None));
    }

    #[test]
    fn usage_peaks_over_dispatches_and_samples_are_checked() {
        let usage = |ring1: u64| {
            let ring = |high: u64| {
                format!(r#"{{"heap_capacity_bytes":1024,"heap_high_water_bytes":{high},"tasks_high_water":{high}}}"#)
            };
            format!("[{},{},{},{}]", ring(0), ring(ring1), ring(0), ring(1))
        };
        let first = format!(
            r#"{{"event":"dispatch","index":0,"rank":0,"usage":{},"tasks":{{"submitted":5,"dispatched":3}},"launched":true}}"#,
            usage(64)
        );
        let second = format!(r#"{{"event":"dispatch","index":1,"rank":0,"usage":{}}}"#, usage(128));
        let (report, damage) = report(&[
            HELLO,
            &first,
            &second,
            r#"{"event":"sample","index":1,"device_ns":120,"clock":"host"}"#,
            r#"{"event":"sample","index":2,"device_ns":0,"clock":"host"}"#,
        ]);
        assert_eq!(damage, None);
        assert_eq!(report.peak_usage().unwrap()[1].heap_high_water_bytes, 128);
        assert_eq!(report.work().unwrap().tasks_submitted, 5);
        assert_eq!((report.launched(0), report.launched(1)), (Some(true), None));
        assert_eq!(
            (report.samples.as_slice(), report.bad_samples),
            ([(Clock::Host, 120)].as_slice(), 1)
        );
    }
}
