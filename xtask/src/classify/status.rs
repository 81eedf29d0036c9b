//! How the process behind a log ended.

use std::fmt;
use std::str::FromStr;

use crate::outcome::{Budget, CrashCause, Outcome, SignalName};

/// How a process ended, as far as its log's reader is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndStatus {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signaled(SignalName),
    /// Ended by its supervisor, since this budget ran out.
    TimedOut(Budget),
}

impl EndStatus {
    /// Exit status 0.
    pub fn is_success(&self) -> bool {
        *self == Self::Exited(0)
    }

    /// The outcome of an end with no better cause; `None` for success.
    ///
    /// A shell says 128 + n for a child that signal n ended.
    pub fn failure(&self) -> Option<Outcome> {
        match self {
            Self::Exited(code) => {
                let code = std::num::NonZeroI32::new(*code)?;
                let signal = SignalName::from_number(code.get() - 128);
                let known = (129..=159).contains(&code.get()) && !signal.as_str()[3..].starts_with(char::is_numeric);
                Some(Outcome::Crash(if known {
                    CrashCause::Signal(signal)
                } else {
                    CrashCause::Exit(code)
                }))
            }
            Self::Signaled(signal) => Some(Outcome::Crash(CrashCause::Signal(signal.clone()))),
            Self::TimedOut(budget) => Some(Outcome::Timeout(*budget)),
        }
    }
}

impl fmt::Display for EndStatus {
    /// The form that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit:{code}"),
            Self::Signaled(signal) => write!(f, "signal:{}", signal.as_str()),
            Self::TimedOut(budget) => write!(f, "timeout:{budget}"),
        }
    }
}

/// Why a text is no status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no status: write `exit:N`, `signal:NAME` or `timeout:BUDGET` (queue, setup, run, silence, total)")]
pub struct StatusError(String);

impl FromStr for EndStatus {
    type Err = StatusError;

    fn from_str(text: &str) -> Result<Self, StatusError> {
        let status = match text.split_once(':') {
            Some(("exit", code)) => code.parse().ok().map(Self::Exited),
            Some(("signal", name)) => SignalName::from_name(name).map(Self::Signaled),
            Some(("timeout", budget)) => Budget::from_token(budget).map(Self::TimedOut),
            _ => None,
        };
        status.ok_or_else(|| StatusError(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_read_back_and_name_their_failure() {
        let cases = [
            ("exit:0", None),
            ("exit:1", Some("crash/exit-1")),
            ("exit:134", Some("crash/SIGABRT")),
            ("exit:139", Some("crash/SIGSEGV")),
            ("exit:128", Some("crash/exit-128")),
            ("exit:160", Some("crash/exit-160")),
            ("signal:SIGKILL", Some("crash/SIGKILL")),
            ("timeout:silence", Some("timeout/silence")),
        ];
        for (text, failure) in cases {
            let status: EndStatus = text.parse().unwrap();
            assert_eq!(status.to_string(), text);
            assert_eq!(status.failure().map(|outcome| outcome.to_string()).as_deref(), failure);
        }
        for bad in ["0", "exit:", "exit:x", "signal:KILL", "timeout:never", ""] {
            assert!(bad.parse::<EndStatus>().is_err(), "{bad}");
        }
    }
}
