//! Following a report file while it grows, for signs of life and of phases.
//!
//! This is not the reader of the protocol (see [`crate::protocol`]): it looks for one event and
//! ignores all else, in bounded memory, while the writer is in the middle of a line.

use std::io::Read;
use std::path::PathBuf;

use super::budget::{Phase, Sign};

/// Longest line that is looked at; stage events are far shorter, and a longer line is skipped.
const LINE_LIMIT: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct ReportTail {
    path: PathBuf,
    file: Option<std::fs::File>,
    seen_bytes: u64,
    line: Vec<u8>,
    fresh: Vec<String>,
}

#[derive(serde::Deserialize)]
struct StageEvent {
    event: String,
    stage: Option<String>,
    phase: Option<String>,
}

impl ReportTail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            seen_bytes: 0,
            line: Vec::new(),
            fresh: Vec::new(),
        }
    }

    /// Whether something was appended since the last call.
    pub(super) fn grew(&mut self) -> bool {
        if self.file.is_none() {
            self.file = std::fs::File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return false };
        if file.metadata().is_ok_and(|meta| meta.len() <= self.seen_bytes) {
            return false;
        }
        let mut chunk = vec![0; 64 << 10];
        let mut grew = false;
        // One turn reads a bounded amount; a report that outgrows it is looked at again on the next tick.
        for _ in 0..64 {
            match file.read(&mut chunk) {
                Ok(n) if n > 0 => {
                    grew = true;
                    self.seen_bytes += n as u64;
                    for part in chunk[..n].split_inclusive(|byte| *byte == b'\n') {
                        let room = LINE_LIMIT.saturating_sub(self.line.len());
                        self.line.extend_from_slice(&part[..part.len().min(room)]);
                        if part.ends_with(b"\n") {
                            self.fresh.extend(begun_stage(&self.line));
                            self.line.clear();
                        }
                    }
                }
                _ => break,
            }
        }
        grew
    }

    /// The furthest phase that the stages which began since the last call announce.
    pub(super) fn announced(&mut self, signs: &[(Phase, Sign)]) -> Option<Phase> {
        let fresh = std::mem::take(&mut self.fresh);
        let announced = |stage: &String| {
            let of_stage = signs
                .iter()
                .filter(|(_, sign)| matches!(sign, Sign::ReportStage(name) if name == stage));
            of_stage.map(|(phase, _)| *phase).max()
        };
        fresh.iter().filter_map(announced).max()
    }
}

fn begun_stage(line: &[u8]) -> Option<String> {
    let event: StageEvent = serde_json::from_slice(line).ok()?;
    (event.event == "stage" && event.phase.as_deref() == Some("begin")).then_some(event.stage)?
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_stage_counts_once_its_line_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.jsonl");
        let signs = [(Phase::Run, Sign::ReportStage("runtime".into()))];
        let mut tail = ReportTail::new(path.clone());
        assert!(!tail.grew(), "there is no file yet");

        let mut file = fs_err::File::create(path).unwrap();
        file.write_all(
            b"{\"event\":\"stage\",\"stage\":\"golden\",\"phase\":\"begin\"}\n{\"event\":\"stage\",\"stage\":\"run",
        )
        .unwrap();
        assert!(tail.grew());
        assert_eq!(tail.announced(&signs), None);
        file.write_all(b"time\",\"phase\":\"begin\"}\nnot json\n").unwrap();
        assert!(tail.grew());
        assert_eq!(tail.announced(&signs), Some(Phase::Run));
        assert!(!tail.grew());
        assert_eq!(tail.announced(&signs), None);
    }
}
