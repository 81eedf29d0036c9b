//! Quoting a log as evidence.

use crate::record::{EvidenceLine, MAX_LINE_BYTES, MAX_LINES};

/// Lines quoted from the end of a log when nothing better is known.
const END_LINES: usize = 6;

/// The last lines of `log` that are not empty.
pub fn quote_end(log: &[u8]) -> Vec<EvidenceLine> {
    let mut lines: Vec<EvidenceLine> = numbered(log).collect();
    let from = lines.len().saturating_sub(END_LINES);
    lines.drain(..from);
    lines
}

/// The first line that contains `needle` and the block that it opens, which ends at the next stage line.
pub(super) fn quote_from(log: &[u8], needle: &str) -> Vec<EvidenceLine> {
    let mut lines = numbered(log).skip_while(|line| !line.text.contains(needle));
    let first: Vec<EvidenceLine> = lines.next().into_iter().collect();
    let block = lines.take_while(|line| !line.text.starts_with("[RUN]"));
    first.into_iter().chain(block).take(MAX_LINES).collect()
}

fn numbered(log: &[u8]) -> impl Iterator<Item = EvidenceLine> + '_ {
    log.split(|byte| *byte == b'\n').zip(1..).filter_map(|(line, number)| {
        // Of a progress bar only its last state is worth a quote.
        let last = line.split(|byte| *byte == b'\r').rfind(|state| !state.is_empty())?;
        let text = printable(&last[..last.len().min(4 * MAX_LINE_BYTES)]);
        (!text.trim().is_empty()).then_some(EvidenceLine { line: number, text })
    })
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = String::new();
    for c in text.trim_end().chars() {
        if shown.len() + c.len_utf8() > MAX_LINE_BYTES - '…'.len_utf8() {
            shown.push('…');
            break;
        }
        shown.push(if c.is_control() { '\u{fffd}' } else { c });
    }
    shown
}
