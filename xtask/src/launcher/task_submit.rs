//! The device queue `task-submit`: how a command is handed to it, and what its lines say of the end.
//!
//! Its exit status 1 may mean that the program failed, that the request was refused, or that waiting took too long;
//! only the lines around the program's output tell them apart. Waiting is the queue's time, not the case's: the
//! program announces itself with [`STARTED`], and only from there on do setup, silence and run budgets count.

use std::path::PathBuf;
use std::sync::LazyLock;

use regex::Regex;

use super::Resolved;
use crate::classify::{self, EndStatus};
use crate::outcome::{Budget, Outcome, SetupCause, SignalName};
use crate::process::{ChildSpec, Phase, PhasePlan, Sign};
use crate::record::{Evidence, EvidenceLine};
use crate::runner::{Assignment, LaunchError};

/// The line that says that the queue has let the command run.
pub const STARTED: &str = "[ringsweep] started";

/// Words that make the queue refuse a command, wherever they stand in it.
const REFUSED_WORDS: [&str; 3] = ["shutdown", "passwd", "reboot"];

/// `child` as a request to the queue client `client`.
///
/// # Errors
/// A command that the queue would refuse, or a sweep that itself runs inside of the queue.
pub fn wrap(
    child: ChildSpec,
    client: &str,
    options: &[String],
    assignment: &Assignment<'_>,
) -> Result<ChildSpec, LaunchError> {
    let refuse = |message: String| LaunchError {
        cause: SetupCause::Launch,
        message,
    };
    if std::env::var_os("TASKQUEUE_INSIDE").is_some() {
        return Err(refuse(
            "this sweep runs inside of the device queue, which refuses a second level".into(),
        ));
    }
    let words: Vec<String> = std::iter::once(child.program.clone().into_os_string())
        .chain(child.arguments.iter().cloned())
        .map(std::ffi::OsString::into_string)
        .collect::<Result<_, _>>()
        .map_err(|word| refuse(format!("`{}` is no text that the queue could take", word.display())))?;
    // The client wants one command line. Two commands in it keep the client from adding a `--device` of its own.
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    // A limit is the program's, not the client's, which only waits: the shell in between sets it.
    let limit = child
        .memory_limit_bytes
        .map(|bytes| format!("ulimit -v {} && ", bytes.div_ceil(1024)))
        .unwrap_or_default();
    let command = format!("echo '{STARTED}'; {limit}exec {}", quoted.join(" "));
    if let Some(word) = REFUSED_WORDS.iter().find(|word| command.contains(**word)) {
        return Err(refuse(format!(
            "the device queue refuses every command that contains `{word}`"
        )));
    }
    let seconds = |limit: Option<std::time::Duration>| limit.map_or(0, |limit| limit.as_secs_f64().ceil() as u64);
    // A client that waits less than queue and program may take gives up on a program that still runs.
    let longest = seconds(child.limits.queue) + seconds(child.limits.total);
    let devices: Vec<String> = assignment.devices.iter().map(ToString::to_string).collect();
    let mut arguments: Vec<String> = options.to_vec();
    if devices.is_empty() {
        let number = assignment.case.devices.max(1);
        arguments.extend([
            "--device".into(),
            "auto".into(),
            "--device-num".into(),
            number.to_string(),
        ]);
    } else {
        arguments.extend(["--device".into(), devices.join(",")]);
    }
    arguments.extend(["--timeout".into(), longest.to_string()]);
    arguments.extend(["--max-time".into(), seconds(child.limits.total).to_string()]);
    arguments.extend(["--run".into(), command]);
    let program = if client.contains('/') {
        assignment.root.join(client)
    } else {
        PathBuf::from(client)
    };
    let begins = (child.phases.first, Sign::OutputLine(STARTED.as_bytes().to_vec()));
    let mut limits = child.limits;
    // The program's whole time starts when the queue lets it run; the server's own limit holds it there.
    limits.total = limits.total.map(|total| total + limits.queue.unwrap_or_default());
    Ok(ChildSpec {
        program,
        arguments: arguments.into_iter().map(Into::into).collect(),
        limits,
        memory_limit_bytes: None,
        phases: PhasePlan {
            first: Phase::Queue,
            signs: std::iter::once(begins).chain(child.phases.signs.clone()).collect(),
        },
        ..child
    })
}

/// `word` as a POSIX shell reads it back.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

