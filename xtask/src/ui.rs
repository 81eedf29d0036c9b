//! How output looks: whether a terminal watches, whether colours are wanted, and a writer that
//! takes a reader's leaving as success.
//!
//! Meaning never depends on colour: every coloured word is the word itself.

use std::io::{self, IsTerminal, Write};

use crate::outcome::OutcomeKind;

/// What the reader of the output can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Whether words are coloured.
    pub colour: Colour,
    /// Whether lines may be redrawn.
    pub progress: Motion,
}

/// Coloured words or plain ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// With ANSI colours.
    Ansi,
    /// Without.
    None,
}

/// Lines that are redrawn, or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// Someone watches a terminal.
    Redraw,
    /// A file, a pipe or a CI log.
    LineByLine,
}

impl Look {
    /// What the streams of this process and its environment say (`NO_COLOR`, `TERM=dumb`, `CI`).
    pub fn of_stderr() -> Self {
        Self::from(
            io::stderr().is_terminal(),
            |name| std::env::var_os(name).is_some_and(|value| !value.is_empty()),
            dumb(),
        )
    }

    /// The same for standard output, which is never redrawn.
    pub fn of_stdout() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            progress: Motion::LineByLine,
            ..Self::from(io::stdout().is_terminal(), set, dumb())
        }
    }

    fn from(terminal: bool, set: impl Fn(&str) -> bool, dumb: bool) -> Self {
        let able = terminal && !dumb;
        Self {
            colour: if able && !set("NO_COLOR") {
                Colour::Ansi
            } else {
                Colour::None
            },
            progress: if able && !set("CI") {
                Motion::Redraw
            } else {
                Motion::LineByLine
            },
        }
    }
}

fn dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

impl Colour {
    /// `text` in the colour of `kind`.
    pub fn outcome(self, kind: OutcomeKind, text: &str) -> String {
        let code = match kind {
            OutcomeKind::Pass => "32",
            OutcomeKind::Skipped | OutcomeKind::Blocked | OutcomeKind::NoVerdict | OutcomeKind::Interrupted => "33",
            OutcomeKind::Missing
            | OutcomeKind::Crash
            | OutcomeKind::DeviceFault
            | OutcomeKind::Deadlock
            | OutcomeKind::Stall
            | OutcomeKind::Timeout
            | OutcomeKind::Oom
            | OutcomeKind::RuntimeError
            | OutcomeKind::ConfigNotApplied
            | OutcomeKind::Nan
            | OutcomeKind::Mismatch
            | OutcomeKind::CompileError
            | OutcomeKind::SetupError => "31",
        };
        self.paint(code, text)
    }

    /// `text` in bold.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Ansi => format!("\x1b[{code}m{text}\x1b[0m"),
            Self::None => text.to_owned(),
        }
    }
}

/// A writer that stays silent once its reader has gone: `… | head` has seen what it wanted, and the
/// sweep goes on for its records and its exit code.
#[derive(Debug)]
pub struct Patient<W> {
    inner: W,
    gone: bool,
}

impl<W: Write> Patient<W> {
    /// Writes to `inner` while somebody reads it.
    pub fn new(inner: W) -> Self {
        Self { inner, gone: false }
    }

    fn forgive<T>(&mut self, result: io::Result<T>, instead: T) -> io::Result<T> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(instead)
            }
            result => result,
        }
    }
}

impl<W: Write> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gone {
            return Ok(bytes.len());
        }
        let result = self.inner.write(bytes);
        self.forgive(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gone {
            return Ok(());
        }
        let result = self.inner.flush();
        self.forgive(result, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_honoured() {
        let look = |terminal, variable: &'static str, dumb| Look::from(terminal, move |name| name == variable, dumb);
        assert_eq!(
            look(true, "", false),
            Look {
                colour: Colour::Ansi,
                progress: Motion::Redraw
            }
        );
        assert_eq!(
            look(true, "NO_COLOR", false),
            Look {
                colour: Colour::None,
                progress: Motion::Redraw
            }
        );
        assert_eq!(
            look(true, "CI", false),
            Look {
                colour: Colour::Ansi,
                progress: Motion::LineByLine
            }
        );
        for plain in [look(true, "", true), look(false, "", false)] {
            assert_eq!(
                plain,
                Look {
                    colour: Colour::None,
                    progress: Motion::LineByLine
                }
            );
        }
    }

    #[test]
    fn a_reader_that_left_is_no_error() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let mut patient = Patient::new(Gone);
        assert!(
            writeln!(patient, "one")
                .and_then(|()| writeln!(patient, "two"))
                .and_then(|()| patient.flush())
                .is_ok()
        );
    }
}
