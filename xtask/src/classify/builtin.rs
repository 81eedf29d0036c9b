//! Rule sets by name: the built-in ones, those of the suites' directory, and files.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::rule::RuleSet;
use super::rule_file::{Parts, RuleFileError, build, parse, parse_parts};

const SIMPLER: &str = include_str!("rules/simpler.toml");
const PYPTO: &str = include_str!("rules/pypto.toml");

/// Names of the built-in rule sets. `pypto` extends `simpler`.
pub const BUILTIN_NAMES: [&str; 2] = ["simpler", "pypto"];

struct Builtin {
    parts: Parts,
    rules: RuleSet,
}

impl Builtin {
    fn read(name: &str, text: &str, base: &dyn Fn(&str) -> Option<Parts>) -> Self {
        let parts = parse_parts(text, base).expect("built-in rules are valid: a test reads them");
        let rules = build(name, parts.clone(), text).expect("built-in rules are small enough");
        Self { parts, rules }
    }
}

static SIMPLER_SET: LazyLock<Builtin> = LazyLock::new(|| Builtin::read("simpler", SIMPLER, &|_| None));
static PYPTO_SET: LazyLock<Builtin> = LazyLock::new(|| {
    Builtin::read("pypto", PYPTO, &|base| {
        (base == "simpler").then(|| SIMPLER_SET.parts.clone())
    })
});

fn builtin(name: &str) -> Option<&'static Builtin> {
    match name {
        "simpler" => Some(&SIMPLER_SET),
        "pypto" => Some(&PYPTO_SET),
        _ => None,
    }
}

pub(super) fn parts(name: &str) -> Option<Parts> {
    builtin(name).map(|builtin| builtin.parts.clone())
}

/// Why a rule set can't be had.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Neither built in nor a file.
    #[error("unknown rule set `{name}`; built in are {}, others stand in `{}`", BUILTIN_NAMES.join(", "), directory.display())]
    Unknown {
        /// As named.
        name: String,
        /// Where files are looked for.
        directory: PathBuf,
    },
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file has mistakes.
    #[error("invalid rules in `{}`", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Its text, for the places of the mistakes.
        text: String,
        /// The mistakes.
        #[source]
        source: RuleFileError,
    },
}

/// The rule set `name`: a built-in one, `NAME.toml` in the directory `rules` under `cases`, or the path of a TOML file.
pub fn load(name: &str, cases: &Path) -> Result<RuleSet, LoadError> {
    if let Some(builtin) = builtin(name) {
        return Ok(builtin.rules.clone());
    }
    let directory = cases.join("rules");
    let in_directory = directory.join(format!("{name}.toml"));
    let path = if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
        PathBuf::from(name)
    } else if in_directory.is_file() {
        in_directory
    } else {
        return Err(LoadError::Unknown {
            name: name.into(),
            directory,
        });
    };
    let text = fs_err::read_to_string(&path)?;
    parse(name, &text).map_err(|source| LoadError::Invalid { path, text, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::Class;

    #[test]
    fn every_built_in_rule_on_lines_has_an_example_that_it_matches() {
        for name in BUILTIN_NAMES {
            let rules = &builtin(name).unwrap().rules;
            for rule in rules.rules().iter().filter(|rule| rule.pattern.is_some()) {
                assert!(rule.example().is_some(), "{} has no example", rule.name);
            }
        }
    }

    #[test]
    fn an_example_alone_gives_the_outcome_of_its_rule() {
        let rules = &builtin("pypto").unwrap().rules;
        for rule in rules.rules() {
            let Some(example) = rule.example() else { continue };
            if !rule.class.is_failure()
                || !rule.when.is_empty()
                || !rule.exits.is_empty()
                || rule.class >= Class::Failed
            {
                continue;
            }
            let found = rules.classify(example.as_bytes(), &crate::classify::Context::default());
            assert_eq!(found.rule.as_deref(), Some(rule.name.as_str()), "{example}: {found:?}");
        }
    }
}
