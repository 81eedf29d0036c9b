//! The rows file of a baseline as it is written: CSV, one row a case.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{BaselineError, Row};
use crate::case_id::CaseId;
use crate::compare::{CaseSummary, LatencySummary, RingPeak};
use crate::outcome::Outcome;
use crate::record::{Clock, Expectation, Expected, WorkCounters};

/// One row. Lists within a cell are separated by spaces, so that no cell needs quotes for them.
#[derive(Debug, Serialize, Deserialize)]
struct RowWire {
    case: String,
    outcome: String,
    cause: String,
    expected: String,
    issue: String,
    until: String,
    statistic: String,
    unit: String,
    clock: String,
    rounds: Option<usize>,
    run_medians: String,
    noise_floor: Option<f64>,
    heap_capacity_bytes: String,
    heap_high_water_bytes: String,
    task_window: String,
    tasks_high_water: String,
    dep_pool: String,
    dep_pool_high_water: String,
    tasks_submitted: Option<u64>,
    tasks_dispatched: Option<u64>,
    subject: String,
    tags: String,
    kernel_hash: String,
    run_id: String,
}

/// Parses the rows; every error names its line.
pub(super) fn parse(text: &str) -> Result<Vec<(CaseId, Row)>, BaselineError> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut rows: Vec<(CaseId, Row)> = Vec::new();
    for (index, wire) in reader.deserialize::<RowWire>().enumerate() {
        let line = index as u64 + 2;
        let (case, row) = wire?
            .into_row()
            .map_err(|message| BaselineError::Row { line, message })?;
        if let Some((last, _)) = rows.last()
            && *last >= case
        {
            let message = format!("`{case}` follows `{last}`: rows are sorted by case, each once");
            return Err(BaselineError::Row { line, message });
        }
        rows.push((case, row));
    }
    Ok(rows)
}

/// The rows as text; `rows` are in order of their cases.
pub(super) fn print<'a>(rows: impl Iterator<Item = (&'a CaseId, &'a Row)>) -> Result<String, BaselineError> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut empty = true;
    for (case, row) in rows {
        writer.serialize(RowWire::new(case, row))?;
        empty = false;
    }
    if empty {
        return Ok(String::new());
    }
    let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn join<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    values.join(" ")
}

impl RowWire {
    fn new(case: &CaseId, row: &Row) -> Self {
        let summary = &row.summary;
        let latency = summary.latency.as_ref();
        let ring = |field: fn(&RingPeak) -> u64| summary.rings.map(|rings| join(rings.iter().map(field)));
        let expected = match &summary.expectation {
            Expectation::None => None,
            Expectation::Met(e) | Expectation::NotMet(e) | Expectation::UnexpectedPass(e) | Expectation::Expired(e) => {
                Some(e)
            }
        };
        Self {
            case: case.to_string(),
            outcome: summary.outcome.kind().token().into(),
            cause: summary.outcome.cause(),
            expected: expected
                .map(|e| match &e.cause {
                    Some(cause) => format!("{}/{cause}", e.outcome),
                    None => e.outcome.clone(),
                })
                .unwrap_or_default(),
            issue: expected.and_then(|e| e.issue.clone()).unwrap_or_default(),
            until: expected.and_then(|e| e.until.clone()).unwrap_or_default(),
            statistic: row.statistic.clone(),
            unit: row.unit.clone(),
            clock: latency.map(|latency| latency.clock.token().into()).unwrap_or_default(),
            rounds: latency.map(|latency| latency.rounds),
            run_medians: latency.map(|latency| join(&latency.run_medians_ns)).unwrap_or_default(),
            // Four digits are more than is known of it, and keep the diff quiet.
            noise_floor: row.noise_floor.map(|floor| (floor * 1e4).ceil() / 1e4),
            heap_capacity_bytes: ring(|r| r.heap_capacity_bytes).unwrap_or_default(),
            heap_high_water_bytes: ring(|r| r.heap_high_water_bytes).unwrap_or_default(),
            task_window: ring(|r| r.task_window).unwrap_or_default(),
            tasks_high_water: ring(|r| r.tasks_high_water).unwrap_or_default(),
            dep_pool: ring(|r| r.dep_pool).unwrap_or_default(),
            dep_pool_high_water: ring(|r| r.dep_pool_high_water).unwrap_or_default(),
            tasks_submitted: summary.work.map(|work| work.tasks_submitted),
            tasks_dispatched: summary.work.map(|work| work.tasks_dispatched),
            subject: summary.subject.clone(),
            tags: summary.tags.join(" "),
            kernel_hash: summary.kernel_hash.clone().unwrap_or_default(),
            run_id: row.run_id.clone(),
        }
    }