struct Patterns {
    ended: Regex,
    killed: Regex,
    max_time: Regex,
    waited: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let compile = |pattern| Regex::new(pattern).expect("the patterns are constant and tested");
    Patterns {
        ended: compile(r"^=== 任务(?:完成|失败) \(exit=(-?\d+)\) ==="),
        killed: compile(r"^=== 任务已终止 \(killed\) ==="),
        // The wording of this line isn't fixed; that it speaks of an end by time is.
        max_time: compile(r"^\[taskqueue\].*超时.*\(\d+s\)"),
        waited: compile(r"等待超时"),
    }
});

/// Reads the queue's lines in `log`.
pub fn resolve(status: EndStatus, log: &[u8]) -> Resolved {
    let patterns = &*PATTERNS;
    let (mut started, mut ended, mut killed, mut max_time, mut waited) = (false, None, None, None, None);
    for line in classify::lines(log) {
        let text = line.text.trim_end();
        let quoted = || EvidenceLine {
            line: line.number,
            text: classify::printable(text),
        };
        started |= text.starts_with(STARTED);
        if let Some(found) = patterns.ended.captures(text) {
            ended = found[1].parse::<i32>().ok();
        } else if patterns.killed.is_match(text) {
            killed = Some(quoted());
        } else if patterns.waited.is_match(text) {
            waited = Some(quoted());
        } else if patterns.max_time.is_match(text) {
            max_time = Some(quoted());
        }
    }
    let tell = |outcome: Outcome, summary: &str, line: Option<EvidenceLine>| Resolved {
        status: status.clone(),
        instead: Some((
            outcome,
            Evidence {
                summary: summary.into(),
                source: "launcher".into(),
                lines: line.into_iter().collect(),
                ..Evidence::default()
            },
        )),
    };
    let as_status = |status: EndStatus| Resolved { status, instead: None };
    if let Some(line) = waited
        && !started
    {
        let summary = "the device queue gave up waiting for a device";
        return tell(Outcome::Timeout(Budget::Queue), summary, Some(line));
    }
    if max_time.is_some() && ended.is_none_or(|code| code != 0) {
        return as_status(EndStatus::TimedOut(Budget::Total));
    }
    if let Some(code) = ended {
        return as_status(EndStatus::Exited(code));
    }
    if killed.is_some() {
        return as_status(EndStatus::Signaled(SignalName::from_number(9)));
    }
    if !started && !status.is_success() && !matches!(status, EndStatus::TimedOut(_)) {
        let first = classify::lines(log).next().map(|line| EvidenceLine {
            line: line.number,
            text: classify::printable(&line.text),
        });
        let summary = format!("the device queue ended with {status} before the program was started");
        return tell(Outcome::SetupError(SetupCause::Launch), &summary, first);
    }
    as_status(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(log: &str, exit: i32, status: &str, instead: Option<&str>) {
        let resolved = resolve(EndStatus::Exited(exit), log.as_bytes());
        assert_eq!(resolved.status.to_string(), status);
        assert_eq!(
            resolved.instead.map(|(outcome, _)| outcome.to_string()).as_deref(),
            instead
        );
    }

    #[test]
    fn exit_1_is_told_apart_by_the_lines_around_it() {
        check("[ringsweep] started\nx\n=== 任务失败 (exit=1) ===\n", 1, "exit:1", None);
        check("[taskqueue] 等待超时 (600s)\n", 1, "exit:1", Some("timeout/queue"));
        check(
            "error: unknown option --devise\n",
            1,
            "exit:1",
            Some("setup-error/launch"),
        );
        check(
            "[ringsweep] started\n[RUN] PASS (1.00s)\n=== 任务完成 (exit=0) ===\n",
            0,
            "exit:0",
            None,
        );
    }

    #[test]
    fn the_programs_own_status_counts() {
        check(
            "[ringsweep] started\n=== 任务失败 (exit=139) ===\n[npu-lock] released\n",
            1,
            "exit:139",
            None,
        );
        check(
            "[ringsweep] started\n[taskqueue] 任务超时，自动终止 (900s)...\n=== 任务已终止 (killed) ===\n",
            143,
            "timeout:total",
            None,
        );
        check(
            "[ringsweep] started\n=== 任务已终止 (killed) ===\n",
            137,
            "signal:SIGKILL",
            None,
        );
        check("", 0, "exit:0", None);
    }

    #[test]
    fn words_survive_the_shell() {
        assert_eq!(quote("a b'c"), r"'a b'\''c'");
        assert_eq!((quote("--x=1,2").as_str(), quote("").as_str()), ("--x=1,2", "''"));
    }
}
