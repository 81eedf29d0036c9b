//! One attempt of one case, on a worker thread: launch, supervise, judge, make the record.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use jiff::civil::Date;

use super::Work;
use super::queue::Job;
use crate::outcome::{Outcome, SetupCause};
use crate::plan::PlannedCase;
use crate::process::{Control, Ended, Phase};
use crate::protocol::Report;
use crate::record::{
    AskedRings, AskedValue, CaseRecord, Evidence, Latency, Nanos, PhaseTimes, ResourceSizes, RingRecord, Subject,
};
use crate::ring::RingConfig;
use crate::runner::{Assignment, AttemptPaths, LaunchError, Observation};
use crate::size::Bytes;
use crate::suite::runner::RunnerSpec;
use crate::verdict::{self, Verdict};
use crate::{expectation, verdict::quote_end};

/// Everything that a worker needs.
pub(super) struct Attempt<'a, 'w> {
    pub(super) work: &'a Work<'w>,
    pub(super) case: &'a PlannedCase,
    pub(super) job: Job,
    pub(super) devices: Vec<u32>,
    /// How long it waited for its slot and devices, once it was the next one.
    pub(super) waited: Duration,
    pub(super) paths: AttemptPaths,
    /// The log as the record names it.
    pub(super) log: String,
    pub(super) control: Control,
}

impl Attempt<'_, '_> {
    /// Runs it to its record. A defect of the harness costs this case its verdict, not the sweep.
    pub(super) fn run(self) -> CaseRecord {
        let record = catch_unwind(AssertUnwindSafe(|| self.run_unguarded())).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            let summary = format!("the harness failed on this case: {text}");
            unstarted(self.case, self.job, Outcome::Missing, summary, self.work.settings.today)
        });
        // Nothing in there outlives the attempt; a directory that can't be removed harms nobody.
        let _ = std::fs::remove_dir_all(&self.paths.scratch);
        record
    }

    fn run_unguarded(&self) -> CaseRecord {
        let assignment = Assignment {
            case: self.case,
            platform: &self.work.plan.platform,
            devices: &self.devices,
            root: self.work.root,
            paths: &self.paths,
        };
        let runner = self
            .work
            .runners
            .get(&self.case.runner.kind())
            .expect("the plan's runners are there");
        let child = match runner.launch(&assignment) {
            Ok(child) => child,
            Err(error) => return self.record(verdict::not_launched(&error), &Observation::default(), None),
        };
        if let Some(report) = &child.report
            && let Err(error) = std::fs::File::create(report)
        {
            let message = format!("failed to create the report `{}`: {error}", report.display());
            let error = LaunchError {
                cause: SetupCause::Environment,
                message,
            };
            return self.record(verdict::not_launched(&error), &Observation::default(), None);
        }
        let ended = match self.work.supervisor.run(&child, &self.control) {
            Ok(ended) => ended,
            Err(error) => return self.record(verdict::not_started(&error), &Observation::default(), None),
        };
        // A log that can't be read back only costs the evidence its quotes.
        let log = std::fs::read(&self.paths.log).unwrap_or_default();
        let observation = runner.observe(&assignment, &ended, &log);
        let asked = asked(&self.case.rings).sizes();
        let mut verdict = verdict::judge(&ended, &observation, &asked, &log);
        if verdict.outcome != Outcome::Pass && verdict.evidence.lines.is_empty() {
            verdict.evidence.lines = quote_end(&log);
        }
        self.record(verdict, &observation, Some(&ended))
    }

    fn record(&self, verdict: Verdict, observation: &Observation, ended: Option<&Ended>) -> CaseRecord {
        let mut record = unstarted(
            self.case,
            self.job,
            verdict.outcome,
            String::new(),
            self.work.settings.today,
        );
        record.expectation = expectation::judge(
            self.case.expect.as_ref(),
            &record.outcome,
            &verdict.evidence,
            self.work.settings.today,
        );
        record.evidence = verdict.evidence;
        record.rings.asked = Some(asked(&self.case.rings));
        record.rings.effective = observation.effective.first().copied();
        record.subject.devices = self.devices.iter().map(ToString::to_string).collect();
        record.phases.queue = self.waited;
        if let Some(ended) = ended {
            record.phases = phase_times(ended);
            record.phases.queue += self.waited;
            record.log = Some(self.log.clone());
        }
        if let Some((report, _)) = &observation.report {
            add_report(&mut record, report);
        }
        if record.outcome == Outcome::Pass {
            let reported = observation.report.as_ref().and_then(|(report, _)| latency(report));
            record.latency = reported.or_else(|| observation.latency.clone());
        }
        record
    }
}

