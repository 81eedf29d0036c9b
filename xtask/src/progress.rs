//! What is told while a plan runs: a redrawn bar on a terminal, otherwise one line per finished case.
//!
//! The dispatcher's thread is the only one that gets here, so nothing is drawn through.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::dispatch::Notice;
use crate::outcome::Outcome;
use crate::process::Request;
use crate::record::{CaseRecord, Expectation};
use crate::report::plain;
use crate::ui::{Colour, Look, Motion};

/// How often a bar is redrawn while nothing happens.
pub const REDRAW: Duration = Duration::from_millis(200);

/// The progress of one run.
pub struct Progress<'a> {
    err: &'a mut dyn Write,
    colour: Colour,
    bar: Option<ProgressBar>,
    total: usize,
    finished: usize,
    running: BTreeMap<(String, u32), Instant>,
}

impl std::fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress")
            .field("total", &self.total)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

/// What is done after an interrupt, and what another one would do.
pub const fn stopping(request: Request) -> &'static str {
    match request {
        Request::Continue | Request::Stop => "stopping: interrupt again to kill",
        Request::Kill => "killing",
    }
}

impl<'a> Progress<'a> {
    /// Progress over `total` process runs, of which `finished` already have been, told to `err`.
    pub fn new(err: &'a mut dyn Write, look: Look, total: usize, finished: usize) -> Self {
        let bar = (look.progress == Motion::Redraw).then(|| {
            let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{elapsed_precise} [{bar:24}] {pos}/{len} {wide_msg}");
            bar.with_style(style.expect("the template is constant"))
        });
        Self {
            err,
            colour: look.colour,
            bar,
            total,
            finished,
            running: BTreeMap::new(),
        }
    }

    /// Takes a notice of the dispatcher.
    pub fn notice(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Started { case, repeat, .. } => {
                self.running.insert((case.id.to_string(), *repeat), Instant::now());
            }
            Notice::Finished { record, again } => {
                self.running.remove(&(record.case.to_string(), record.repeat));
                self.finished += usize::from(!again);
                let line = finished_line(record, *again, self.finished, self.total, self.colour);
                self.say(&line);
            }
            Notice::Quarantined { device } => self.say(&format!(
                "device {device} is quarantined: cases that need it are blocked"
            )),
            Notice::Stopping { running, request } => {
                self.say(&format!("{} ({running} running)", stopping(*request)));
            }
            Notice::Tick => {}
        }
        self.redraw();
    }

    /// Ends the redrawing, so that other output may follow.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&mut self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            // Progress that nobody can read must not end the sweep.
            None => drop(writeln!(self.err, "{line}").and_then(|()| self.err.flush())),
        }
    }

    fn redraw(&self) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(self.finished as u64);
        let running = self
            .running
            .iter()
            .map(|((case, _), since)| format!("{case} {}s", since.elapsed().as_secs()));
        bar.set_message(running.collect::<Vec<_>>().join("  "));
        bar.tick();
    }
}

/// `[ 3/14] pass  suite/case  2.1s`.
fn finished_line(record: &CaseRecord, again: bool, finished: usize, total: usize, colour: Colour) -> String {
    let width = total.to_string().len();
    let counter = if again {
        format!("[{:>width$}]", "again", width = 2 * width + 1)
    } else {
        format!("[{finished:>width$}/{total}]")
    };
    let outcome = colour.outcome(record.outcome.kind(), &record.outcome.to_string());
    let run = (record.repeat > 0).then(|| format!(" (run {})", record.repeat + 1));
    let attempt = (record.attempt > 1).then(|| format!(" (attempt {})", record.attempt));
    let total = record.phases.total;
    let time = (!total.is_zero()).then(|| format!(" {:.1}s", total.as_secs_f64()));
    let remark = match &record.expectation {
        Expectation::Met(_) => " (expected)",
        Expectation::UnexpectedPass(_) => " (a failure was expected)",
        Expectation::Expired(_) => " (its expectation has expired)",
        Expectation::NotMet(_) => " (another failure was expected)",
        Expectation::None => "",
    };
    let why = if record.outcome == Outcome::Pass || record.evidence.summary.is_empty() {
        String::new()
    } else {
        // What a case printed must not move the cursor.
        format!(": {}", plain(&record.evidence.summary))
    };
    let parts = [run, attempt, time].map(Option::unwrap_or_default).concat();
    format!("{counter} {outcome} {}{parts}{remark}{why}", record.case)
}
