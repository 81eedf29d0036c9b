//! One line of `records.jsonl` as it is written.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::record::{
    AskedRings, AskedValue, CaseRecord, Clock, Detail, Evidence, EvidenceLine, Expectation, Expected, Latency, Nanos,
    PhaseTimes, ResourceSizes, RingRecord, RingShortage, RingUsage, StallFacts, Subject, TensorFacts, WorkCounters,
};

/// One terminal record.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "each field is documented at the field of `CaseRecord` with the same name"
)]
pub struct RecordWire {
    pub case: String,
    pub attempt: u32,
    pub repeat: u32,
    pub outcome: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    pub expectation: ExpectationWire,
    pub evidence: EvidenceWire,
    pub rings: RingsWire,
    pub latency: Option<LatencyWire>,
    pub queue_ns: u64,
    pub setup_ns: Option<u64>,
    pub total_ns: u64,
    pub declared_memory_bytes: Option<u64>,
    pub peak_memory_bytes: Option<u64>,
    pub work: Option<WorkWire>,
    pub kernel: String,
    pub params: BTreeMap<String, String>,
    pub seed: Option<u64>,
    pub kernel_hash: Option<String>,
    pub tags: Vec<String>,
    pub devices: Vec<String>,
    pub log: Option<String>,
}

/// Wire form of `WorkCounters`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WorkWire {
    pub tasks_submitted: u64,
    pub tasks_dispatched: u64,
}

/// Wire form of `Expectation`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ExpectationWire {
    None,
    Met { expected: ExpectedWire },
    NotMet { expected: ExpectedWire },
    UnexpectedPass { expected: ExpectedWire },
    Expired { expected: ExpectedWire },
}

/// Wire form of `Expected`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExpectedWire {
    pub outcome: String,
    pub cause: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shows: Vec<String>,
    pub issue: Option<String>,
    pub until: Option<String>,
}

/// Wire form of `Evidence`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EvidenceWire {
    pub summary: String,
    pub source: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineWire>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<ShortageWire>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<StallWire>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tensors: Vec<TensorWire>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallout: Vec<String>,
}

/// Wire form of `EvidenceLine`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LineWire {
    pub line: u64,
    pub text: String,
}

/// Declares a wire struct with the same fields as a domain struct, and both conversions.
macro_rules! mirror {
    ($wire:ident = $domain:ident { $($field:ident : $ty:ty),* $(,)? }) => {
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        #[doc = concat!("Wire form of `", stringify!($domain), "`.")]
        pub struct $wire { $(pub $field: $ty),* }

        impl From<$domain> for $wire {
            fn from(from: $domain) -> Self {
                let $domain { $($field),* } = from;
                Self { $($field),* }
            }
        }

        impl From<$wire> for $domain {
            fn from(from: $wire) -> Self {
                let $wire { $($field),* } = from;
                Self { $($field),* }
            }
        }
    };
}

mirror! { ShortageWire = RingShortage {
    code: Option<i64>, resource: String, ring: Option<u8>, requested: Option<u64>, free: Option<u64>,
    capacity: Option<u64>, proof: Option<String>, task: Option<String>, head_task: Option<String>,
    launched: Option<bool>,
} }
mirror! { StallWire = StallFacts {
    completed: Option<u64>, total: Option<u64>, running: Option<u64>, ready: Option<u64>, waiting: Option<u64>,
    orch_done: Option<bool>, stuck_task: Option<String>, stuck_core: Option<i64>,
} }
mirror! { TensorWire = TensorFacts {
    name: String, verdict: String, rule: String, total: u64, mismatched: u64, allowed: u64,
    max_abs_err: Option<String>, max_rel_err: Option<String>, first_index: Vec<u64>, actual: Option<String>,
    expected: Option<String>, first_row: Option<u64>, all_nan_rows: Option<u64>,
} }
mirror! { UsageWire = RingUsage {
    heap_capacity_bytes: u64, heap_high_water_bytes: u64, task_window: u64, tasks_high_water: u64, dep_pool: u64,
    dep_pool_high_water: u64, tasks_submitted: u64,
} }

/// Wire form of `RingRecord`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RingsWire {
    pub asked: Option<AskedWire>,
    pub effective: Option<SizesWire>,
    pub usage: Option<[UsageWire; 4]>,
}

