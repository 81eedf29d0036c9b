//! Samples of a command: from the lines of its log, or from a JSON file that it writes.

use std::path::Path;

use regex::Regex;
use serde_json::Value;

use crate::classify::{self, parse_number};
use crate::record::{Evidence, EvidenceLine, Nanos};
use crate::suite::runner::TimeUnit;

/// Why samples can't be had, as evidence.
type Unreadable = Box<Evidence>;

fn unreadable(summary: String, lines: Vec<EvidenceLine>) -> Unreadable {
    Box::new(Evidence {
        summary,
        source: "samples".into(),
        lines,
        ..Evidence::default()
    })
}

fn nanos(value: f64, unit: TimeUnit) -> Result<Nanos, String> {
    Nanos::from_f64(value * unit.nanos() as f64).map_err(|error| error.to_string())
}

/// Every sample that `pattern` captures, in order; the line of the first that is no latency.
pub(super) fn of_log(log: &[u8], pattern: &str, unit: TimeUnit) -> Result<Vec<Nanos>, Unreadable> {
    let Ok(pattern) = Regex::new(pattern) else {
        return Ok(Vec::new());
    };
    let mut samples = Vec::new();
    for line in classify::lines(log) {
        for found in pattern.captures_iter(&line.text) {
            let Some(text) = found.name("value") else { continue };
            let sample = parse_number(text.as_str())
                .ok_or_else(|| format!("`{}` is no number", text.as_str()))
                .and_then(|value| nanos(value, unit));
            match sample {
                Ok(sample) => samples.push(sample),
                Err(reason) => {
                    let quoted = EvidenceLine {
                        line: line.number,
                        text: classify::printable(&line.text),
                    };
                    return Err(unreadable(format!("a sample can't be read: {reason}"), vec![quoted]));
                }
            }
        }
    }
    Ok(samples)
}

/// The samples at `pointer` of the JSON file `path`.
///
/// A file that isn't there, a pointer that leads nowhere and a value that is no latency are mistakes: a declared
/// source that says nothing must not read as a program without a benchmark.
pub(super) fn of_json(path: &Path, pointer: &str, unit: TimeUnit) -> Result<Vec<Nanos>, Unreadable> {
    let told = |reason: String| unreadable(format!("no samples in `{}`: {reason}", path.display()), Vec::new());
    let bytes = std::fs::read(path).map_err(|error| told(error.to_string()))?;
    let document: Value = serde_json::from_slice(&bytes).map_err(|error| told(error.to_string()))?;
    let mut values = Vec::new();
    collect(&document, pointer, "", &mut values).map_err(&told)?;
    let mut samples = Vec::new();
    for (place, value) in values {
        // A number in quotes, `null` for a NaN: what isn't a number is not guessed at.
        let number = value.as_f64().ok_or_else(|| format!("`{place}` is {value}, no number"));
        let sample = number.and_then(|number| nanos(number, unit).map_err(|reason| format!("`{place}`: {reason}")));
        samples.push(sample.map_err(&told)?);
    }
    if samples.is_empty() {
        return Err(told(format!("`{pointer}` names an empty list")));
    }
    Ok(samples)
}

/// The values at `pointer`, which leads on from `value` at `place`: a list there stands for its entries.
fn collect<'v>(
    value: &'v Value,
    pointer: &str,
    place: &str,
    found: &mut Vec<(String, &'v Value)>,
) -> Result<(), String> {
    let Some(rest) = pointer.strip_prefix('/') else {
        match value {
            Value::Array(entries) => {
                let named = entries.iter().enumerate();
                found.extend(named.map(|(index, entry)| (format!("{place}/{index}"), entry)));
            }
            single => found.push((place.to_owned(), single)),
        }
        return Ok(());
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (token, behind) = rest.split_at(end);
    if token == "*" {
        let Value::Array(entries) = value else {
            return Err(format!("`{place}` is no list, so `{place}/*` has no entries"));
        };
        for (index, entry) in entries.iter().enumerate() {
            collect(entry, behind, &format!("{place}/{index}"), found)?;
        }
        return Ok(());
    }
    let here = format!("{place}/{token}");
    let next = value.pointer(&format!("/{token}"));
    collect(
        next.ok_or_else(|| format!("nothing at `{here}`"))?,
        behind,
        &here,
        found,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(samples: &[Nanos]) -> Vec<u64> {
        samples.iter().map(|sample| sample.get()).collect()
    }

    #[test]
    fn samples_are_whole_numbers_of_their_unit() {
        let log = b"took 1.2e+06 us\nother 5\ntook 3 us, took 4.5 us\n";
        let samples = of_log(log, r"took (?<value>\S+) us", TimeUnit::Us).unwrap();
        assert_eq!(told(&samples), [1_200_000_000, 3000, 4500]);
    }

    #[test]
    fn a_sample_that_is_no_latency_is_an_error_with_its_line() {
        for (line, reason) in [
            ("took nan us", "not finite"),
            ("took 0 us", "zero"),
            ("took 1.2.3 us", "no number"),
            ("took -4 us", "negative"),
        ] {
            let log = format!("took 1 us\n{line}\n");
            let error = of_log(log.as_bytes(), r"took (?<value>\S+) us", TimeUnit::Us).unwrap_err();
            assert!(error.summary.contains(reason), "{}", error.summary);
            assert_eq!(error.lines[0].line, 2);
        }
    }

    #[track_caller]
    fn json(text: &str, pointer: &str) -> Result<Vec<u64>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), text).unwrap();
        of_json(file.path(), pointer, TimeUnit::Us)
            .map(|samples| told(&samples))
            .map_err(|error| error.summary)
    }

    #[test]
    fn a_pointer_names_a_number_a_list_or_a_field_of_each_entry() {
        let text = r#"{"a/b": {"us": [1, 2.5e3]}, "one": 7, "runs": [{"t": 3}, {"t": 4}], "lists": [[1], [2, 3]]}"#;
        assert_eq!(json(text, "/a~1b/us").unwrap(), [1000, 2_500_000]);
        assert_eq!(json(text, "/one").unwrap(), [7000]);
        assert_eq!(json(text, "/runs/*/t").unwrap(), [3000, 4000]);
        assert_eq!(json(text, "/runs/1/t").unwrap(), [4000]);
        assert_eq!(json(text, "/lists/*").unwrap(), [1000, 2000, 3000]);
        assert_eq!(json("[5]", "").unwrap(), [5000]);
    }

    #[test]
    fn what_is_no_latency_is_refused_with_its_place() {
        for (text, pointer, reason) in [
            ("{}", "/us", "nothing at `/us`"),
            (r#"{"us": [1, null]}"#, "/us", "`/us/1` is null, no number"),
            (r#"{"us": ["1"]}"#, "/us", "no number"),
            (r#"{"us": [0]}"#, "/us", "zero"),
            (r#"{"us": [-1]}"#, "/us", "negative"),
            (r#"{"us": []}"#, "/us", "empty list"),
            (r#"{"us": 1}"#, "/us/*", "is no list"),
            (r#"{"us": NaN}"#, "/us", "expected value"),
            ("", "/us", "EOF"),
        ] {
            let error = json(text, pointer).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let absent = of_json(Path::new("/no/such/file"), "", TimeUnit::Ns).unwrap_err();
        assert!(absent.summary.contains("No such file"), "{}", absent.summary);
    }
}
