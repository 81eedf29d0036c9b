//! What changed: every case of a run against a reference (a baseline, or another run).
//!
//! The comparison is per case and never by counts. It decides nothing about passing: that is `gate`'s
//! matter, and how it looks is `report`'s. What can't be compared is said to be so, with the reason;
//! nothing here turns the absence of a comparison into the absence of a change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::baseline::{Baseline, Row};
use crate::case_id::CaseId;
use crate::host_class::{FactDifference, HostClass};
use crate::outcome::Outcome;
use crate::record::{Run, RunStatus};

mod common_mode;
mod confirm;
mod fresh;
mod latency;
mod outcome_change;
mod rings;
mod rules;
mod severity;
mod summary;

pub use common_mode::CommonMode;
pub use confirm::{Confirmation, Environment, PROBES, Suspect, common_ratio, confirm, probes, slack, suspects};
pub use fresh::{Fresh, Remeasured, judge_fresh};
pub use latency::{Design, Direction, Effect, LatencyVerdict, Reading, Undecided, Unlikely, judge_medians};
pub use outcome_change::OutcomeChange;
pub use rings::{RingFinding, RingResource};
pub use rules::{Correction, Rules};
pub use severity::Severity;
pub use summary::{CaseSummary, LatencySummary, RingPeak, summarise};

/// What a comparison needs besides its two sides.
#[derive(Clone, Debug)]
pub struct Context {
    /// Thresholds and levels.
    pub rules: Rules,
    /// Cases that were renamed: old id, new id.
    pub renamed: Vec<(CaseId, CaseId)>,
    /// Suites that are swept only when they are named: where a run plans none of their cases, it didn't
    /// mean to, and they aren't missing.
    pub by_name: BTreeSet<String>,
    /// Today, for the age of the baseline.
    pub today: jiff::civil::Date,
}

impl Context {
    /// The given rules, no renames, every suite expected, today.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            renamed: Vec::new(),
            by_name: BTreeSet::new(),
            today: crate::wall_clock::today(),
        }
    }
}

/// A run against a reference.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Whether there was anything to compare.
    pub standing: Standing,
    /// The reference's side.
    pub base: Party,
    /// The run's side.
    pub now: Party,
    /// One entry per case of either side that the run was to cover, worst first, then by id.
    pub cases: Vec<CaseDiff>,
    /// Cases of the reference that the run's selection or shard left out.
    pub not_selected: usize,
    /// Facts of the host that differ; latencies are then not compared.
    pub host_differences: Vec<FactDifference>,
    /// Whether all cases moved together.
    pub common_mode: Option<CommonMode>,
    /// What of that was the machine, where enough cases were measured again to tell.
    pub environment: Option<Environment>,
    /// How many latency tests were corrected for together.
    pub family: usize,
    /// Cases whose reference is of another commit than the one that `base` names: their rows were accepted earlier.
    pub earlier: BTreeSet<CaseId>,
    /// Age of the reference in days, where it is known.
    pub age_days: Option<i64>,
    /// What should be known and is no change of a case.
    pub notes: Vec<String>,
    /// The thresholds that were used.
    pub rules: Rules,
}

/// One side of a comparison, as reports name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// `baseline host.<class>`, `run <id>`, …
    pub label: String,
    /// Platform.
    pub platform: String,
    /// Host class.
    pub host_class: String,
    /// Commit, where known.
    pub commit: Option<String>,
    /// Matrix hash, where known.
    pub matrix_hash: Option<String>,
}

/// Whether the two sides can be held against each other at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Cases were compared: so many have a reference.
    Compared(usize),
    /// The run holds no record.
    EmptyRun,
    /// There is no reference for this platform.
    NoBaseline,
    /// Both sides have cases, none has the same id: names changed, or it is some other sweep.
    NothingInCommon,
    /// The sides are for different platforms.
    OtherPlatform,
    /// The two sides are the same run.
    SameRun,
}

impl Standing {
    /// The word for it in every report.
    pub const fn token(&self) -> &'static str {
        match self {
            Self::Compared(_) => "compared",
            Self::EmptyRun => "empty-run",
            Self::NoBaseline => "no-baseline",
            Self::NothingInCommon => "nothing-in-common",
            Self::OtherPlatform => "other-platform",
            Self::SameRun => "same-run",
        }
    }
}

