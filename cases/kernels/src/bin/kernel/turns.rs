//! Turns with another process, so that the timed dispatches of two programs are neighbours in time.
//!
//! Two pipes, one byte a message. This side says over DONE that it is ready, waits for a byte from TAKE,
//! dispatches, says so again, and so on; after the last dispatch it waits once more, so that
//! its end disturbs nobody's measurement. Whoever holds the other ends decides whose turn it is.
//! Without them (a pipe that ended) everything goes on at once: no turn is worth a measurement that hangs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// The two pipes.
#[derive(Debug)]
pub(crate) struct Turns {
    take: File,
    done: File,
}

impl Turns {
    /// Opens both pipes.
    pub(crate) fn open((take, done): &(PathBuf, PathBuf)) -> io::Result<Self> {
        Ok(Self {
            take: File::open(take)?,
            done: OpenOptions::new().write(true).open(done)?,
        })
    }

    /// Says that this side is ready and waits for its turn; `false` where nobody gives turns any more.
    pub(crate) fn wait(&mut self) -> bool {
        let mut turn = [0];
        self.done.write_all(b".").is_ok() && self.take.read_exact(&mut turn).is_ok()
    }
}