/// Wire form of `AskedRings`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AskedWire {
    pub heap_bytes: [AskedValueWire; 4],
    pub task_window: [AskedValueWire; 4],
    pub dep_pool: [AskedValueWire; 4],
}

/// Wire form of `AskedValue`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AskedValueWire {
    pub value: u64,
    pub tier: String,
}

/// Wire form of `ResourceSizes`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SizesWire {
    pub heap_bytes: [u64; 4],
    pub task_window: [u64; 4],
    pub dep_pool: [u64; 4],
}

/// Wire form of `Latency`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LatencyWire {
    pub clock: ClockWire,
    pub samples_ns: Vec<u64>,
}

/// Wire form of `Clock`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockWire {
    Device,
    Host,
}

fn whole_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl RecordWire {
    /// The wire form of `record`.
    pub fn new(record: &CaseRecord) -> Self {
        let subject = record.subject.clone();
        Self {
            case: record.case.to_string(),
            attempt: record.attempt,
            repeat: record.repeat,
            outcome: record.outcome.kind().token().into(),
            cause: record.outcome.cause(),
            expectation: expectation_wire(&record.expectation),
            evidence: evidence_wire(&record.evidence),
            rings: rings_wire(&record.rings),
            latency: record.latency.as_ref().map(|latency| LatencyWire {
                clock: match latency.clock() {
                    Clock::Device => ClockWire::Device,
                    Clock::Host => ClockWire::Host,
                },
                samples_ns: latency.samples().iter().map(|sample| sample.get()).collect(),
            }),
            queue_ns: whole_ns(record.phases.queue),
            setup_ns: record.phases.setup.map(whole_ns),
            total_ns: whole_ns(record.phases.total),
            declared_memory_bytes: record.declared_memory_bytes,
            peak_memory_bytes: record.peak_memory_bytes,
            work: record.work.map(|work| WorkWire {
                tasks_submitted: work.tasks_submitted,
                tasks_dispatched: work.tasks_dispatched,
            }),
            kernel: subject.kernel,
            params: subject.params,
            seed: subject.seed,
            kernel_hash: subject.kernel_hash,
            tags: subject.tags,
            devices: subject.devices,
            log: record.log.clone(),
        }
    }

    /// The domain form; says which value makes no sense.
    pub fn into_record(self) -> Result<CaseRecord, String> {
        let outcome = Outcome::from_tokens(&self.outcome, &self.cause).map_err(|error| error.to_string())?;
        let latency = match self.latency {
            None => None,
            Some(wire) => {
                let samples = wire
                    .samples_ns
                    .iter()
                    .map(|&ns| Nanos::new(ns))
                    .collect::<Result<Vec<_>, _>>();
                let samples = samples.map_err(|error| format!("case `{}`: {error}", self.case))?;
                let clock = match wire.clock {
                    ClockWire::Device => Clock::Device,
                    ClockWire::Host => Clock::Host,
                };
                let latency = Latency::new(clock, samples);
                Some(latency.ok_or_else(|| format!("case `{}`: a latency without samples", self.case))?)
            }
        };
        Ok(CaseRecord {
            case: self
                .case
                .parse()
                .map_err(|error| format!("case `{}`: {error}", self.case))?,
            attempt: self.attempt,
            repeat: self.repeat,
            outcome,
            evidence: evidence_domain(self.evidence),
            expectation: expectation_domain(self.expectation),
            rings: rings_domain(self.rings),
            latency,
            phases: PhaseTimes {
                queue: Duration::from_nanos(self.queue_ns),
                setup: self.setup_ns.map(Duration::from_nanos),
                total: Duration::from_nanos(self.total_ns),
            },
            declared_memory_bytes: self.declared_memory_bytes,
            peak_memory_bytes: self.peak_memory_bytes,
            work: self.work.map(|work| WorkCounters {
                tasks_submitted: work.tasks_submitted,
                tasks_dispatched: work.tasks_dispatched,
            }),
            subject: Subject {
                kernel: self.kernel,
                params: self.params,
                seed: self.seed,
                kernel_hash: self.kernel_hash,
                tags: self.tags,
                devices: self.devices,
            },
            log: self.log,
        })
    }
}

fn expected_wire(expected: &Expected) -> ExpectedWire {
    ExpectedWire {
        outcome: expected.outcome.clone(),
        cause: expected.cause.clone(),
        ring: expected.ring,
        shows: expected.shows.clone(),
        issue: expected.issue.clone(),
        until: expected.until.clone(),
    }
}

