//! The decision: does this run pass for this purpose?
//!
//! What fails, warns or is ignored is data (`cases/gate.toml`), per kind of finding and per case or tag.
//! Three things are no data: a gate that compared nothing fails, an incomplete run fails, and every
//! finding that is not ignored is told in one line.

use crate::case_id::CaseId;
use crate::compare::{
    CaseDiff, Comparison, Confirmation, Direction, LatencyVerdict, OutcomeChange, RingFinding, Standing,
};
use crate::count::counted;
use crate::exit::Exit;
use crate::outcome::OutcomeKind;
use crate::record::{Run, RunStatus};

mod kind;
mod policy;
mod wire;

pub use kind::Kind;
pub use policy::{Action, GateFile, GateFileError, Override, Policy};
pub use wire::verdict_json;

/// What a policy may ask for besides the run and its comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings<'a> {
    /// The comparison with the last release.
    pub release: Option<&'a Comparison>,
    /// Commit of the tree that the gate runs in.
    pub commit: Fact<'a>,
    /// Matrix hash of the suites in that tree.
    pub matrix_hash: Fact<'a>,
}

/// A fact of the tree that a run is held to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fact<'a> {
    /// The run is not held to it.
    #[default]
    NotAsked,
    /// It can't be had: a run that claims to be of this tree can't be believed.
    Unknown,
    /// This.
    Is(&'a str),
}

impl<'a> Fact<'a> {
    /// A fact that was looked for.
    pub fn sought(found: Option<&'a str>) -> Self {
        found.map_or(Self::Unknown, Self::Is)
    }
}

/// One finding of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What the policy makes of it.
    pub action: Action,
    /// Its kind.
    pub kind: Kind,
    /// The case, where it is about one.
    pub case: Option<CaseId>,
    /// One line.
    pub message: String,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateVerdict {
    /// Name of the policy.
    pub policy: String,
    /// The run.
    pub run_id: String,
    /// What it was held against.
    pub reference: String,
    /// Cases that have a reference.
    pub compared: usize,
    /// Findings that are not ignored: failures first, then warnings, each in the order of the comparison.
    pub reasons: Vec<Reason>,
    /// How the command ends.
    pub exit: Exit,
}

impl GateVerdict {
    /// True if nothing fails.
    pub fn passed(&self) -> bool {
        self.exit == Exit::Pass
    }

    /// Findings that fail.
    pub fn failures(&self) -> impl Iterator<Item = &Reason> {
        self.reasons.iter().filter(|reason| reason.action == Action::Fail)
    }
}

/// Decides on a run and its comparison with the accepted baseline.
pub fn decide(policy: &Policy, comparison: &Comparison, run: &Run) -> GateVerdict {
    decide_in(policy, comparison, run, Surroundings::default())
}

/// Decides with what the policy's surroundings say.
pub fn decide_in(policy: &Policy, comparison: &Comparison, run: &Run, around: Surroundings<'_>) -> GateVerdict {
    let mut findings = Findings {
        policy,
        reasons: Vec::new(),
    };
    let compared = match comparison.standing {
        Standing::Compared(cases) => cases,
        Standing::EmptyRun
        | Standing::NoBaseline
        | Standing::NothingInCommon
        | Standing::OtherPlatform
        | Standing::SameRun => 0,
    };
    if compared == 0 {
        findings.fail(Kind::NothingCompared, nothing_compared(comparison));
    }
    let missing = run.missing().len();
    if run.provenance.status == RunStatus::Incomplete || missing > 0 {
        let message = format!(
            "the run is incomplete: {missing} of {} planned cases have no record",
            run.provenance.planned.len()
        );
        findings.fail(Kind::Incomplete, message);
    }
    of_run(&mut findings, comparison, run, around);
    for diff in &comparison.cases {
        of_case(&mut findings, diff, comparison);
    }
    if let Some(release) = around.release {
        drift(&mut findings, release);
    }
    let mut reasons = findings.reasons;
    reasons.sort_by_key(|reason| reason.action);
    let exit = exit_of(comparison, &reasons);
    GateVerdict {
        policy: policy.name.clone(),
        run_id: run.provenance.run_id.clone(),
        reference: comparison.base.label.clone(),
        compared,
        reasons,
        exit,
    }
}