/// A record of an attempt that was never started.
pub(super) fn unstarted(case: &PlannedCase, job: Job, outcome: Outcome, summary: String, today: Date) -> CaseRecord {
    let evidence = Evidence {
        summary,
        source: "plan".into(),
        ..Evidence::default()
    };
    CaseRecord {
        case: case.id.clone(),
        attempt: job.attempt,
        repeat: job.repeat,
        expectation: expectation::judge(case.expect.as_ref(), &outcome, &evidence, today),
        outcome,
        evidence,
        rings: RingRecord::default(),
        latency: None,
        phases: PhaseTimes::default(),
        declared_memory_bytes: case.memory.map(Bytes::get),
        peak_memory_bytes: None,
        work: None,
        subject: Subject {
            kernel: program(&case.runner),
            params: case.params.clone(),
            seed: Some(case.seed),
            kernel_hash: None,
            tags: case.tags.clone(),
            devices: Vec::new(),
        },
        log: None,
    }
}

fn program(runner: &RunnerSpec) -> String {
    match runner {
        RunnerSpec::Embedded(embedded) => embedded.kernel.clone(),
        RunnerSpec::Pypto(pypto) => pypto.program.clone(),
        RunnerSpec::Command(command) => command.argv.first().map(ToString::to_string).unwrap_or_default(),
    }
}

/// The plan's rings as a record keeps them.
fn asked(rings: &RingConfig) -> AskedRings {
    let values = |values: [crate::ring::RingValue; 4]| {
        values.map(|value| AskedValue {
            value: value.value,
            tier: value.tier.token().into(),
        })
    };
    AskedRings {
        heap: values(rings.heap),
        task_window: values(rings.task_window),
        dep_pool: values(rings.dep_pool),
    }
}

fn add_report(record: &mut CaseRecord, report: &Report) {
    let effective: Option<ResourceSizes> = report.effective();
    record.rings.effective = effective.or(record.rings.effective);
    record.rings.usage = report.peak_usage();
    record.work = report.work();
    record.peak_memory_bytes = report.peak_rss_bytes;
    record.subject.kernel_hash.clone_from(&report.kernel_hash);
    if !report.params.is_empty() {
        record.subject.params.clone_from(&report.params);
    }
}

/// The samples of a report. Those of another clock than the first are not of the same kind, so none count then.
fn latency(report: &Report) -> Option<Latency> {
    let (clock, _) = *report.samples.first()?;
    let samples: Option<Vec<Nanos>> = report
        .samples
        .iter()
        .map(|(other, ns)| if *other == clock { Nanos::new(*ns).ok() } else { None })
        .collect();
    Latency::new(clock, samples?)
}

fn phase_times(ended: &Ended) -> PhaseTimes {
    let of = |wanted| {
        ended
            .phases
            .iter()
            .find(|(phase, _)| *phase == wanted)
            .map(|(_, length)| *length)
    };
    PhaseTimes {
        queue: of(Phase::Queue).unwrap_or(Duration::ZERO),
        setup: of(Phase::Setup).filter(|_| ended.last_phase() == Some(Phase::Run)),
        total: ended.elapsed,
    }
}
