//! Parameters of kernels: declared with defaults, ranges and help; resolved once, before anything is made.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;

/// Why a kernel can't be set up.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetupError {
    /// The kernel has no such parameter.
    #[error("`{kernel}` has no parameter `{name}`; it has {valid}")]
    UnknownParam {
        /// Kernel asked for.
        kernel: &'static str,
        /// Parameter given.
        name: String,
        /// The parameters that it has.
        valid: String,
    },
    /// The value is not one that the parameter takes.
    #[error("parameter `{name}` of `{kernel}` can't be `{value}`; it takes {valid}")]
    BadValue {
        /// Kernel asked for.
        kernel: &'static str,
        /// Parameter given.
        name: &'static str,
        /// Value given.
        value: String,
        /// What the parameter takes.
        valid: String,
    },
    /// A parameter was given twice.
    #[error("parameter `{name}` of `{kernel}` is given twice")]
    Repeated {
        /// Kernel asked for.
        kernel: &'static str,
        /// Parameter given.
        name: &'static str,
    },
    /// No kernel of this name.
    #[error("there is no kernel `{name}`; there are {valid}")]
    UnknownKernel {
        /// Name given.
        name: String,
        /// All kernels.
        valid: String,
    },
    /// The kernel's ranks can't get along with so few cores.
    #[error("`{kernel}` needs at least {least} worker cores per rank, not {cores}: a wait for a peer holds one")]
    TooFewCores {
        /// Kernel asked for.
        kernel: &'static str,
        /// What it needs.
        least: NonZeroUsize,
        /// What was given.
        cores: NonZeroUsize,
    },
    /// Parameters that are each valid but not together.
    #[error("parameters of `{kernel}` don't fit together: {reason}")]
    Contradiction {
        /// Kernel asked for.
        kernel: &'static str,
        /// What does not fit.
        reason: String,
    },
}

/// The values that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// One of these words (numbers among them, like compress ratios).
    Choice {
        /// The words, the default first.
        choices: &'static [&'static str],
    },
    /// An integer in `min..=max`.
    Int {
        /// Least value.
        min: i64,
        /// Greatest value.
        max: i64,
        /// Value when none is given.
        default: i64,
    },
    /// A tolerance that a case may override, in `min..=max`.
    Tolerance {
        /// Least value.
        min: f64,
        /// Greatest value.
        max: f64,
        /// The spec's value.
        default: f64,
    },
}

/// Declaration of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamSpec {
    /// Name on the command line and in suites.
    pub name: &'static str,
    /// What it takes.
    pub kind: ParamKind,
    /// One sentence.
    pub help: &'static str,
}

impl ParamSpec {
    /// A choice; the first is the default.
    pub const fn choice(name: &'static str, choices: &'static [&'static str], help: &'static str) -> Self {
        Self {
            name,
            kind: ParamKind::Choice { choices },
            help,
        }
    }

    /// An integer.
    pub const fn int(name: &'static str, min: i64, max: i64, default: i64, help: &'static str) -> Self {
        Self {
            name,
            kind: ParamKind::Int { min, max, default },
            help,
        }
    }

    /// A tolerance.
    pub const fn tolerance(name: &'static str, min: f64, max: f64, default: f64, help: &'static str) -> Self {
        Self {
            name,
            kind: ParamKind::Tolerance { min, max, default },
            help,
        }
    }

    /// The default as it would be typed.
    pub fn default_text(&self) -> String {
        self.kind.default_value().to_string()
    }

    /// What it takes, for people.
    pub fn valid(&self) -> String {
        match self.kind {
            ParamKind::Choice { choices } => choices.join(", "),
            ParamKind::Int { min, max, .. } => format!("an integer in {min}..={max}"),
            ParamKind::Tolerance { min, max, .. } => format!("a number in {min}..={max}"),
        }
    }
}

impl ParamKind {
    fn default_value(self) -> Value {
        match self {
            Self::Choice { choices } => Value::Word(choices[0]),
            Self::Int { default, .. } => Value::Int(default),
            Self::Tolerance { default, .. } => Value::Real(default),
        }
    }

    fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Choice { choices } => choices.iter().find(|c| **c == text).map(|c| Value::Word(c)),
            Self::Int { min, max, .. } => text.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Int),
            Self::Tolerance { min, max, .. } => text.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Real),
        }
    }
}

/// A resolved value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of a choice.
    Word(&'static str),
    /// Of an integer.
    Int(i64),
    /// Of a tolerance.
    Real(f64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Int(value) => write!(f, "{value}"),
            Self::Real(value) => write!(f, "{value}"),
        }
    }
}