fn nothing_compared(comparison: &Comparison) -> String {
    let (base, now) = (&comparison.base, &comparison.now);
    match comparison.standing {
        Standing::Compared(cases) => format!("{} of {} with a reference", counted(cases, "case"), now.label),
        Standing::EmptyRun => format!("{} holds no record: nothing was compared", now.label),
        Standing::NoBaseline => format!(
            "there is no baseline for platform `{}`: accept a run first (`cargo xtask baseline accept`)",
            now.platform
        ),
        Standing::NothingInCommon => format!(
            "no case of {} is in {}: names changed (declare them as `[[renamed]]`), or it is another sweep",
            now.label, base.label
        ),
        Standing::OtherPlatform => format!(
            "{} is for `{}`, the run for `{}`",
            base.label, base.platform, now.platform
        ),
        Standing::SameRun => format!("{} was held against itself", now.label),
    }
}

fn exit_of(comparison: &Comparison, reasons: &[Reason]) -> Exit {
    let mut failures = reasons.iter().filter(|reason| reason.action == Action::Fail).peekable();
    if failures.peek().is_none() {
        return Exit::Pass;
    }
    match comparison.standing {
        Standing::EmptyRun => return Exit::NothingSelected,
        Standing::NoBaseline | Standing::NothingInCommon | Standing::OtherPlatform | Standing::SameRun => {
            return Exit::NotComparable;
        }
        Standing::Compared(_) => {}
    }
    if failures.all(|reason| matches!(reason.kind, Kind::Incomplete | Kind::Missing | Kind::Partial)) {
        return Exit::Incomplete;
    }
    Exit::GateFailed
}

struct Findings<'a> {
    policy: &'a Policy,
    reasons: Vec<Reason>,
}

impl Findings<'_> {
    /// Something that no policy may overlook.
    fn fail(&mut self, kind: Kind, message: String) {
        self.reasons.push(Reason {
            action: Action::Fail,
            kind,
            case: None,
            message,
        });
    }

    fn run(&mut self, kind: Kind, message: impl FnOnce() -> String) {
        let action = self.policy.action(kind, None);
        if action != Action::Ignore {
            self.reasons.push(Reason {
                action,
                kind,
                case: None,
                message: message(),
            });
        }
    }

    fn case(&mut self, kind: Kind, diff: &CaseDiff, message: impl FnOnce() -> String) {
        let action = self.policy.action(kind, Some((&diff.case, diff.tags())));
        if action != Action::Ignore {
            self.reasons.push(Reason {
                action,
                kind,
                case: Some(diff.case.clone()),
                message: message(),
            });
        }
    }
}

