//! Accepting a run: what moves, and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use globset::GlobSet;

use super::{Acceptance, Baseline, Row, learnt_floor};
use crate::case_id::CaseId;
use crate::compare::{self, CaseSummary, OutcomeChange};
use crate::host_class::HostClass;
use crate::outcome::OutcomeKind;
use crate::record::{Run, RunStatus};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Accept these cases only; `None` for all of the run.
    pub selection: Option<GlobSet>,
    /// The selection as typed.
    pub typed: Vec<String>,
    /// Why what would be refused is accepted.
    pub because: Option<String>,
    /// Cases that were renamed: old id, new id.
    pub renamed: Vec<(CaseId, CaseId)>,
    /// Now, RFC 3339 UTC.
    pub accepted: String,
}

/// Why a run is not accepted without a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing in the run, or nothing of the selection: no reason helps.
    Nothing,
    /// Not every planned case has a record; so many lack one.
    Incomplete(usize),
    /// A filtered run would stand for the whole matrix.
    Filtered(Vec<String>),
    /// One shard would stand for the whole matrix.
    Shard(u32, u32),
    /// The run's tree had uncommitted changes, or no commit at all.
    Dirty,
    /// The command line changed what cases mean.
    Overridden(Vec<String>),
    /// Outcomes would get worse, or worse outcomes would enter.
    Worse(Vec<CaseId>),
    /// The run is of another platform or host class than the baseline: no reason helps.
    OtherClass(String),
}

impl Refusal {
    /// True where `--because` overrules it.
    pub const fn can_be_overruled(&self) -> bool {
        match self {
            Self::Nothing | Self::OtherClass(_) => false,
            Self::Incomplete(_)
            | Self::Filtered(_)
            | Self::Shard(..)
            | Self::Dirty
            | Self::Overridden(_)
            | Self::Worse(_) => true,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("there is nothing to accept: no case of the run is selected"),
            Self::Incomplete(missing) => write!(f, "the run is incomplete: {missing} planned cases have no record"),
            Self::Filtered(selection) => write!(
                f,
                "the run was filtered (`{}`): name the cases to accept with `--only`",
                selection.join(" ")
            ),
            Self::Shard(index, count) => write!(f, "the run is shard {index} of {count}: merge the shards first"),
            Self::Dirty => f.write_str("the run's source is not a clean commit: nobody could measure it again"),
            Self::Overridden(names) => write!(f, "the command line changed what cases mean: {}", names.join(", ")),
            Self::Worse(cases) => {
                let shown: Vec<&str> = cases.iter().take(5).map(CaseId::as_str).collect();
                write!(f, "{} outcomes would get worse: {}", cases.len(), shown.join(", "))
            }
            Self::OtherClass(facts) => write!(f, "the run is from another platform or host class: {facts}"),
        }
    }
}

/// What an acceptance makes.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The new baseline.
    pub baseline: Baseline,
    /// Every row that moves, by case.
    pub moves: Vec<Move>,
    /// What was overruled.
    pub overruled: Vec<Refusal>,
    /// Cases of the run that can't be expectations (interrupted, blocked).
    pub left_out: Vec<CaseId>,
}

/// One row that moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    /// The case.
    pub case: CaseId,
    /// How.
    pub kind: MoveKind,
}