    fn into_row(self) -> Result<(CaseId, Row), String> {
        let case: CaseId = self.case.parse().map_err(|error| format!("{error}"))?;
        let outcome = Outcome::from_tokens(&self.outcome, &self.cause).map_err(|error| error.to_string())?;
        let latency = self.latency()?;
        let rings = self.rings()?;
        let some = |text: String| (!text.is_empty()).then_some(text);
        let work = self.tasks_submitted.map(|tasks_submitted| WorkCounters {
            tasks_submitted,
            tasks_dispatched: self.tasks_dispatched.unwrap_or(0),
        });
        let noise_floor = match self.noise_floor {
            Some(floor) if !(0.0..=10.0).contains(&floor) => return Err(format!("a noise floor of {floor}")),
            floor => floor,
        };
        let expectation = match some(self.expected) {
            None => Expectation::None,
            Some(expected) => {
                let (kind, cause) = match expected.split_once('/') {
                    Some((kind, cause)) => (kind.to_owned(), Some(cause.to_owned())),
                    None => (expected, None),
                };
                Expectation::Met(Expected {
                    outcome: kind,
                    cause,
                    // A baseline says what is accepted; where the evidence lies is for the suite to want.
                    ring: None,
                    shows: Vec::new(),
                    issue: some(self.issue),
                    until: some(self.until),
                })
            }
        };
        let summary = CaseSummary {
            outcome,
            disagreement: Vec::new(),
            attempts: 1,
            expectation,
            latency,
            rings,
            work,
            kernel_hash: some(self.kernel_hash),
            subject: self.subject,
            tags: self.tags.split_whitespace().map(Into::into).collect(),
        };
        let row = Row {
            summary: Arc::new(summary),
            noise_floor,
            statistic: self.statistic,
            unit: self.unit,
            run_id: self.run_id,
        };
        Ok((case, row))
    }

    /// Numbers are taken as they stand, also NaN and zero: `compare` says what is wrong with them, per case.
    fn latency(&self) -> Result<Option<LatencySummary>, String> {
        if self.run_medians.is_empty() {
            return Ok(None);
        }
        let clock = match self.clock.as_str() {
            "device" => Clock::Device,
            "host" => Clock::Host,
            other => return Err(format!("unknown clock `{other}`; clocks are device, host")),
        };
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
        let medians = self.run_medians.split_whitespace().map(number);
        Ok(Some(LatencySummary {
            clock,
            rounds: self.rounds.ok_or("a latency without rounds")?,
            run_medians_ns: medians.collect::<Result<_, _>>()?,
        }))
    }

    fn rings(&self) -> Result<Option<[RingPeak; 4]>, String> {
        if self.heap_capacity_bytes.is_empty() {
            return Ok(None);
        }
        let four = |text: &str| -> Result<[u64; 4], String> {
            let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
            let numbers = numbers.map_err(|_| format!("`{text}` is no list of whole numbers"))?;
            numbers.try_into().map_err(|_| format!("`{text}` has no four values"))
        };
        let (capacity, high) = (four(&self.heap_capacity_bytes)?, four(&self.heap_high_water_bytes)?);
        let (window, tasks) = (four(&self.task_window)?, four(&self.tasks_high_water)?);
        let (pool, deps) = (four(&self.dep_pool)?, four(&self.dep_pool_high_water)?);
        Ok(Some(std::array::from_fn(|i| RingPeak {
            heap_capacity_bytes: capacity[i],
            heap_high_water_bytes: high[i],
            task_window: window[i],
            tasks_high_water: tasks[i],
            dep_pool: pool[i],
            dep_pool_high_water: deps[i],
        })))
    }
}
