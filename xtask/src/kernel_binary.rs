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
    /// Cargo failed; it has told why on stderr.
    #[error("failed to build the `kernel` binary")]
    Build(#[source] xshell::Error),
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

/// The part of Cargo's messages that names executables.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

impl KernelBinary {
    /// Builds the binary of the workspace at `root` in release mode; Cargo's progress goes to stderr.
    pub fn build(root: &Path) -> Result<Self, KernelBinaryError> {
        let shell = Shell::new().map_err(KernelBinaryError::Build)?;
        shell.change_dir(root);
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let build = cmd!(
            shell,
            "{cargo} build --quiet --release --locked --package kernels --bin kernel --message-format json-render-diagnostics"
        );
        let messages = build.quiet().read().map_err(KernelBinaryError::Build)?;
        let executable = messages.lines().find_map(|line| {
            let message: Message = serde_json::from_str(line).ok()?;
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