/// How a row moves.
#[derive(Clone, Debug, PartialEq)]
pub enum MoveKind {
    /// A new row.
    Added {
        /// Its outcome.
        outcome: String,
    },
    /// The case is no longer declared.
    Removed,
    /// The row takes the case's new name.
    Renamed {
        /// The old name.
        from: CaseId,
    },
    /// The expected outcome changes.
    Outcome {
        /// Before.
        from: String,
        /// After.
        to: String,
    },
    /// Numbers move: median latency ratio, and whether ring peaks differ.
    Numbers {
        /// After / before; `None` where a side has no latency.
        ratio: Option<f64>,
        /// Ring peaks or sizes differ.
        rings: bool,
    },
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            MoveKind::Added { outcome } => write!(f, "+ {}: {outcome}", self.case),
            MoveKind::Removed => write!(f, "- {}", self.case),
            MoveKind::Renamed { from } => write!(f, "~ {}: was {from}", self.case),
            MoveKind::Outcome { from, to } => write!(f, "! {}: {from} → {to}", self.case),
            MoveKind::Numbers { ratio, rings } => {
                write!(f, "~ {}:", self.case)?;
                if let Some(ratio) = ratio {
                    write!(f, " latency {:+.1} %", (ratio - 1.0) * 100.0)?;
                }
                if *rings {
                    f.write_str(" ring peaks")?;
                }
                Ok(())
            }
        }
    }
}

/// Merges `run` into `current` (the baseline of its platform and host class, if there is one).
///
/// Without a reason in the request, everything that speaks against it is returned, not just the first.
/// Rows outside the selection stay as they are. A whole, unselected run also removes the rows of cases
/// that are no longer declared.
pub fn accept(current: Option<Baseline>, run: &Run, request: &Request) -> Result<Accepted, Vec<Refusal>> {
    let host = HostClass::from_facts(&run.provenance.host);
    let mut baseline = current.unwrap_or_else(|| Baseline::empty(&run.provenance.platform, host.clone()));
    let selected = |case: &CaseId| {
        let selection = request.selection.as_ref();
        selection.is_none_or(|globs| globs.is_match(case.as_str()))
    };
    let mut summaries = compare::summarise(run);
    summaries.retain(|case, _| selected(case));
    let mut left_out = Vec::new();
    summaries.retain(|case, summary| {
        let expected = !matches!(
            summary.outcome.kind(),
            OutcomeKind::Missing | OutcomeKind::Interrupted | OutcomeKind::Blocked
        );
        if !expected {
            left_out.push(case.clone());
        }
        expected
    });
    let former: BTreeMap<&CaseId, &CaseId> = request.renamed.iter().map(|(from, to)| (to, from)).collect();
    let refusals = refusals(&baseline, &host, run, request, &summaries, &former);
    if refusals.iter().any(|refusal| !refusal.can_be_overruled()) || (request.because.is_none() && !refusals.is_empty())
    {
        return Err(refusals);
    }

    let mut moves = Vec::new();
    let keep: BTreeSet<CaseId> = summaries.keys().chain(&left_out).cloned().collect();
    for (case, summary) in summaries {
        let renamed = former
            .get(&case)
            .and_then(|from| Some(((*from).clone(), baseline.rows.remove(*from)?)));
        if let Some((from, _)) = &renamed {
            let kind = MoveKind::Renamed { from: from.clone() };
            moves.push(Move {
                case: case.clone(),
                kind,
            });
        }
        let before = renamed.map(|(_, row)| row).or_else(|| baseline.rows.remove(&case));
        let row = Row {
            noise_floor: learnt_floor(&summary, before.as_ref()),
            ..Row::fresh(summary, &run.provenance.run_id)
        };
        if let Some(kind) = moved(before.as_ref(), &row) {
            let case = case.clone();
            moves.push(Move { case, kind });
        }
        baseline.rows.insert(case, row);
    }
    if request.selection.is_none() && run.covers_whole_matrix() && run.provenance.status == RunStatus::Complete {
        let gone: Vec<CaseId> = baseline
            .rows
            .keys()
            .filter(|case| !keep.contains(case))
            .cloned()
            .collect();
        for case in gone {
            baseline.rows.remove(&case);
            let kind = MoveKind::Removed;
            moves.push(Move { case, kind });
        }
    }
    moves.sort_by(|a, b| a.case.cmp(&b.case));
    baseline.accepts.retain(|accept| accept.run_id != run.provenance.run_id);
    baseline.accepts.push(acceptance(run, request));
    let used: BTreeSet<&String> = baseline.rows.values().map(|row| &row.run_id).collect();
    baseline.accepts.retain(|accept| used.contains(&accept.run_id));
    Ok(Accepted {
        baseline,
        moves,
        overruled: refusals,
        left_out,
    })
}

