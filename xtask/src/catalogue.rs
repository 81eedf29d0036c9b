//! Everything that the files under `cases/` declare, read and checked together.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use crate::{
    classify,
    diagnostic::{Problem, Problems, Source},
    kernels::Kernels,
    platform::{self, Platforms},
    suite::file::Suite,
};

mod check;
mod hash;

pub(crate) use check::{has_runner, runner};
pub use hash::matrix_hash;

/// Files under `cases/` that are no suites.
const NOT_SUITES: [&str; 2] = [PLATFORMS, "gate.toml"];
const PLATFORMS: &str = "platforms.toml";

/// All platforms and suites, without mistakes.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Platforms by name.
    pub platforms: Platforms,
    /// Suites by name.
    pub suites: Vec<Suite>,
}

/// Why there is no catalogue.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Mistakes in the files, all of them.
    #[error(transparent)]
    Problems(#[from] Problems),
    /// A file or the directory can't be read.
    #[error("failed to read the suites")]
    Io(#[from] std::io::Error),
    /// There is nothing to read.
    #[error("no suite under `{0}`")]
    Empty(String),
}

impl Catalogue {
    /// Reads every `*.toml` of `cases`. `kernels` is asked only when some case can run on the embedded runner.
    pub fn load(cases: &Path, kernels: impl FnOnce() -> Kernels) -> Result<Self, LoadError> {
        let mut files = Vec::new();
        for entry in fs_err::read_dir(cases)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                files.push(path);
            }
        }
        files.sort();
        let mut sources = Vec::new();
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let shown = Path::new(cases.file_name().unwrap_or_default()).join(&name);
            sources.push((
                name,
                Source::new(shown.to_string_lossy(), fs_err::read_to_string(&path)?),
            ));
        }
        let (catalogue, mut problems) = Self::read(&sources);
        if catalogue.suites.is_empty() && problems.is_empty() {
            return Err(LoadError::Empty(cases.display().to_string()));
        }
        let names = rule_sets(cases)?;
        // A matrix names the same rules at every point; they are read once.
        let loaded: BTreeMap<_, _> = catalogue
            .rules()
            .map(|name| {
                (
                    name,
                    classify::load(name, cases).map(drop).map_err(|error| error.to_string()),
                )
            })
            .collect();
        problems.extend(check::rules(&catalogue, &names, |name| loaded[name].clone()));
        if catalogue.has_embedded_cases() {
            problems.extend(check::kernels(&catalogue, &kernels()));
        }
        Problems::check(problems)?;
        Ok(catalogue)
    }

    /// Reads files that are given by name and text; kernels are not checked.
    pub fn read(files: &[(String, Arc<Source>)]) -> (Self, Vec<Problem>) {
        let platforms = files
            .iter()
            .find(|(name, _)| name == PLATFORMS)
            .map(|(_, source)| source);
        let (platforms, mut problems) = platform::load(platforms);
        // Suites with parts that could not be read: what seems to be missing from them may be among those parts.
        let mut unclear = BTreeSet::new();
        let mut suites = Vec::new();
        for (name, source) in files.iter().filter(|(name, _)| !NOT_SUITES.contains(&name.as_str())) {
            let (suite, mistakes) = Suite::read(name.trim_end_matches(".toml"), source);
            if !mistakes.is_empty() {
                unclear.insert(suite.name.clone());
            }
            suites.push(suite);
            problems.extend(mistakes);
        }
        suites.sort_by(|a, b| a.name.cmp(&b.name));
        let catalogue = Self { platforms, suites };
        problems.extend(check::suites(&catalogue, &unclear));
        (catalogue, problems)
    }

    /// The mistakes of suites against what the binary says of its kernels.
    pub fn check_kernels(&self, kernels: &Kernels) -> Vec<Problem> {
        check::kernels(self, kernels)
    }

    /// The suite called `name`.
    pub fn suite(&self, name: &str) -> Option<&Suite> {
        self.suites.iter().find(|suite| suite.name == name)
    }

    /// The classification rules that commands name, each once.
    fn rules(&self) -> impl Iterator<Item = &str> {
        let layers = self.suites.iter().flat_map(|suite| {
            let cases = suite.cases.iter().flat_map(|case| case.tier.layers());
            cases.chain(suite.defaults.layers())
        });
        let names = layers.filter_map(|layer| layer.command.as_ref()?.value.rules.as_deref());
        names.collect::<BTreeSet<_>>().into_iter()
    }

    /// True when some case names a kernel for some platform.
    fn has_embedded_cases(&self) -> bool {
        self.suites.iter().any(|suite| {
            let layers = suite.cases.iter().flat_map(|case| case.tier.layers());
            !suite.cases.is_empty()
                && suite
                    .defaults
                    .layers()
                    .chain(layers)
                    .any(|layer| layer.kernel.is_some())
        })
    }
}

/// The rule sets that can be named: built in, or a file in the directory `rules`.
fn rule_sets(cases: &Path) -> Result<Vec<String>, std::io::Error> {
    let mut names: Vec<_> = classify::BUILTIN_NAMES.map(str::to_owned).into();
    let directory = cases.join("rules");
    if directory.is_dir() {
        for entry in fs_err::read_dir(directory)? {
            let path = entry?.path();
            let stem = path
                .file_stem()
                .filter(|_| path.extension().is_some_and(|extension| extension == "toml"));
            names.extend(stem.map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}
