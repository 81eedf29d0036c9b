//! Where baselines stand on disk.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::header::{self, AcceptWire, HeaderWire};
use super::{Acceptance, Baseline, BaselineError, BaselineVersion, rows};
use crate::host_class::HostClass;

/// Which of the two references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// What was accepted last.
    Accepted,
    /// What the last release was tagged with.
    Release,
}

/// A baseline for a platform, if there is one.
#[derive(Clone, Debug)]
pub enum Found {
    /// Of this host class.
    SameClass(Baseline),
    /// Only of another class: it serves for outcomes and rings.
    OtherClass(Baseline),
    /// None at all.
    Nothing,
}

impl Found {
    /// The baseline of either class.
    pub fn into_baseline(self) -> Option<Baseline> {
        match self {
            Self::SameClass(baseline) | Self::OtherClass(baseline) => Some(baseline),
            Self::Nothing => None,
        }
    }
}

/// Which file of a baseline can't be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("failed to use `{path}`")]
pub struct StoreError {
    /// The file.
    pub path: String,
    /// Why.
    #[source]
    pub source: BaselineError,
}

fn at(path: &Path) -> impl Fn(BaselineError) -> StoreError + '_ {
    move |source| StoreError {
        path: path.display().to_string(),
        source,
    }
}

/// Name of a baseline's files without their endings.
pub fn file_stem(platform: &str, host: &HostClass, reference: Reference) -> String {
    match reference {
        Reference::Accepted => format!("{platform}.{host}"),
        Reference::Release => format!("{platform}.{host}.release"),
    }
}

/// The baseline of `platform` for hosts of class `host`, or else of another class: the one with the
/// newest acceptance, so that the choice doesn't depend on the order of a directory.
pub fn find(dir: &Path, platform: &str, host: &HostClass, reference: Reference) -> Result<Found, StoreError> {
    let own = file_stem(platform, host, reference);
    if dir.join(format!("{own}.toml")).exists() {
        return load(dir, &own).map(Found::SameClass);
    }
    let mut others = Vec::new();
    for stem in stems(dir, platform, reference)? {
        others.push(load(dir, &stem)?);
    }
    let newest = others
        .into_iter()
        .max_by_key(|baseline| baseline.latest().map(|accept| accept.accepted.clone()));
    Ok(newest.map_or(Found::Nothing, Found::OtherClass))
}

/// Stems of every baseline of `platform` in `dir`, sorted; none where the directory doesn't exist.
fn stems(dir: &Path, platform: &str, reference: Reference) -> Result<Vec<String>, StoreError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(dir)(error.into())),
    };
    let mut stems = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| at(dir)(error.into()))?.file_name();
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".toml")) else {
            continue;
        };
        let release = stem.ends_with(".release");
        let of_platform = stem.split('.').next() == Some(platform);
        if of_platform && release == (reference == Reference::Release) {
            stems.push(stem.to_owned());
        }
    }
    stems.sort();
    Ok(stems)
}

/// Reads the pair of files `stem` in `dir` and checks that they belong together.
pub fn load(dir: &Path, stem: &str) -> Result<Baseline, StoreError> {
    let path = dir.join(format!("{stem}.toml"));
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| at(path)(error.into()));
    let header = header::parse(&read(&path)?).map_err(at(&path))?;
    let host = HostClass::from_facts(&header.host);
    let reference = match header.release {
        Some(_) => Reference::Release,
        None => Reference::Accepted,
    };
    let found = file_stem(&header.platform, &host, reference);
    if found != stem {
        let expected = stem.to_owned();
        return Err(at(&path)(BaselineError::OtherName { found, expected }));
    }
    let mut baseline = Baseline {
        platform: header.platform,
        host,
        release: header.release,
        accepts: header.accepts.into_iter().map(Acceptance::from).collect(),
        rows: std::collections::BTreeMap::new(),
    };
    let path = dir.join(format!("{stem}.csv"));
    let rows = rows::parse(&read(&path)?).map_err(at(&path))?;
    for (case, row) in &rows {
        if !baseline.accepts.iter().any(|accept| accept.run_id == row.run_id) {
            return Err(at(&path)(BaselineError::UnknownAcceptance {
                case: case.to_string(),
                run_id: row.run_id.clone(),
            }));
        }
    }
    baseline.rows = rows.into_iter().collect();
    Ok(baseline)
}

/// Writes the pair of files of `baseline` into `dir`; returns their paths.
///
/// Each file is written beside its place, synced and renamed. A file that a newer minor of the format
/// wrote is not written over: what it knows would be lost.
pub fn save(dir: &Path, baseline: &Baseline) -> Result<[PathBuf; 2], StoreError> {
    std::fs::create_dir_all(dir).map_err(|error| at(dir)(error.into()))?;
    let reference = match baseline.release {
        Some(_) => Reference::Release,
        None => Reference::Accepted,
    };
    let stem = file_stem(&baseline.platform, &baseline.host, reference);
    let paths = [dir.join(format!("{stem}.toml")), dir.join(format!("{stem}.csv"))];
    if let Ok(text) = std::fs::read_to_string(&paths[0]) {
        let found = header::parse(&text).map_err(at(&paths[0]))?.version();
        if found > BaselineVersion::CURRENT {
            return Err(at(&paths[0])(BaselineError::NewerMinor { found }));
        }
    }
    let mut wire = HeaderWire::new(&baseline.platform, baseline.release.as_ref(), baseline.host.facts());
    wire.accepts = baseline.accepts.iter().map(AcceptWire::from).collect();
    let header = toml::to_string(&wire).map_err(|error| at(&paths[0])(error.into()))?;
    let header = format!("# Written by `cargo xtask baseline`; the rows stand in the .csv beside it.\n{header}");
    let rows = rows::print(baseline.rows.iter()).map_err(at(&paths[1]))?;
    // The header first: one that names an acceptance without rows is harmless, the reverse is refused.
    for (path, text) in [(&paths[0], header), (&paths[1], rows)] {
        replace(dir, path, &text).map_err(|error| at(path)(error.into()))?;
    }
    Ok(paths)
}

fn replace(dir: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    // Temporary files are private to their user; a committed file isn't.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
