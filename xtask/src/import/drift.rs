//! What a suite and its checkout no longer agree about.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

use super::program::Discovery;

/// One disagreement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drift {
    /// A program, or one mode of it, that the suite doesn't know.
    New {
        /// Path within the checkout.
        program: String,
        /// Its mode, where it has several.
        mode: Option<String>,
    },
    /// A program or mode of the suite that isn't there any more.
    Gone {
        /// Path within the checkout.
        program: String,
        /// Its mode, where it has several.
        mode: Option<String>,
    },
    /// Other markers than the suite was written for.
    Markers {
        /// Path within the checkout.
        program: String,
        /// In the suite.
        suite: Vec<String>,
        /// In the checkout.
        checkout: Vec<String>,
    },
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |markers: &[String]| match markers {
            [] => "none".to_owned(),
            markers => markers.join(", "),
        };
        let of = |mode: &Option<String>| mode.as_ref().map(|mode| format!(" --mode {mode}")).unwrap_or_default();
        match self {
            Self::New { program, mode } => write!(f, "new: {program}{}", of(mode)),
            Self::Gone { program, mode } => write!(f, "gone: {program}{}", of(mode)),
            Self::Markers {
                program,
                suite,
                checkout,
            } => write!(
                f,
                "markers of {program}: {} in the suite, {} in the checkout",
                list(suite),
                list(checkout)
            ),
        }
    }
}

/// The suite can't be read for a comparison.
#[derive(Debug, thiserror::Error)]
#[error("the suite can't be read")]
pub struct DriftError(#[from] toml::de::Error);

// Only what is compared: whether the rest of the suite is right is told where suites are loaded.
#[derive(Deserialize)]
struct SuiteWire {
    #[serde(default, rename = "case")]
    cases: Vec<CaseWire>,
}

#[derive(Deserialize)]
struct CaseWire {
    pypto: Option<PyptoWire>,
}

#[derive(Deserialize)]
struct PyptoWire {
    program: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    markers: Vec<String>,
}

/// Compares the suite `text` with what stands in `directory` of the checkout.
pub fn drift(text: &str, directory: &str, found: &Discovery) -> Result<Vec<Drift>, DriftError> {
    let suite: SuiteWire = toml::from_str(text)?;
    let mut declared: BTreeMap<(String, Option<String>), Vec<String>> = BTreeMap::new();
    for pypto in suite.cases.into_iter().filter_map(|case| case.pypto) {
        let mode = pypto.args.iter().skip_while(|arg| *arg != "--mode").nth(1).cloned();
        let mut markers = pypto.markers;
        markers.sort();
        declared.insert((pypto.program, mode), markers);
    }
    let mut drifts = BTreeSet::new();
    let mut present = BTreeSet::new();
    for program in &found.programs {
        let path = format!("{directory}/{}.py", program.name);
        let modes: Vec<Option<String>> = match program.modes.as_slice() {
            [] => vec![None],
            modes => modes.iter().cloned().map(Some).collect(),
        };
        for mode in modes {
            let key = (path.clone(), mode);
            match declared.get(&key) {
                None => {
                    let (program, mode) = key.clone();
                    drifts.insert(Drift::New { program, mode });
                }
                Some(markers) if *markers != program.markers => {
                    drifts.insert(Drift::Markers {
                        program: path.clone(),
                        suite: markers.clone(),
                        checkout: program.markers.clone(),
                    });
                }
                Some(_) => {}
            }
            present.insert(key);
        }
    }
    for (program, mode) in declared.into_keys().filter(|key| !present.contains(key)) {
        drifts.insert(Drift::Gone { program, mode });
    }
    Ok(drifts.into_iter().collect())
}