/// One case.
#[derive(Clone, Debug)]
pub struct CaseDiff {
    /// The case, by its name in the run.
    pub case: CaseId,
    /// Its name in the reference, where it was renamed.
    pub renamed_from: Option<CaseId>,
    /// What the reference holds; `None` for a new case.
    pub base: Option<Arc<CaseSummary>>,
    /// What the run holds; `None` for a case without a record.
    pub now: Option<Arc<CaseSummary>>,
    /// The outcome against the reference's.
    pub change: OutcomeChange,
    /// The latency against the reference's.
    pub latency: LatencyVerdict,
    /// Share by which the case moves by itself, as the reference learnt it.
    pub noise_floor: Option<f64>,
    /// How a suspect fared when it was measured again.
    pub confirmation: Option<Confirmation>,
    /// Ring occupancy against the reference's and against capacity.
    pub rings: Vec<RingFinding>,
}

impl CaseDiff {
    /// The outcome of the run; `missing` without a record.
    pub fn outcome(&self) -> Outcome {
        self.now.as_ref().map_or(Outcome::Missing, |now| now.outcome.clone())
    }

    /// How bad it is, for sorting.
    pub fn severity(&self) -> Severity {
        Severity::of(self)
    }

    /// Tags of the case, from the run or else the reference.
    pub fn tags(&self) -> &[String] {
        let side = self.now.as_deref().or(self.base.as_deref());
        side.map_or(&[], |side| side.tags.as_slice())
    }
}

/// Compares a run with the accepted (or released) baseline.
pub fn against_baseline(run: &Run, baseline: &Baseline, context: &Context) -> Comparison {
    let base = Party {
        label: baseline.label(),
        platform: baseline.platform.clone(),
        host_class: baseline.host.to_string(),
        commit: baseline.latest().and_then(|accept| accept.commit.clone()),
        matrix_hash: baseline.latest().map(|accept| accept.matrix_hash.clone()),
    };
    let mut comparison = compare(run, &baseline.rows, base, &baseline.host, context);
    let latest = baseline.latest().map(|accept| accept.run_id.as_str());
    let of_latest = |diff: &&CaseDiff| {
        let name = diff.renamed_from.as_ref().unwrap_or(&diff.case);
        let row = baseline.rows.get(name);
        row.is_none_or(|row| Some(row.run_id.as_str()) == latest)
    };
    let earlier = comparison.cases.iter().filter(|diff| !of_latest(diff));
    comparison.earlier = earlier.map(|diff| diff.case.clone()).collect();
    comparison.age_days = baseline.latest().and_then(|accept| accept.age_days(context.today));
    comparison
}

/// Compares a run with another one.
pub fn against_run(run: &Run, base: &Run, context: &Context) -> Comparison {
    let party = party_of(base);
    let host = HostClass::from_facts(&base.provenance.host);
    let rows: BTreeMap<CaseId, Row> = summarise(base)
        .into_iter()
        .map(|(case, summary)| (case, Row::fresh(summary, &base.provenance.run_id)))
        .collect();
    let mut comparison = compare(run, &rows, party, &host, context);
    if run.provenance.run_id == base.provenance.run_id {
        comparison.standing = Standing::SameRun;
    }
    if base.provenance.status == RunStatus::Incomplete {
        comparison
            .notes
            .push(format!("the reference `{}` is incomplete", base.provenance.run_id));
    }
    comparison
}

/// A run for whose platform there is no reference at all: every case is new.
pub fn without_reference(run: &Run, context: &Context) -> Comparison {
    let party = Party {
        label: "no baseline".into(),
        ..party_of(run)
    };
    let host = HostClass::from_facts(&run.provenance.host);
    let mut comparison = compare(run, &BTreeMap::new(), party, &host, context);
    if comparison.standing != Standing::EmptyRun {
        comparison.standing = Standing::NoBaseline;
    }
    comparison
}

fn party_of(run: &Run) -> Party {
    Party {
        label: format!("run {}", run.provenance.run_id),
        platform: run.provenance.platform.clone(),
        host_class: HostClass::from_facts(&run.provenance.host).to_string(),
        commit: run.provenance.git_commit.clone(),
        matrix_hash: Some(run.provenance.matrix_hash.clone()),
    }
}