/// Resolved parameters of one kernel: every declared one has a valid value.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    values: BTreeMap<&'static str, Value>,
}

impl Params {
    /// Applies `given` (name, value) pairs over the defaults of `specs`.
    pub fn resolve<N: AsRef<str>, V: AsRef<str>>(
        kernel: &'static str,
        specs: &'static [ParamSpec],
        given: &[(N, V)],
    ) -> Result<Self, SetupError> {
        let mut values: BTreeMap<_, _> = specs.iter().map(|s| (s.name, s.kind.default_value())).collect();
        let mut seen = Vec::new();
        for (name, text) in given {
            let (name, text) = (name.as_ref(), text.as_ref());
            let spec = specs
                .iter()
                .find(|s| s.name == name)
                .ok_or_else(|| SetupError::UnknownParam {
                    kernel,
                    name: name.to_owned(),
                    valid: if specs.is_empty() {
                        "none".to_owned()
                    } else {
                        specs
                            .iter()
                            .map(|s| format!("`{}`", s.name))
                            .collect::<Vec<_>>()
                            .join(", ")
                    },
                })?;
            if seen.contains(&spec.name) {
                return Err(SetupError::Repeated {
                    kernel,
                    name: spec.name,
                });
            }
            seen.push(spec.name);
            let value = spec.kind.parse(text).ok_or_else(|| SetupError::BadValue {
                kernel,
                name: spec.name,
                value: text.to_owned(),
                valid: spec.valid(),
            })?;
            values.insert(spec.name, value);
        }
        Ok(Self { values })
    }

    fn get(&self, name: &str) -> Value {
        *self
            .values
            .get(name)
            .unwrap_or_else(|| panic!("kernels read declared parameters only, not `{name}`"))
    }

    /// Value of an integer parameter, or of a choice of numbers.
    pub fn int(&self, name: &str) -> i64 {
        match self.get(name) {
            Value::Int(value) => value,
            Value::Word(word) => word
                .parse()
                .unwrap_or_else(|_| panic!("`{name}` is a choice of words, not numbers")),
            Value::Real(_) => panic!("`{name}` is a tolerance, not an integer"),
        }
    }

    /// Value of an integer parameter whose least value is not negative.
    pub fn count(&self, name: &str) -> usize {
        usize::try_from(self.int(name)).expect("the parameter's range has no negative values")
    }

    /// Value of a choice.
    pub fn word(&self, name: &str) -> &'static str {
        match self.get(name) {
            Value::Word(word) => word,
            other => panic!("`{name}` is {other}, not a choice"),
        }
    }

    /// Value of a tolerance.
    pub fn tolerance(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Real(value) => value,
            other => panic!("`{name}` is {other}, not a tolerance"),
        }
    }

    /// All values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value)> + '_ {
        self.values.iter().map(|(name, value)| (*name, *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[ParamSpec] = &[
        ParamSpec::choice("mode", &["prefill", "decode"], "Which shape."),
        ParamSpec::int("n", 1, 128, 128, "How many."),
        ParamSpec::tolerance("pct", 0.0, 0.1, 0.005, "Share of outliers."),
    ];

    fn resolve(given: &[(&str, &str)]) -> Result<Params, SetupError> {
        Params::resolve("k", SPECS, given)
    }

    #[test]
    fn defaults_apply_where_nothing_is_given() {
        let p = resolve(&[("n", "7")]).unwrap();
        assert_eq!((p.word("mode"), p.int("n"), p.tolerance("pct")), ("prefill", 7, 0.005));
        assert_eq!(
            p.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>(),
            ["mode=prefill", "n=7", "pct=0.005"]
        );
    }

    #[test]
    fn errors_name_what_is_valid() {
        let text = |given: &[(&str, &str)]| resolve(given).unwrap_err().to_string();
        assert_eq!(
            text(&[("m", "1")]),
            "`k` has no parameter `m`; it has `mode`, `n`, `pct`"
        );
        assert_eq!(
            text(&[("mode", "x")]),
            "parameter `mode` of `k` can't be `x`; it takes prefill, decode"
        );
        for bad in ["0", "129", "1.5", "", "ten", " 7"] {
            assert!(text(&[("n", bad)]).contains("1..=128"), "{bad}");
        }
        for bad in ["NaN", "-0.1", "0.2", "inf"] {
            assert!(text(&[("pct", bad)]).contains("0..=0.1"), "{bad}");
        }
        assert!(text(&[("n", "1"), ("n", "1")]).contains("twice"));
    }
}
