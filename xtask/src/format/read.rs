//! Reads a run's directory back, whole or after a kill.

use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{FormatError, Header, RecordWire, RunWire};
use crate::record::{CaseRecord, Run, RunStatus};

/// First line of `records.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordsHeader {
    /// See [`Header`].
    pub format: String,
    /// See [`Header`].
    pub major: u32,
    /// See [`Header`].
    pub minor: u32,
    /// The run that the records belong to.
    pub run_id: String,
}

impl RecordsHeader {
    /// The header that this harness writes.
    pub fn new(run_id: &str) -> Self {
        let Header { format, major, minor } = Header::current();
        Self {
            format,
            major,
            minor,
            run_id: run_id.into(),
        }
    }
}

/// Which file of a run could not be read, and why.
#[derive(Debug, thiserror::Error)]
#[error("failed to read `{path}`")]
pub struct ReadError {
    /// The file.
    pub path: String,
    /// Why.
    #[source]
    pub source: FormatError,
}

fn at(path: &Path) -> impl Fn(FormatError) -> ReadError + '_ {
    move |source| ReadError {
        path: path.display().to_string(),
        source,
    }
}

/// Reads the run in `dir`.
///
/// A torn last line of `records.jsonl` (the harness was killed while it wrote) is left out, since
/// every line before it is whole; the run is then incomplete whatever `run.json` says.
pub fn run(dir: &Path) -> Result<Run, ReadError> {
    let path = dir.join("run.json");
    let text = std::fs::read_to_string(&path).map_err(|error| at(&path)(error.into()))?;
    let mut provenance = parse_run(&text).map_err(at(&path))?;
    let path = dir.join("records.jsonl");
    let file = std::fs::File::open(&path).map_err(|error| at(&path)(error.into()))?;
    let (records, torn) = parse_records(BufReader::new(file), &provenance.run_id).map_err(at(&path))?;
    let run = Run {
        provenance: provenance.clone(),
        records,
    };
    if torn || !run.missing().is_empty() {
        provenance.status = RunStatus::Incomplete;
    }
    Ok(Run { provenance, ..run })
}

/// Parses `run.json`; the version is looked at before anything else, so that a newer file is called newer, not broken.
pub fn parse_run(text: &str) -> Result<crate::record::Provenance, FormatError> {
    let json = |source| FormatError::Json { line: 1, source };
    let header: Header = serde_json::from_str(text).map_err(json)?;
    header.check()?;
    let wire: RunWire = serde_json::from_str(text).map_err(json)?;
    wire.into_provenance()
}

/// Parses `records.jsonl` of run `run_id`; the flag says whether the last line was torn.
pub fn parse_records(reader: impl BufRead, run_id: &str) -> Result<(Vec<CaseRecord>, bool), FormatError> {
    let mut lines = reader.split(b'\n').enumerate();
    let Some((_, first)) = lines.next() else {
        return Err(FormatError::Empty);
    };
    let first = first?;
    if first.is_empty() {
        return Err(FormatError::Empty);
    }
    let header: RecordsHeader =
        serde_json::from_slice(&first).map_err(|source| FormatError::Json { line: 1, source })?;
    Header {
        format: header.format,
        major: header.major,
        minor: header.minor,
    }
    .check()?;
    if header.run_id != run_id {
        return Err(FormatError::OtherRun {
            records: header.run_id,
            run: run_id.into(),
        });
    }
    let mut records = Vec::new();
    let mut torn: Option<FormatError> = None;
    for (index, line) in lines {
        let (line, number) = (line?, index + 1);
        // An unreadable line is forgiven only as the last one: there it is the line that a kill cut short.
        if let Some(error) = torn.take() {
            return Err(error);
        }
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice::<RecordWire>(&line) {
            Ok(wire) => {
                let record = wire
                    .into_record()
                    .map_err(|message| FormatError::Value { line: number, message })?;
                records.push(record);
            }
            Err(source) => torn = Some(FormatError::Json { line: number, source }),
        }
    }
    Ok((records, torn.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FormatVersion;

    const HEADER: &str = r#"{"format":"ringsweep-results","major":1,"minor":0,"run_id":"r1"}"#;
    const RECORD: &str = r#"{"case":"s/a","attempt":1,"repeat":0,"outcome":"pass","expectation":{"state":"none"},"evidence":{"summary":"","source":"report"},"rings":{"asked":null,"effective":null,"usage":null},"latency":{"clock":"device","samples_ns":[10,12]},"queue_ns":0,"setup_ns":5,"total_ns":9,"declared_memory_bytes":null,"peak_memory_bytes":null,"work":null,"kernel":"k","params":{},"seed":1,"kernel_hash":null,"tags":[],"devices":[],"log":null}"#;

    fn parse(text: &str) -> Result<(Vec<CaseRecord>, bool), FormatError> {
        parse_records(text.as_bytes(), "r1")
    }

    #[test]
    fn a_record_survives_the_round_trip() {
        let (records, torn) = parse(&format!("{HEADER}\n{RECORD}\n")).unwrap();
        assert!(!torn);
        let again = serde_json::to_string(&RecordWire::new(&records[0])).unwrap();
        assert_eq!(parse(&format!("{HEADER}\n{again}\n")).unwrap().0, records);
    }

    #[test]
    fn a_torn_last_line_is_left_out_and_said() {
        for cut in 1..RECORD.len() {
            let (records, torn) = parse(&format!("{HEADER}\n{RECORD}\n{}", &RECORD[..cut])).unwrap();
            assert_eq!((records.len(), torn), (1, true), "cut at {cut}");
        }
    }

    #[test]
    fn a_torn_line_in_the_middle_is_an_error() {
        let error = parse(&format!("{HEADER}\n{}\n{RECORD}\n", &RECORD[..40])).unwrap_err();
        assert!(matches!(error, FormatError::Json { line: 2, .. }), "{error}");
    }

    #[test]
    fn records_of_another_run_are_refused() {
        let other = HEADER.replace("r1", "r2");
        assert!(matches!(
            parse(&format!("{other}\n")).unwrap_err(),
            FormatError::OtherRun { .. }
        ));
    }

    #[test]
    fn a_newer_major_is_refused_with_advice() {
        let newer = HEADER.replace(
            r#""major":1"#,
            &format!(r#""major":{}"#, FormatVersion::CURRENT.major + 1),
        );
        let error = parse(&format!("{newer}\n{{\"new\":\"shape\"}}\n"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("update the checkout"), "{error}");
    }

    #[test]
    fn samples_that_are_no_latencies_are_refused() {
        let zero = RECORD.replace("[10,12]", "[10,0]");
        assert!(matches!(
            parse(&format!("{HEADER}\n{zero}\n")).unwrap_err(),
            FormatError::Value { line: 2, .. }
        ));
        let empty = RECORD.replace("[10,12]", "[]");
        assert!(parse(&format!("{HEADER}\n{empty}\n")).is_err());
    }
}
