//! Runs by name: an id, `latest`, or a path.

use std::io;
use std::path::{Path, PathBuf};

use super::RUNS;
use crate::format;

/// Why no run was found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is none of this name.
    #[error("no run `{name}` in `{}`{}", .runs.display(), newest(.known))]
    NoSuchRun {
        /// As typed.
        name: String,
        /// Where it was looked for.
        runs: PathBuf,
        /// The newest runs that exist.
        known: Vec<String>,
    },
    /// The directory of runs can't be read.
    #[error("failed to read `{}`", .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
}

fn newest(runs: &[String]) -> String {
    if runs.is_empty() {
        "; there are none: sweep first".into()
    } else {
        format!("; the newest are {}", runs.join(", "))
    }
}

/// The directory of the run called `name`: an id, `latest`, or a path to a run's directory.
pub fn find(results: &Path, name: &str) -> Result<PathBuf, FindError> {
    let runs = results.join(RUNS);
    // An id is the name of a directory, and not a way to somewhere else.
    let by_id = (!name.contains('/')).then(|| runs.join(name));
    let named = by_id.into_iter().chain([PathBuf::from(name)]);
    if name != "latest"
        && let Some(found) = named.into_iter().find(|path| path.join("run.json").is_file())
    {
        return Ok(found);
    }
    let mut known = newest_first(&runs)?;
    if name == "latest" && !known.is_empty() {
        return Ok(known.swap_remove(0));
    }
    let names = known.iter().take(3).filter_map(|path| path.file_name());
    Err(FindError::NoSuchRun {
        name: name.into(),
        known: names.map(|name| name.to_string_lossy().into_owned()).collect(),
        runs,
    })
}

/// The run below `results` that was started last.
pub fn latest(results: &Path) -> Result<Option<PathBuf>, FindError> {
    Ok(newest_first(&results.join(RUNS))?.into_iter().next())
}

/// Runs by the moment that they say they were started at: times of files change when they are copied, and ids only
/// tell the second, after which a commit would decide.
fn newest_first(runs: &Path) -> Result<Vec<PathBuf>, FindError> {
    let unreadable = |error| FindError::Unreadable(runs.to_owned(), error);
    let entries = match std::fs::read_dir(runs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        // What is no run, or one of a later version, is nobody's latest.
        let text = std::fs::read_to_string(path.join("run.json")).unwrap_or_default();
        if let Ok(provenance) = format::read::parse_run(&text) {
            found.push((provenance.started.parse::<jiff::Timestamp>().ok(), path));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found.into_iter().map(|(_, path)| path).collect())
}