/// Findings about the run as a whole; the environment comes before any case.
fn of_run(findings: &mut Findings<'_>, comparison: &Comparison, run: &Run, around: Surroundings<'_>) {
    let provenance = &run.provenance;
    if let Some(common) = &comparison.common_mode {
        findings.run(Kind::CommonMode, || match &comparison.environment {
            Some(environment) => format!("{common}; {environment}"),
            None => common.to_string(),
        });
    }
    if !comparison.host_differences.is_empty() {
        findings.run(Kind::OtherHostClass, || {
            let facts: Vec<String> = comparison.host_differences.iter().map(ToString::to_string).collect();
            format!("other host class, so latencies were not compared: {}", facts.join(", "))
        });
    }
    if !run.covers_whole_matrix() {
        findings.run(Kind::Partial, || match provenance.shard {
            Some((index, count)) => format!("the run is shard {index} of {count}"),
            None => format!(
                "the run is filtered (`{}`): {} declared cases were left out",
                provenance.selection.join(" "),
                provenance.deselected
            ),
        });
    }
    if provenance.git_dirty != Some(false) {
        findings.run(Kind::Dirty, || {
            "the run's source had uncommitted changes, or no commit at all".into()
        });
    }
    // A run without a commit is `dirty` already.
    let of = provenance.git_commit.as_deref();
    match (around.commit, of) {
        (Fact::NotAsked, _) | (Fact::Unknown, None) => {}
        (Fact::Unknown, Some(of)) => findings.run(Kind::OtherCommit, || {
            format!("the run is of {of}, and the commit of this tree is not known")
        }),
        (Fact::Is(commit), of) if of == Some(commit) => {}
        (Fact::Is(commit), of) => findings.run(Kind::OtherCommit, || {
            let of = of.unwrap_or("no commit");
            format!("the run is of {of}, this tree is at {commit}")
        }),
    }
    match around.matrix_hash {
        Fact::NotAsked => {}
        Fact::Unknown => {
            findings.run(Kind::OtherMatrix, || {
                "this tree declares none of the run's suites".into()
            });
        }
        Fact::Is(matrix) if provenance.matrix_hash == matrix => {}
        Fact::Is(_) => findings.run(Kind::OtherMatrix, || {
            "the run's matrix is not the one that this tree declares".into()
        }),
    }
    if !provenance.overrides.is_empty() {
        findings.run(Kind::Overridden, || {
            let names: Vec<String> = provenance
                .overrides
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!("the command line changed what cases mean: {}", names.join(", "))
        });
    }
    if let Some(age) = comparison.age_days.filter(|age| *age > comparison.rules.max_age_days) {
        findings.run(Kind::OldBaseline, || {
            format!("{} is {age} days old", comparison.base.label)
        });
    }
    if around.release.is_none() {
        findings.run(Kind::NoRelease, || {
            "there is no tagged release to measure drift against (`cargo xtask baseline tag`)".into()
        });
    }
}

fn of_case(findings: &mut Findings<'_>, diff: &CaseDiff, comparison: &Comparison) {
    let outcome = diff.outcome();
    let kind = match diff.change {
        OutcomeChange::Regressed => Some(Kind::Regressed),
        OutcomeChange::Missing => Some(Kind::Missing),
        OutcomeChange::ChangedCause => Some(Kind::ChangedCause),
        OutcomeChange::NewFailing => Some(Kind::NewFailing),
        OutcomeChange::Expired => Some(Kind::Expired),
        OutcomeChange::UnexpectedPass => Some(Kind::UnexpectedPass),
        OutcomeChange::NewlySkipped => Some(Kind::NewlySkipped),
        OutcomeChange::DeclaredFailure => Some(Kind::DeclaredFailure),
        OutcomeChange::KnownFailure => Some(Kind::KnownFailure),
        OutcomeChange::New => Some(Kind::New),
        OutcomeChange::Fixed => Some(Kind::Fixed),
        OutcomeChange::Same => None,
    };
    if let Some(kind) = kind {
        findings.case(kind, diff, || match &diff.base {
            Some(base) => format!("{}: {} → {outcome}", diff.change, base.outcome),
            None => format!("{}: {outcome}", diff.change),
        });
    }
    if outcome.kind() == OutcomeKind::Skipped {
        findings.case(Kind::Skipped, diff, || format!("skipped: {}", outcome.cause()));
    }
    if let Some(now) = &diff.now {
        if !now.disagreement.is_empty() {
            findings.case(Kind::Flaky, diff, || {
                let outcomes: Vec<String> = now.disagreement.iter().map(ToString::to_string).collect();
                format!("process runs disagree: {}", outcomes.join(", "))
            });
        } else if now.attempts > 1 {
            findings.case(Kind::Flaky, diff, || format!("took {} attempts", now.attempts));
        }
    }
    of_latency(findings, diff);
    for finding in &diff.rings {
        let kind = match finding {
            RingFinding::Grew { .. } => Kind::RingGrew,
            RingFinding::Shrank { .. } => Kind::RingShrank,
            RingFinding::Resized { .. } => Kind::RingResized,
            RingFinding::NotReported => Kind::RingsNotReported,
            RingFinding::LowHeadroom { .. } => Kind::LowHeadroom,
        };
        findings.case(kind, diff, || finding.to_string());
    }
    if let LatencyVerdict::Slower(effect) | LatencyVerdict::Faster(effect) | LatencyVerdict::Unchanged(effect) =
        &diff.latency
        && effect.floor > comparison.rules.max_noise_floor
    {
        findings.case(Kind::Noisy, diff, || {
            format!(
                "changes below {:.0} % can't be seen: the case is that noisy",
                effect.floor * 100.0
            )
        });
    }
}

