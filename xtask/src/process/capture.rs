//! Output of a child on its way into the log file: raw bytes, bounded on disk and in memory.
//!
//! The head goes straight to the file. What comes after it passes through a ring that keeps the
//! last bytes; at the end a marker line says how much was left out, and the tail follows it.
//! Bytes are never interpreted: invalid UTF-8, NUL and escape sequences arrive as they were sent.

use std::io::{self, Write};
use std::path::Path;

use fs_err::File;

use super::budget::{Phase, Sign};

/// How much of a child's output is kept, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// From the start.
    pub head: usize,
    /// From the end.
    pub tail: usize,
}

impl OutputLimits {
    /// 16 MiB from the start and 2 MiB from the end: hundreds of times what a kernel prints, and
    /// little enough that a full sweep of floods fits on a laptop's disk.
    pub const STANDARD: Self = Self {
        head: 16 << 20,
        tail: 2 << 20,
    };
}

/// What became of a child's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSummary {
    /// Bytes that the child wrote (and that were read before its pipe was given up).
    pub total_bytes: u64,
    /// The part that the log lacks.
    pub omitted: Option<Omission>,
}

/// A part of the output that is not in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Omission {
    /// Where it would begin; the marker line stands there.
    pub at_byte: u64,
    /// Its length.
    pub bytes: u64,
}

/// The text that every marker line contains.
pub const OMISSION_MARK: &str = "[ringsweep: output left out here:";

#[derive(Debug)]
pub(super) struct Capture {
    log: File,
    limits: OutputLimits,
    total: u64,
    tail: Tail,
    lines: LineStarts,
}

impl Capture {
    pub(super) fn create(path: &Path, limits: OutputLimits) -> io::Result<Self> {
        Ok(Self {
            log: File::create(path)?,
            limits,
            total: 0,
            tail: Tail::new(limits.tail),
            lines: LineStarts::default(),
        })
    }

    /// Takes the next bytes of output.
    pub(super) fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let head_left = (self.limits.head as u64)
            .saturating_sub(self.total)
            .min(bytes.len() as u64) as usize;
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(head_left);
        self.log.write_all(head)?;
        self.tail.push(rest);
        Ok(())
    }

    /// The furthest phase that a line in `bytes` (already pushed or not) announces.
    pub(super) fn announced(&mut self, bytes: &[u8], signs: &[(Phase, Sign)]) -> Option<Phase> {
        self.lines.announced(bytes, signs)
    }

    /// Writes the tail behind its marker and closes the log.
    pub(super) fn finish(mut self) -> io::Result<OutputSummary> {
        let omitted_bytes = self.tail.seen - self.tail.len() as u64;
        let omitted = (omitted_bytes > 0).then_some(Omission {
            at_byte: self.limits.head as u64,
            bytes: omitted_bytes,
        });
        if let Some(omission) = omitted {
            writeln!(self.log, "\n{OMISSION_MARK} {} bytes]", omission.bytes)?;
        }
        let (older, newer) = self.tail.parts();
        self.log.write_all(older)?;
        self.log.write_all(newer)?;
        Ok(OutputSummary {
            total_bytes: self.total,
            omitted,
        })
    }
}

/// The last bytes of a stream.
#[derive(Debug)]
struct Tail {
    limit: usize,
    /// Grows to `limit`, then is overwritten from `start`.
    ring: Vec<u8>,
    start: usize,
    seen: u64,
}

impl Tail {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            ring: Vec::new(),
            start: 0,
            seen: 0,
        }
    }

    fn len(&self) -> usize {
        self.ring.len()
    }

    fn push(&mut self, bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(self.limit)..];
        let grow = bytes.len().min(self.limit - self.ring.len());
        let (first, rest) = bytes.split_at(grow);
        self.ring.extend_from_slice(first);
        if rest.is_empty() {
            return;
        }
        // Something is left over, so the ring is full and not of length zero.
        let (until_end, wrapped) = rest.split_at(rest.len().min(self.ring.len() - self.start));
        self.ring[self.start..self.start + until_end.len()].copy_from_slice(until_end);
        self.ring[..wrapped.len()].copy_from_slice(wrapped);
        self.start = (self.start + rest.len()) % self.ring.len();
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        let (newer, older) = self.ring.split_at(self.start);
        (older, newer)
    }
}