fn acceptance(run: &Run, request: &Request) -> Acceptance {
    let provenance = &run.provenance;
    Acceptance {
        run_id: provenance.run_id.clone(),
        accepted: request.accepted.clone(),
        commit: provenance.git_commit.clone(),
        dirty: provenance.git_dirty,
        matrix_hash: provenance.matrix_hash.clone(),
        toolchain: provenance.toolchain.clone(),
        selection: request.typed.clone(),
        because: request.because.clone(),
    }
}

fn refusals(
    baseline: &Baseline,
    host: &HostClass,
    run: &Run,
    request: &Request,
    summaries: &BTreeMap<CaseId, Arc<CaseSummary>>,
    former: &BTreeMap<&CaseId, &CaseId>,
) -> Vec<Refusal> {
    let provenance = &run.provenance;
    let mut refusals = Vec::new();
    if summaries.is_empty() {
        refusals.push(Refusal::Nothing);
    }
    let differences = baseline.host.differences(host);
    if baseline.platform != provenance.platform {
        let platforms = format!("platform: {} → {}", baseline.platform, provenance.platform);
        refusals.push(Refusal::OtherClass(platforms));
    } else if !differences.is_empty() {
        let facts: Vec<String> = differences.iter().map(ToString::to_string).collect();
        refusals.push(Refusal::OtherClass(facts.join(", ")));
    }
    if provenance.status == RunStatus::Incomplete || !run.missing().is_empty() {
        refusals.push(Refusal::Incomplete(run.missing().len()));
    }
    if let Some((index, count)) = provenance.shard {
        refusals.push(Refusal::Shard(index, count));
    } else if !run.covers_whole_matrix() && request.selection.is_none() {
        refusals.push(Refusal::Filtered(provenance.selection.clone()));
    }
    if provenance.git_dirty != Some(false) || provenance.git_commit.is_none() {
        refusals.push(Refusal::Dirty);
    }
    if !provenance.overrides.is_empty() {
        let names = provenance
            .overrides
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        refusals.push(Refusal::Overridden(names.collect()));
    }
    let worse: Vec<CaseId> = summaries
        .iter()
        .filter(|(case, summary)| {
            let former = former.get(*case).and_then(|from| baseline.rows.get(*from));
            let row = baseline.rows.get(*case).or(former);
            matches!(
                OutcomeChange::of(row.map(|row| row.summary.as_ref()), Some(summary)),
                OutcomeChange::Regressed | OutcomeChange::ChangedCause | OutcomeChange::NewFailing
            )
        })
        .map(|(case, _)| case.clone())
        .collect();
    if !worse.is_empty() {
        refusals.push(Refusal::Worse(worse));
    }
    refusals
}

fn moved(before: Option<&Row>, after: &Row) -> Option<MoveKind> {
    let Some(before) = before else {
        return Some(MoveKind::Added {
            outcome: after.summary.outcome.to_string(),
        });
    };
    let (from, to) = (&before.summary, &after.summary);
    if from.outcome != to.outcome {
        return Some(MoveKind::Outcome {
            from: from.outcome.to_string(),
            to: to.outcome.to_string(),
        });
    }
    let median = |summary: &CaseSummary| summary.latency.as_ref().and_then(compare::LatencySummary::median_ns);
    let ratio = median(from).zip(median(to)).map(|(from, to)| to / from);
    let rings = from.rings != to.rings;
    (ratio.is_some_and(|ratio| (ratio - 1.0).abs() >= 5e-4) || rings || from != to)
        .then_some(MoveKind::Numbers { ratio, rings })
}
