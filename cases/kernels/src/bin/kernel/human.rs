//! Lines for people on stdout, in the style of the original's runner.

use std::io::{self, Write};
use std::time::Duration;

use kernels::compare::{Outcome, TensorVerdict};
use ring_runtime::{Fatal, Proof, Resource, Stall};

use crate::verdict::{Verdict, stall_class};
use crate::wire::RingConfig;

/// Writes to stdout and forgets failures: the report is what counts, and a closed pipe must not end a run.
#[derive(Debug)]
pub(crate) struct Human {
    out: io::Stdout,
}

impl Human {
    pub(crate) fn new() -> Self {
        Self { out: io::stdout() }
    }

    /// One line.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) {
        let mut out = self.out.lock();
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    }

    /// The sizes in force.
    pub(crate) fn rings(&mut self, rings: &RingConfig) {
        self.line(format_args!(
            "Ring buffer sizes: task_window={:?} heap={:?} dep_pool={:?}",
            rings.task_window, rings.heap, rings.dep_pool
        ));
    }

    /// One output, and the reason below it when it fails.
    pub(crate) fn tensor(&mut self, verdict: &TensorVerdict) {
        let word = match verdict.outcome {
            Outcome::Pass => "PASS",
            Outcome::Mismatch | Outcome::Nan | Outcome::GoldenNan => "FAIL",
        };
        let shape = verdict
            .shape
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        self.line(format_args!(
            "[RUN]   '{}' {word}  shape=({shape}) dtype={} ({})",
            verdict.name,
            verdict.dtype.name(),
            verdict.rule
        ));
        if !verdict.passed() {
            self.line(format_args!("    {}", verdict.message));
            if let Some(first) = &verdict.first {
                self.line(format_args!(
                    "    {:?} actual={}, expected={}",
                    first.index, first.actual, first.expected
                ));
            }
        }
    }

    /// The block of a fatal error.
    pub(crate) fn fatal(&mut self, fatal: &Fatal) {
        let ring = fatal.ring.map_or_else(|| "-".to_owned(), |r| r.index().to_string());
        let title = match fatal.resource {
            Resource::Scope { .. } => format!("Scope Deadlock Detected! (ring {ring})"),
            Resource::Heap(_) => format!("Task Allocator Deadlock - Heap Exhausted! ring={ring}"),
            Resource::Slots(_) => format!("Task Allocator Deadlock - Task Ring Full! ring={ring}"),
            Resource::DepPool(_) => "Dependency Pool Deadlock Detected!".to_owned(),
            Resource::FaninPool(_) => "Fanin Spill Pool Deadlock Detected!".to_owned(),
            Resource::TensorMap { .. } => "TensorMap Entry Pool Deadlock Detected!".to_owned(),
            Resource::Arguments => "Invalid Arg!".to_owned(),
            Resource::ScopeTasks { .. } | Resource::Cores { .. } | Resource::TensorData { .. } | Resource::Program => {
                fatal.code.name().to_owned()
            }
        };
        self.line(format_args!(
            "FATAL: {title} code={} {}",
            fatal.code.number(),
            fatal.code.name()
        ));
        if let Resource::Heap(s) | Resource::Slots(s) = &fatal.resource {
            self.line(format_args!(
                "Heap ring {ring}: top={}, tail={}, size={}, used={}, available={}",
                s.top, s.tail, s.capacity, s.used, s.free
            ));
            self.line(format_args!("Requested: {} bytes", s.requested));
            self.line(format_args!(
                "Task ring {ring}: current={}, last_alive={}, window={}, active={}",
                s.current,
                s.last_alive,
                s.window,
                s.active()
            ));
        }
        if let Some(head) = &fatal.head {
            self.line(format_args!(
                "Head task {} `{}`: state={:?}, consumers={}/{}, scope_released={}",
                head.id,
                head.name,
                head.state,
                head.consumers_done,
                head.consumers,
                u8::from(head.scope_released)
            ));
        }
        match fatal.proof {
            Some(Proof::Structural) => self.line("Provable head-of-line deadlock."),
            Some(Proof::Backstop) => self.line("No reclaim progress within the allocation limit."),
            Some(Proof::Immediate) | None => {}
        }
        self.line(format_args!("{fatal}"));
    }

    /// The watchdog's line.
    pub(crate) fn stall(&mut self, s: &Stall) {
        let task = s
            .stuck_task
            .map_or_else(|| "-".to_owned(), |(id, name)| format!("{id} `{name}`"));
        let core = s.stuck_core.map_or_else(|| "-".to_owned(), |c| c.to_string());
        self.line(format_args!(
            "scheduler timeout sub_class={} completed={}/{} running={} ready={} waiting={} orch_done={} stuck_task={task} stuck_core={core}",
            stall_class(s.class), s.completed, s.total, s.running, s.ready, s.waiting, u8::from(s.orch_done)
        ));
    }

    /// Summary of the samples, in microseconds with three digits after the point: exact, as samples are whole nanoseconds.
    pub(crate) fn samples(&mut self, samples: &[u64]) {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            return;
        };
        let n = sorted.len();
        let us = |ns: f64| ns / 1000.0;
        let median = f64::midpoint(sorted[(n - 1) / 2] as f64, sorted[n / 2] as f64);
        let mean = sorted.iter().map(|s| *s as f64).sum::<f64>() / n as f64;
        self.line(format_args!(
            "[RUN]   effective_us ({n} rounds) min={:.3} median={:.3} mean={:.3} max={:.3}",
            us(*min as f64),
            us(median),
            us(mean),
            us(*max as f64)
        ));
    }

    /// The last line.
    pub(crate) fn end(&mut self, verdict: &Verdict, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        match (verdict.outcome, verdict.is_success()) {
            ("pass", _) => self.line(format_args!("[RUN] PASS ({seconds:.2}s)")),
            (_, true) => self.line(format_args!(
                "[RUN] PASS ({seconds:.2}s, validation skipped: no golden)"
            )),
            (outcome, false) => {
                self.line(&verdict.message);
                self.line(format_args!("[RUN] FAIL ({seconds:.2}s): {outcome}/{}", verdict.cause));
            }
        }
    }
}
