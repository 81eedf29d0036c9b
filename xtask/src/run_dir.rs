//! The directory of a run while it is written: `results/runs/<run-id>/`.
//!
//! `records.jsonl` only grows: one line per attempt, written with one call as the case ends, so a
//! kill costs at most the line that it cut. `run.json` and `results.csv` are replaced as a whole.
//! Until [`RunDir::close`], `run.json` says `incomplete`. Reading back is `format`'s matter.

mod csv;
mod find;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::{File, OpenOptions};

use crate::case_id::CaseId;
use crate::format::read::{ReadError, RecordsHeader};
use crate::format::{self, RecordWire, RunWire};
use crate::record::{CaseRecord, Provenance, Run, RunStatus};
use crate::runner::AttemptPaths;

pub use find::{FindError, find, latest};

/// Where runs are kept, relative to the directory of results.
pub const RUNS: &str = "runs";

/// A run that is being written.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    provenance: Provenance,
    records: File,
}

/// Why a run can't be taken up again.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// There is no such run.
    #[error(transparent)]
    Find(#[from] FindError),
    /// It can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its files can't be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl RunDir {
    /// Creates the directory of a new run below `results` and writes that it is incomplete.
    ///
    /// The id of `provenance` gets a number behind it if the name is taken.
    pub fn create(results: &Path, mut provenance: Provenance) -> io::Result<Self> {
        let runs = results.join(RUNS);
        fs::create_dir_all(&runs)?;
        let wanted = provenance.run_id.clone();
        let mut path = runs.join(&wanted);
        // Only the one that creates the directory owns the run; two sweeps may start in the same second.
        for n in 2.. {
            match std::fs::create_dir(&path) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < 1000 => {
                    provenance.run_id = format!("{wanted}-{n}");
                    path = runs.join(&provenance.run_id);
                }
                Err(error) => return Err(error),
            }
        }
        fs::create_dir(path.join("logs"))?;
        provenance.status = RunStatus::Incomplete;
        let header = serde_json::to_string(&RecordsHeader::new(&provenance.run_id))?;
        let mut records = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path.join("records.jsonl"))?;
        records.write_all(format!("{header}\n").as_bytes())?;
        let directory = Self {
            path,
            provenance,
            records,
        };
        directory.write_run()?;
        Ok(directory)
    }

    /// Opens the run called `name` (an id, `latest`, or a path) to write what it lacks; also gives what it has.
    pub fn resume(results: &Path, name: &str) -> Result<(Self, Run), ResumeError> {
        let path = find(results, name)?;
        let run = format::read::run(&path)?;
        let file = path.join("records.jsonl");
        cut_torn_line(&file)?;
        let records = OpenOptions::new().append(true).open(&file)?;
        let mut provenance = run.provenance.clone();
        provenance.status = RunStatus::Incomplete;
        provenance.ended = None;
        let directory = Self {
            path,
            provenance,
            records,
        };
        directory.write_run()?;
        Ok((directory, run))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the run is.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Files of one attempt; none of them exists yet.
    pub fn attempt(&self, case: &CaseId, repeat: u32, attempt: u32) -> AttemptPaths {
        let stem = attempt_stem(case, repeat, attempt);
        let logs = self.path.join("logs");
        AttemptPaths {
            log: logs.join(format!("{stem}.log")),
            report: logs.join(format!("{stem}.report.jsonl")),
            scratch: self.path.join("scratch").join(&stem),
        }
    }

    /// Path of `file` as records give it: relative to the run's directory.
    pub fn relative(&self, file: &Path) -> String {
        file.strip_prefix(&self.path)
            .unwrap_or(file)
            .to_string_lossy()
            .into_owned()
    }

    /// Appends a record. It is in the file when this returns.
    pub fn append(&mut self, record: &CaseRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(&RecordWire::new(record))?;
        line.push(b'\n');
        self.records.write_all(&line)
    }

    /// From now on the run is to cover those of its planned cases that `keep` says, as its plan turned out to be too large.
    pub fn narrow(&mut self, keep: impl Fn(&CaseId) -> bool) {
        self.provenance.planned.retain(keep);
    }

    /// Writes that the run has ended, and `results.csv`. `status` is checked against the records on reading.
    pub fn close(mut self, ended: String, status: RunStatus) -> Result<Run, ResumeError> {
        self.records.sync_data()?;
        self.provenance.ended = Some(ended);
        self.provenance.status = status;
        self.write_run()?;
        // Only attempts that are over write there.
        let _ = std::fs::remove_dir_all(self.path.join("scratch"));
        let run = format::read::run(&self.path)?;
        write_whole(&self.path.join("results.csv"), &csv::table(&run)?)?;
        Ok(run)
    }

    fn write_run(&self) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(&RunWire::new(&self.provenance))?;
        text.push(b'\n');
        write_whole(&self.path.join("run.json"), &text)
    }
}

/// Longest stem that leaves room for suffixes in a file name of 255 bytes.
const STEM_LIMIT: usize = 180;

fn attempt_stem(case: &CaseId, repeat: u32, attempt: u32) -> String {
    let mut stem = case.file_stem();
    if stem.len() > STEM_LIMIT {
        let hash = blake3::hash(stem.as_bytes()).to_hex();
        let cut = (0..=STEM_LIMIT)
            .rev()
            .find(|at| stem.is_char_boundary(*at))
            .unwrap_or(0);
        stem = format!("{}-{}", &stem[..cut], &hash[..12]);
    }
    if repeat > 0 {
        stem = format!("{stem}.repeat{repeat}");
    }
    if attempt > 1 {
        stem = format!("{stem}.attempt{attempt}");
    }
    stem
}

/// Cuts what a kill left behind the last whole line, so that the next record starts a line of its own.
fn cut_torn_line(file: &Path) -> io::Result<()> {
    let bytes = fs::read(file)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < bytes.len() {
        OpenOptions::new().write(true).open(file)?.set_len(whole as u64)?;
    }
    Ok(())
}

/// Replaces `path` by a file with `content`: readers see the old file or the new one, never a part.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(directory)?;
    file.write_all(content)?;
    file.as_file().sync_data()?;
    // A temporary file is private; a result is to be read by whoever may read the directory.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests;
