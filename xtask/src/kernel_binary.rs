//! The `kernel` binary: built once with Cargo, then started like any other program.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use xshell::{Shell, cmd};

use crate::kernels::Kernels;

/// A built `kernel` binary.
#[derive(Clone, Debug)]
pub struct KernelBinary {
    path: PathBuf,
}

/// Why there is no kernel binary, or no list of its kernels.
#[derive(Debug, thiserror::Error)]
pub enum KernelBinaryError {
    /// Cargo can't be run.
    #[error("failed to build the `kernel` binary")]
    Cargo(#[source] xshell::Error),
    /// The kernels don't compile; what the compiler says of it.
    #[error("failed to build the `kernel` binary:\n{0}")]
    Build(String),
    /// Cargo told of no executable.
    #[error("cargo built no `kernel` binary")]
    NoExecutable,
    /// The binary failed.
    #[error("failed to list the kernels with `{path} list --format json`")]
    List {
        /// The binary.
        path: String,
        /// Why.
        source: xshell::Error,
    },
    /// The binary's list is none.
    #[error("the list of kernels that `{path}` prints is not as expected")]
    Format {
        /// The binary.
        path: String,
        /// Why.
        source: serde_json::Error,
    },
}

/// The parts of Cargo's messages that name executables and errors, and say how the build ended.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Target>,
    #[serde(rename = "message")]
    diagnostic: Option<Diagnostic>,
    /// Of the last message only.
    success: Option<bool>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
}

impl KernelBinary {
    /// Builds the binary of the workspace at `root` in release mode.
    ///
    /// The first build shows Cargo's progress on stderr, since it takes long; a later one is quiet. Warnings are
    /// left to whoever works on the kernels.
    pub fn build(root: &Path) -> Result<Self, KernelBinaryError> {
        let shell = Shell::new().map_err(KernelBinaryError::Cargo)?;
        shell.change_dir(root);
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let build = cmd!(
            shell,
            "{cargo} build --release --locked --package kernels --bin kernel --message-format json"
        );
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let quiet = target.join("release/kernel").exists().then_some("--quiet");
        // Cargo's own complaints (a lock file that is out of date) go to stderr; what the compiler says is in the messages.
        let text = build
            .args(quiet)
            .quiet()
            .ignore_status()
            .read()
            .map_err(KernelBinaryError::Cargo)?;
        let messages: Vec<Message> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if !messages.iter().any(|message| message.success == Some(true)) {
            let diagnostics = messages.into_iter().filter_map(|message| message.diagnostic);
            let errors = diagnostics
                .filter(|diagnostic| diagnostic.level == "error")
                .filter_map(|d| d.rendered);
            return Err(KernelBinaryError::Build(
                errors.collect::<String>().trim_end().to_owned(),
            ));
        }
        let executable = messages.into_iter().find_map(|message| {
            message
                .executable
                .filter(|_| message.target.is_some_and(|target| target.name == "kernel"))
        });
        executable
            .map(|path| Self { path })
            .ok_or(KernelBinaryError::NoExecutable)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the binary can take turns with another one; those of early baselines can't.
    pub fn takes_turns(&self) -> bool {
        let binary = &self.path;
        let help = Shell::new().and_then(|shell| cmd!(shell, "{binary} run --help").quiet().ignore_stderr().read());
        help.is_ok_and(|help| help.contains("--turns"))
    }

    /// Asks the binary for its kernels.
    pub fn list(&self) -> Result<Kernels, KernelBinaryError> {
        let binary = &self.path;
        let path = binary.display().to_string();
        let listed = Shell::new().and_then(|shell| cmd!(shell, "{binary} list --format json").quiet().read());
        let text = listed.map_err(|source| KernelBinaryError::List {
            path: path.clone(),
            source,
        })?;
        Kernels::from_json(&text).map_err(|source| KernelBinaryError::Format { path, source })
    }
}