/// The start of the line that is being received: enough to compare it with signs, however long the line gets.
#[derive(Debug, Default)]
struct LineStarts {
    start: Vec<u8>,
}

impl LineStarts {
    /// No sign is longer than this, so that a line of any length is compared in bounded memory.
    const KEPT: usize = 256;

    fn announced(&mut self, bytes: &[u8], signs: &[(Phase, Sign)]) -> Option<Phase> {
        if signs.is_empty() {
            return None;
        }
        let mut furthest = None;
        // A progress bar redraws its line with a carriage return: what follows is a new start.
        for (n, line) in bytes.split(|byte| matches!(byte, b'\n' | b'\r')).enumerate() {
            if n > 0 {
                self.start.clear();
            }
            let room = Self::KEPT - self.start.len();
            self.start.extend_from_slice(&line[..line.len().min(room)]);
            for (phase, sign) in signs {
                if let Sign::OutputLine(prefix) = sign
                    && self.start.starts_with(prefix)
                {
                    furthest = furthest.max(Some(*phase));
                }
            }
        }
        furthest
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn captured(limits: OutputLimits, pieces: &[&[u8]]) -> (Vec<u8>, OutputSummary) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut capture = Capture::create(&path, limits).unwrap();
        for piece in pieces {
            capture.push(piece).unwrap();
        }
        let summary = capture.finish().unwrap();
        (fs_err::read(path).unwrap(), summary)
    }

    #[test]
    fn short_output_is_kept_as_it_is() {
        let odd = b"\xff\xfe\0\x1b[31mred\x1b[0m ]]> \r 50%\r100%\n";
        let (log, summary) = captured(OutputLimits { head: 64, tail: 8 }, &[odd]);
        assert_eq!(log, odd);
        assert_eq!(
            summary,
            OutputSummary {
                total_bytes: odd.len() as u64,
                omitted: None
            }
        );
    }

    #[test]
    fn the_middle_is_left_out_and_says_so() {
        let (log, summary) = captured(OutputLimits { head: 4, tail: 3 }, &[b"abc", b"defgh", b"ij"]);
        assert_eq!(log, b"abcd\n[ringsweep: output left out here: 3 bytes]\nhij");
        assert_eq!(summary.omitted, Some(Omission { at_byte: 4, bytes: 3 }));
    }

    proptest! {
        #[test]
        fn head_and_tail_are_those_of_the_stream(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            head in 0_usize..50,
            tail in 0_usize..50,
        ) {
            let all: Vec<u8> = pieces.concat();
            let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let (log, summary) = captured(OutputLimits { head, tail }, &slices);
            let expected = if all.len() <= head + tail {
                all.clone()
            } else {
                let omitted = all.len() - head - tail;
                let mark = format!("\n{OMISSION_MARK} {omitted} bytes]\n");
                [&all[..head], mark.as_bytes(), &all[all.len() - tail..]].concat()
            };
            prop_assert_eq!(log, expected);
            prop_assert_eq!(summary.total_bytes, all.len() as u64);
        }
    }

    #[test]
    fn a_sign_is_seen_across_pieces_and_only_at_the_start_of_a_line() {
        let signs = [(Phase::Run, Sign::OutputLine(b"[RUN] runtime".to_vec()))];
        let mut lines = LineStarts::default();
        assert_eq!(lines.announced(b"see [RUN] runtime\n[RUN", &signs), None);
        assert_eq!(lines.announced(b"] runtime ...\n", &signs), Some(Phase::Run));
        let mut lines = LineStarts::default();
        assert_eq!(lines.announced(b"10%\r[RUN] runtime", &signs), Some(Phase::Run));
    }
}