fn expectation_wire(expectation: &Expectation) -> ExpectationWire {
    match expectation {
        Expectation::None => ExpectationWire::None,
        Expectation::Met(e) => ExpectationWire::Met {
            expected: expected_wire(e),
        },
        Expectation::NotMet(e) => ExpectationWire::NotMet {
            expected: expected_wire(e),
        },
        Expectation::UnexpectedPass(e) => ExpectationWire::UnexpectedPass {
            expected: expected_wire(e),
        },
        Expectation::Expired(e) => ExpectationWire::Expired {
            expected: expected_wire(e),
        },
    }
}

fn expectation_domain(wire: ExpectationWire) -> Expectation {
    let domain = |e: ExpectedWire| Expected {
        outcome: e.outcome,
        cause: e.cause,
        ring: e.ring,
        shows: e.shows,
        issue: e.issue,
        until: e.until,
    };
    match wire {
        ExpectationWire::None => Expectation::None,
        ExpectationWire::Met { expected } => Expectation::Met(domain(expected)),
        ExpectationWire::NotMet { expected } => Expectation::NotMet(domain(expected)),
        ExpectationWire::UnexpectedPass { expected } => Expectation::UnexpectedPass(domain(expected)),
        ExpectationWire::Expired { expected } => Expectation::Expired(domain(expected)),
    }
}

fn evidence_wire(evidence: &Evidence) -> EvidenceWire {
    let (mut ring, mut stall, mut tensors) = (None, None, Vec::new());
    match evidence.detail.clone() {
        None => {}
        Some(Detail::Ring(facts)) => ring = Some(facts.into()),
        Some(Detail::Stall(facts)) => stall = Some(facts.into()),
        Some(Detail::Tensors(facts)) => tensors = facts.into_iter().map(Into::into).collect(),
    }
    EvidenceWire {
        summary: evidence.summary.clone(),
        source: evidence.source.clone(),
        lines: evidence
            .lines
            .iter()
            .map(|l| LineWire {
                line: l.line,
                text: l.text.clone(),
            })
            .collect(),
        ring,
        stall,
        tensors,
        fallout: evidence.fallout.clone(),
    }
}

fn evidence_domain(wire: EvidenceWire) -> Evidence {
    let detail = match (wire.ring, wire.stall, wire.tensors) {
        (Some(ring), _, _) => Some(Detail::Ring(ring.into())),
        (None, Some(stall), _) => Some(Detail::Stall(stall.into())),
        (None, None, tensors) if !tensors.is_empty() => {
            Some(Detail::Tensors(tensors.into_iter().map(Into::into).collect()))
        }
        _ => None,
    };
    Evidence {
        summary: wire.summary,
        source: wire.source,
        lines: wire
            .lines
            .into_iter()
            .map(|l| EvidenceLine {
                line: l.line,
                text: l.text,
            })
            .collect(),
        detail,
        fallout: wire.fallout,
    }
}

fn rings_wire(rings: &RingRecord) -> RingsWire {
    let values = |asked: &[AskedValue; 4]| {
        std::array::from_fn(|i| AskedValueWire {
            value: asked[i].value,
            tier: asked[i].tier.clone(),
        })
    };
    RingsWire {
        asked: rings.asked.as_ref().map(|asked| AskedWire {
            heap_bytes: values(&asked.heap),
            task_window: values(&asked.task_window),
            dep_pool: values(&asked.dep_pool),
        }),
        effective: rings.effective.map(|sizes| SizesWire {
            heap_bytes: sizes.heap,
            task_window: sizes.task_window,
            dep_pool: sizes.dep_pool,
        }),
        usage: rings.usage.map(|usage| usage.map(Into::into)),
    }
}

fn rings_domain(wire: RingsWire) -> RingRecord {
    let values = |asked: [AskedValueWire; 4]| {
        asked.map(|a| AskedValue {
            value: a.value,
            tier: a.tier,
        })
    };
    RingRecord {
        asked: wire.asked.map(|asked| AskedRings {
            heap: values(asked.heap_bytes),
            task_window: values(asked.task_window),
            dep_pool: values(asked.dep_pool),
        }),
        effective: wire.effective.map(|sizes| ResourceSizes {
            heap: sizes.heap_bytes,
            task_window: sizes.task_window,
            dep_pool: sizes.dep_pool,
        }),
        usage: wire.usage.map(|usage| usage.map(Into::into)),
    }
}