fn compare(
    run: &Run,
    rows: &BTreeMap<CaseId, Row>,
    base: Party,
    base_host: &HostClass,
    context: &Context,
) -> Comparison {
    let now = party_of(run);
    let host_differences = base_host.differences(&HostClass::from_facts(&run.provenance.host));
    let covers_all = run.covers_whole_matrix();
    let suites: BTreeSet<&str> = run.provenance.planned.iter().map(CaseId::suite).collect();
    let (mut cases, left) = paired(run, rows, context);
    let shared = cases
        .iter()
        .filter(|side| side.row.is_some() && side.now.is_some())
        .count();
    let mut not_selected = 0;
    for (case, row) in left {
        let meant = !context.by_name.contains(case.suite()) || suites.contains(case.suite());
        if covers_all && meant {
            cases.push(Pair {
                case: case.clone(),
                renamed_from: None,
                row: Some(row),
                now: None,
            });
        } else {
            not_selected += 1;
        }
    }

    let same_platform = base.platform == now.platform;
    let incomparable = (!same_platform || !host_differences.is_empty()).then(|| host_differences.clone());
    let pairs: Vec<_> = cases.iter().map(|pair| (pair.row, pair.now.as_deref())).collect();
    let judged = latency::judge_all(&pairs, incomparable.as_deref(), &context.rules);
    let mut cases: Vec<CaseDiff> = cases
        .into_iter()
        .zip(judged.verdicts)
        .map(|(pair, latency)| pair.diff(latency, &context.rules))
        .collect();
    cases.sort_by_cached_key(|diff| (diff.severity(), diff.case.clone()));

    let standing = if run.records.is_empty() {
        Standing::EmptyRun
    } else if !same_platform {
        Standing::OtherPlatform
    } else if shared == 0 {
        Standing::NothingInCommon
    } else {
        Standing::Compared(shared)
    };
    let common_mode = common_mode::detect(&cases, &context.rules);
    Comparison {
        standing,
        base,
        now,
        cases,
        not_selected,
        host_differences,
        common_mode,
        environment: None,
        family: judged.family,
        earlier: BTreeSet::new(),
        age_days: None,
        notes: Vec::new(),
        rules: context.rules.clone(),
    }
}

/// A case with its reference, before it is judged.
struct Pair<'a> {
    case: CaseId,
    renamed_from: Option<CaseId>,
    row: Option<&'a Row>,
    now: Option<Arc<CaseSummary>>,
}

/// Every case that the run recorded or planned, each with the reference row of its own name, or of the
/// name that it is declared to have had; and the rows that no case took.
///
/// All three sides are sorted by case, so one walk finds what belongs together.
fn paired<'a>(
    run: &Run,
    rows: &'a BTreeMap<CaseId, Row>,
    context: &Context,
) -> (Vec<Pair<'a>>, Vec<(&'a CaseId, &'a Row)>) {
    let summaries = summarise(run);
    let mut names: Vec<CaseId> = summaries.keys().cloned().collect();
    names.extend(run.provenance.planned.iter().cloned());
    names.sort();
    names.dedup();
    let former: BTreeMap<&CaseId, &CaseId> = context.renamed.iter().map(|(from, to)| (to, from)).collect();
    let mut summaries = summaries.into_iter().peekable();
    let mut all = rows.iter().peekable();
    let mut left = Vec::new();
    let mut renamed = BTreeSet::new();
    let mut cases = Vec::with_capacity(names.len());
    for case in names {
        while let Some(passed) = all.next_if(|(name, _)| **name < case) {
            left.push(passed);
        }
        let own = all.next_if(|(name, _)| **name == case).map(|(_, row)| row);
        let before = former.get(&case).filter(|_| own.is_none()).copied();
        let before = before.and_then(|from| Some((from, rows.get(from)?)));
        renamed.extend(before.map(|(from, _)| from));
        let now = summaries.next_if(|(name, _)| *name == case).map(|(_, summary)| summary);
        cases.push(Pair {
            case,
            renamed_from: before.map(|(from, _)| from.clone()),
            row: own.or(before.map(|(_, row)| row)),
            now,
        });
    }
    left.extend(all);
    left.retain(|(case, _)| !renamed.contains(case));
    (cases, left)
}

impl Pair<'_> {
    fn diff(self, latency: LatencyVerdict, rules: &Rules) -> CaseDiff {
        let base = self.row.map(|row| Arc::clone(&row.summary));
        CaseDiff {
            change: OutcomeChange::of(base.as_deref(), self.now.as_deref()),
            rings: rings::findings(base.as_deref(), self.now.as_deref(), rules),
            case: self.case,
            renamed_from: self.renamed_from,
            base,
            now: self.now,
            latency,
            noise_floor: self.row.and_then(|row| row.noise_floor),
            confirmation: None,
        }
    }
}

impl Run {
    /// True for a run of everything that is declared: no filter, no shard.
    pub fn covers_whole_matrix(&self) -> bool {
        let provenance = &self.provenance;
        provenance.deselected == 0 && provenance.selection.is_empty() && provenance.shard.is_none()
    }
}
