//! The commands: each takes what was typed and a [`Context`], and returns how it ended.

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use clap::Parser;

use crate::{
    cli::{Cli, Command},
    diagnostic::Style,
    exit::Exit,
};

pub mod audit;
pub mod baseline;
pub mod ci;
pub mod classify;
pub mod comparing;
pub mod diff;
pub mod gate;
pub mod import;
pub mod list;
pub mod merge;
pub mod planning;
pub mod report;
pub mod sweep;

/// What every command works in.
pub struct Context<'a> {
    /// The workspace root.
    pub root: PathBuf,
    /// The directory of the suites.
    pub cases: PathBuf,
    /// The directory of runs and baselines.
    pub results: PathBuf,
    /// How messages on `err` look.
    pub style: Style,
    /// Data.
    pub out: &'a mut dyn Write,
    /// Everything else.
    pub err: &'a mut dyn Write,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("root", &self.root)
            .field("cases", &self.cases)
            .field("results", &self.results)
            .finish_non_exhaustive()
    }
}

/// An error that knows its exit code; any other error of a command is [`Exit::Internal`].
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// What is told, without `error:`.
    pub message: String,
}

impl Failure {
    /// A mistake of the user: exit 2.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Self::ending(Exit::Usage, message)
    }

    /// Ends with `exit` and tells `message`.
    pub fn ending(exit: Exit, message: impl Into<String>) -> anyhow::Error {
        let message = message.into();
        Self { exit, message }.into()
    }
}

/// Parses `args` (the first is the program), runs the command and tells how it ended.
pub fn main(args: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing can be told when neither stream takes the text.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Pass };
        }
    };
    let root = workspace_root();
    let mut context = Context {
        cases: cli.cases.unwrap_or_else(|| root.join("cases")),
        results: cli.results.unwrap_or_else(|| root.join("results")),
        root,
        style: stderr_style(),
        out: &mut io::stdout().lock(),
        err: &mut io::stderr(),
    };
    let result = run(cli.command, &mut context).and_then(|exit| match context.out.flush() {
        // A reader that has seen enough takes nothing from what the command found out.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(exit),
    });
    match result {
        Ok(exit) => exit,
        Err(error) if is_broken_pipe(&error) => Exit::Pass,
        Err(error) => {
            // A closed stderr leaves the exit code as the only message.
            let _ = writeln!(context.err, "error: {error:#}");
            error
                .downcast_ref::<Failure>()
                .map_or(Exit::Internal, |failure| failure.exit)
        }
    }
}

fn run(command: Command, context: &mut Context<'_>) -> anyhow::Result<Exit> {
    match command {
        Command::List(args) => list::run(&args, context),
        Command::Diff(args) => diff::run(&args, context),
        Command::Baseline(args) => baseline::run(&args, context),
        Command::Gate(args) => gate::run(&args, context),
        Command::Report(args) => report::run(&args, context),
        Command::Import(args) => import::run(&args, context),
        Command::Classify(args) => classify::run(&args, context),
        Command::Sweep(args) => sweep::run(*args, context),
        Command::Merge(args) => merge::run(&args, context),
        Command::Audit(args) => audit::run(&args, context),
        Command::Ci(args) => ci::run(&args, context),
    }
}

/// Coloured on a terminal that wants it.
fn stderr_style() -> Style {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if io::stderr().is_terminal() && !set("NO_COLOR") && !dumb {
        Style::Coloured
    } else {
        Style::Plain
    }
}

/// A reader that went away (`… | head`) wanted no more.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |io: &io::Error| io.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

/// The workspace that `cargo xtask` runs in; Cargo names the manifest at run time, else that of the build holds.
fn workspace_root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = Path::new(&manifest);
    manifest.parent().unwrap_or(manifest).to_path_buf()
}
