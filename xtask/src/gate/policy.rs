//! `cases/gate.toml`: thresholds, and what each policy makes of each kind of finding.

use std::collections::BTreeMap;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::Deserialize;

use super::Kind;
use crate::case_id::CaseId;
use crate::compare::{Correction, Rules};

/// What a policy makes of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The gate fails.
    Fail,
    /// It is told.
    Warn,
    /// It is not told.
    Ignore,
}

impl Action {
    /// The word for it in every verdict.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Warn => "warn",
            Self::Ignore => "ignore",
        }
    }
}

/// A named set of actions.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    actions: BTreeMap<Kind, Action>,
    overrides: Vec<Override>,
}

/// Other actions for some cases.
#[derive(Clone, Debug)]
pub struct Override {
    globs: GlobSet,
    tags: Vec<String>,
    actions: BTreeMap<Kind, Action>,
    /// Why these cases are treated otherwise.
    pub because: String,
}

/// Everything that `gate.toml` says.
#[derive(Clone, Debug)]
pub struct GateFile {
    /// Thresholds of the comparison.
    pub rules: Rules,
    /// Policies by name.
    pub policies: BTreeMap<String, Policy>,
}

/// What is wrong with a gate file.
#[derive(Debug, thiserror::Error)]
pub enum GateFileError {
    /// Not TOML, an unknown key or a wrong type; the text shows the place.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// Mistakes that the parser can't see, one per line.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
    /// A policy that the file doesn't hold.
    #[error("there is no policy `{name}`; policies are {known}")]
    NoPolicy {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileWire {
    #[serde(default)]
    rules: RulesWire,
    policy: BTreeMap<String, PolicyWire>,
}

/// Every field is optional: what the file leaves out is [`Rules::STANDARD`].
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RulesWire {
    alpha: Option<f64>,
    correction: Option<CorrectionWire>,
    confidence: Option<f64>,
    relative_floor: Option<f64>,
    absolute_floor_ns: Option<f64>,
    resolution: Option<f64>,
    plain_threshold: Option<f64>,
    suspect_threshold: Option<f64>,
    confirm_repeats: Option<usize>,
    confirm_looks: Option<usize>,
    implausible_ratio: Option<f64>,
    work_collapse: Option<f64>,
    common_mode: Option<f64>,
    ring_tolerance: Option<f64>,
    headroom: Option<f64>,
    max_age_days: Option<i64>,
    max_noise_floor: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CorrectionWire {
    Holm,
    BenjaminiHochberg,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyWire {
    /// For kinds that the policy doesn't name.
    default: Action,
    #[serde(default)]
    on: BTreeMap<String, Action>,
    #[serde(default, rename = "for")]
    overrides: Vec<OverrideWire>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverrideWire {
    #[serde(default)]
    cases: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
    on: BTreeMap<String, Action>,
    because: String,
}

impl GateFile {
    /// Parses a gate file; all mistakes are told at once.
    pub fn parse(text: &str) -> Result<Self, GateFileError> {
        let wire: FileWire = toml::from_str(text)?;
        let mut mistakes = Vec::new();
        let rules = wire.rules.into_rules(&mut mistakes);
        let policies = wire
            .policy
            .into_iter()
            .map(|(name, policy)| (name.clone(), policy.into_policy(name, &mut mistakes)))
            .collect();
        if mistakes.is_empty() {
            Ok(Self { rules, policies })
        } else {
            Err(GateFileError::Invalid(mistakes))
        }
    }

    /// The policy of that name.
    pub fn policy(&self, name: &str) -> Result<&Policy, GateFileError> {
        self.policies.get(name).ok_or_else(|| GateFileError::NoPolicy {
            name: name.into(),
            known: self.policies.keys().cloned().collect::<Vec<_>>().join(", "),
        })
    }
}

impl Policy {
    /// What is made of a finding of `kind`, for a case with its tags or for the run; the last override that fits wins.
    pub fn action(&self, kind: Kind, case: Option<(&CaseId, &[String])>) -> Action {
        if kind.always_fails() {
            return Action::Fail;
        }
        let special = case.and_then(|(case, tags)| {
            let mut fits = self.overrides.iter().rev().filter(|entry| entry.fits(case, tags));
            fits.find_map(|entry| entry.actions.get(&kind))
        });
        let action = special.or_else(|| self.actions.get(&kind));
        // `parse` gives every kind an action.
        action.copied().unwrap_or(Action::Fail)
    }
}

impl Override {
    fn fits(&self, case: &CaseId, tags: &[String]) -> bool {
        let by_name = self.globs.is_empty() || self.globs.is_match(case.as_str());
        let by_tag = self.tags.is_empty() || self.tags.iter().any(|tag| tags.contains(tag));
        by_name && by_tag
    }
}

impl RulesWire {
    fn into_rules(self, mistakes: &mut Vec<String>) -> Rules {
        let standard = Rules::STANDARD;
        let mut within = |name: &str, value: Option<f64>, fallback: f64, low: f64, high: f64| match value {
            Some(value) if !(low..=high).contains(&value) => {
                mistakes.push(format!(
                    "`rules.{name}` is {value}: it must lie between {low} and {high}"
                ));
                fallback
            }
            value => value.unwrap_or(fallback),
        };
        Rules {
            alpha: within("alpha", self.alpha, standard.alpha, 1e-6, 0.2),
            confidence: within("confidence", self.confidence, standard.confidence, 0.5, 0.9999),
            relative_floor: within("relative-floor", self.relative_floor, standard.relative_floor, 0.0, 1.0),
            absolute_floor_ns: within(
                "absolute-floor-ns",
                self.absolute_floor_ns,
                standard.absolute_floor_ns,
                0.0,
                1e9,
            ),
            resolution: within("resolution", self.resolution, standard.resolution, 0.0, 1.0),
            plain_threshold: within(
                "plain-threshold",
                self.plain_threshold,
                standard.plain_threshold,
                0.0,
                10.0,
            ),
            suspect_threshold: within(
                "suspect-threshold",
                self.suspect_threshold,
                standard.suspect_threshold,
                0.0,
                1.0,
            ),
            implausible_ratio: within(
                "implausible-ratio",
                self.implausible_ratio,
                standard.implausible_ratio,
                0.0,
                0.95,
            ),
            work_collapse: within("work-collapse", self.work_collapse, standard.work_collapse, 0.0, 1.0),
            common_mode: within("common-mode", self.common_mode, standard.common_mode, 0.0, 1.0),
            ring_tolerance: within("ring-tolerance", self.ring_tolerance, standard.ring_tolerance, 0.0, 1.0),
            headroom: within("headroom", self.headroom, standard.headroom, 1.0, 1e6),
            max_noise_floor: within(
                "max-noise-floor",
                self.max_noise_floor,
                standard.max_noise_floor,
                0.0,
                1.0,
            ),
            correction: match self.correction {
                None => standard.correction,
                Some(CorrectionWire::Holm) => Correction::Holm,
                Some(CorrectionWire::BenjaminiHochberg) => Correction::BenjaminiHochberg,
            },
            confirm_repeats: self.confirm_repeats.unwrap_or(standard.confirm_repeats).max(1),
            confirm_looks: self.confirm_looks.unwrap_or(standard.confirm_looks).clamp(1, 20),
            max_age_days: self.max_age_days.unwrap_or(standard.max_age_days),
        }
    }
}

impl PolicyWire {
    fn into_policy(self, name: String, mistakes: &mut Vec<String>) -> Policy {
        let named = kinds(&name, "on", self.on, mistakes);
        let actions = Kind::ALL.iter().map(|kind| {
            let action = named.get(kind).copied().unwrap_or(self.default);
            (*kind, action)
        });
        let actions = actions.collect();
        let overrides = self
            .overrides
            .into_iter()
            .map(|entry| {
                if entry.cases.is_empty() && entry.tags.is_empty() {
                    mistakes.push(format!("a `[[policy.{name}.for]]` names neither `cases` nor `tags`"));
                }
                if entry.because.trim().is_empty() {
                    mistakes.push(format!("a `[[policy.{name}.for]]` has an empty `because`"));
                }
                Override {
                    globs: globs(&entry.cases, mistakes),
                    actions: kinds(&name, "for.on", entry.on, mistakes),
                    tags: entry.tags,
                    because: entry.because,
                }
            })
            .collect();
        Policy {
            name,
            actions,
            overrides,
        }
    }
}

fn kinds(
    policy: &str,
    table: &str,
    actions: BTreeMap<String, Action>,
    mistakes: &mut Vec<String>,
) -> BTreeMap<Kind, Action> {
    let mut kinds = BTreeMap::new();
    for (token, action) in actions {
        match Kind::from_token(&token) {
            Some(kind) if kind.always_fails() && action != Action::Fail => mistakes.push(format!(
                "`policy.{policy}.{table}.{token}`: no policy may overlook this; leave it out"
            )),
            Some(kind) => {
                kinds.insert(kind, action);
            }
            None => {
                let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.token()).collect();
                mistakes.push(format!(
                    "`policy.{policy}.{table}` names an unknown kind `{token}`; kinds are {}",
                    known.join(", ")
                ));
            }
        }
    }
    kinds
}

fn globs(patterns: &[String], mistakes: &mut Vec<String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        match Glob::new(pattern) {
            Ok(glob) => {
                set.add(glob);
            }
            Err(error) => mistakes.push(format!("`{pattern}`: {}", error.kind())),
        }
    }
    set.build().unwrap_or_else(|error| {
        mistakes.push(error.to_string());
        GlobSet::empty()
    })
}