fn of_latency(findings: &mut Findings<'_>, diff: &CaseDiff) {
    match (&diff.confirmation, &diff.latency) {
        (Some(Confirmation::Confirmed(verdict)), _) => match verdict {
            LatencyVerdict::Slower(_) => findings.case(Kind::Slower, diff, || format!("{verdict}; measured again")),
            LatencyVerdict::Faster(_) => findings.case(Kind::Faster, diff, || format!("{verdict}; measured again")),
            LatencyVerdict::None
            | LatencyVerdict::Unchanged(_)
            | LatencyVerdict::Undecided(..)
            | LatencyVerdict::Implausible(..) => {}
        },
        (Some(Confirmation::Cleared(verdict)), first) => findings.case(Kind::Cleared, diff, || {
            format!("was {}, measured again: {verdict}", first.token())
        }),
        (Some(Confirmation::Explained(_)), first) => findings.case(Kind::Cleared, diff, || {
            format!("was {}, and moved no further than the machine did", first.token())
        }),
        (Some(Confirmation::Unclear(verdict)), first) => findings.case(Kind::Unclear, diff, || {
            format!("was {}, measured again and still {verdict}", first.token())
        }),
        (None | Some(Confirmation::NotMeasured), first) => match first {
            LatencyVerdict::Slower(_) => {
                findings.case(Kind::SlowerUnconfirmed, diff, || format!("{first}; not measured again"));
            }
            LatencyVerdict::Faster(_) => findings.case(Kind::Faster, diff, || first.to_string()),
            LatencyVerdict::Implausible(..) => findings.case(Kind::Implausible, diff, || first.to_string()),
            LatencyVerdict::Undecided(_, Some(reading)) if reading.beyond == Some(Direction::Slower) => {
                findings.case(Kind::PlainSlower, diff, || first.to_string());
            }
            LatencyVerdict::Undecided(..) => findings.case(Kind::Undecided, diff, || first.to_string()),
            LatencyVerdict::None | LatencyVerdict::Unchanged(_) => {}
        },
    }
}

/// What crept in since the last release, however small each accepted step was.
fn drift(findings: &mut Findings<'_>, release: &Comparison) {
    let label = &release.base.label;
    match release.standing {
        Standing::Compared(_) => {}
        Standing::EmptyRun
        | Standing::NoBaseline
        | Standing::NothingInCommon
        | Standing::OtherPlatform
        | Standing::SameRun => findings.run(Kind::Drift, || {
            format!("nothing of the run is in {label}: drift was not measured")
        }),
    }
    if !release.host_differences.is_empty() {
        findings.run(Kind::OtherHostClass, || {
            format!("{label} is of another host class: drift of latencies was not measured")
        });
    }
    for diff in &release.cases {
        let worse = match diff.change {
            OutcomeChange::Regressed
            | OutcomeChange::ChangedCause
            | OutcomeChange::Missing
            | OutcomeChange::NewlySkipped => true,
            OutcomeChange::NewFailing
            | OutcomeChange::Expired
            | OutcomeChange::UnexpectedPass
            | OutcomeChange::DeclaredFailure
            | OutcomeChange::KnownFailure
            | OutcomeChange::New
            | OutcomeChange::Fixed
            | OutcomeChange::Same => false,
        };
        if worse {
            findings.case(Kind::Drift, diff, || {
                format!("{} since {label}: {}", diff.change, diff.outcome())
            });
        }
        let latency = diff.final_latency();
        let slower = match latency {
            LatencyVerdict::Slower(_) => true,
            LatencyVerdict::Undecided(_, reading) => reading.is_some_and(|r| r.beyond == Some(Direction::Slower)),
            LatencyVerdict::None
            | LatencyVerdict::Faster(_)
            | LatencyVerdict::Unchanged(_)
            | LatencyVerdict::Implausible(..) => false,
        };
        if slower {
            findings.case(Kind::Drift, diff, || format!("{latency} since {label}"));
        }
    }
}
