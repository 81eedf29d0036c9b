//! Where report lines go: appended and flushed as things happen, so that a killed process leaves what it knew.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::wire::Event;

/// The report file, or nothing when the caller wants none.
#[derive(Debug)]
pub(crate) struct Report {
    file: Option<File>,
}

impl Report {
    /// Opens the file for appending.
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Self> {
        let file = path
            .map(|path| OpenOptions::new().create(true).append(true).open(path))
            .transpose()?;
        Ok(Self { file })
    }

    /// Appends one line.
    ///
    /// One `write` per line: an append of a whole line is never torn by a signal in between two of them.
    pub(crate) fn line(&mut self, event: &Event<'_>) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut line = serde_json::to_vec(event).map_err(io::Error::other)?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.flush()
    }
}
