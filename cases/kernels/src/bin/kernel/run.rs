//! `kernel run`: one case from its fixture to its verdict.
//!
//! A program is validated before it is measured, so that a mismatch never carries a latency. Every
//! dispatch has the same runtime configuration, and what the runtime says is in force is reported
//! anew for each.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kernels::dispatch::{Dispatch, RankEnd, Session, panic_text};
use kernels::kernel::{Instance, Kernel, KernelInfo, Params, SetupError, Value as ParamValue};
use kernels::registry;
use ring_runtime::{ConfigError, RingLimits, RunEnd, RunReport, RuntimeConfig, Timeouts};
use serde_json::Value;

use crate::cli::RunArgs;
use crate::human::Human;
use crate::report::Report;
use crate::turns::Turns;
use crate::verdict::{Verdict, stall_class};
use crate::wire::{self, Event, RingConfig, Stage};

struct Case<'a> {
    args: &'a RunArgs,
    report: Report,
    human: Human,
    /// The report can't be written any more: the run goes on and ends in failure.
    report_lost: Option<std::io::Error>,
}

/// Runs the case; the exit status follows the verdict, or is 2 when the report can't be opened.
pub(crate) fn main(args: &RunArgs) -> ExitCode {
    let started = Instant::now();
    let path = args
        .report
        .clone()
        .or_else(|| std::env::var_os("RINGSWEEP_REPORT").map(Into::into));
    let mut human = Human::new();
    let report = match Report::open(path.as_deref()) {
        Ok(report) => report,
        Err(error) => {
            human.line(format_args!(
                "failed to open the report `{}`: {error}",
                path.unwrap_or_default().display()
            ));
            return ExitCode::from(2);
        }
    };
    let mut case = Case {
        args,
        report,
        human,
        report_lost: None,
    };
    let verdict = match case.run() {
        Ok(verdict) | Err(verdict) => verdict,
    };
    if let Some(peak_rss_bytes) = crate::memory::peak_rss_bytes() {
        case.emit(&Event::Memory { peak_rss_bytes });
    }
    case.emit(&Event::Verdict {
        verdict: verdict.outcome,
        cause: &verdict.cause,
        message: &verdict.message,
    });
    case.human.end(&verdict, started.elapsed());
    if let Some(error) = case.report_lost {
        case.human.line(format_args!("failed to write the report: {error}"));
        return ExitCode::FAILURE;
    }
    if verdict.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The setup of a case that is wrong as it was asked for.
fn setup_error(error: &SetupError) -> Verdict {
    Verdict::new("setup-error", "configuration", error.to_string())
}

/// A panic while inputs or the golden were made: out of memory says so in its text.
fn panicked(stage: &str, text: &str) -> Verdict {
    if text.contains("bytes of memory") {
        return Verdict::new("oom", "host", text);
    }
    Verdict::new("crash", "panic", format!("{stage} panicked: {text}"))
}

fn config_error(error: &ConfigError) -> Verdict {
    let mut text = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        text = format!("{text}: {source}");
    }
    match error {
        ConfigError::Map { .. } | ConfigError::Thread { .. } => Verdict::new("oom", "host", text),
        ConfigError::HeapTooSmall { .. }
        | ConfigError::TaskWindow { .. }
        | ConfigError::DepPool { .. }
        | ConfigError::HeapSum
        | ConfigError::TensorMap { .. }
        | ConfigError::TimeoutOrder { .. } => Verdict::new("setup-error", "configuration", text),
    }
}

fn ring_config(config: &RuntimeConfig) -> RingConfig {
    RingConfig {
        heap: config.rings.map(|r| r.heap()),
        task_window: config.rings.map(|r| r.task_window()),
        dep_pool: config.rings.map(|r| r.dep_pool()),
    }
}

impl Case<'_> {
    fn emit(&mut self, event: &Event<'_>) {
        if let Err(error) = self.report.line(event) {
            self.report_lost.get_or_insert(error);
        }
    }

    /// Runs `work` as a stage; `title` is what people read.
    fn stage<T>(
        &mut self,
        stage: &'static str,
        title: &str,
        work: impl FnOnce(&mut Self) -> Result<T, Verdict>,
    ) -> Result<T, Verdict> {
        self.human.line(format_args!("[RUN] {title} ..."));
        self.emit(&Event::Stage(Stage {
            stage,
            phase: "begin",
            elapsed_ns: None,
            ok: None,
        }));
        let start = Instant::now();
        let result = match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(result) => result,
            Err(payload) => Err(panicked(title, &panic_text(&*payload))),
        };
        let elapsed = start.elapsed();
        let elapsed_ns = Some(elapsed.as_nanos() as u64);
        self.emit(&Event::Stage(Stage {
            stage,
            phase: "end",
            elapsed_ns,
            ok: Some(result.is_ok()),
        }));
        // The original says "done" even when the stage failed; here a failed stage says so.
        let word = if result.is_ok() { "done" } else { "failed" };
        self.human
            .line(format_args!("[RUN] {title} {word} ({:.2}s)", elapsed.as_secs_f64()));
        result
    }

    fn hello(&mut self, params: BTreeMap<String, Value>) {
        let args = self.args;
        self.emit(&Event::Hello {
            protocol: wire::VERSION,
            program: &args.name,
            pid: std::process::id(),
            case: args.case.as_deref(),
            kernel_hash: crate::hash::of_this_executable(),
            seed: args.seed,
            platform: "host",
            params,
        });
    }

    fn resolve(&mut self) -> Result<(&'static dyn Kernel, Params), Verdict> {
        let resolved = registry::find(&self.args.name).and_then(|kernel| {
            let info = kernel.info();
            Params::resolve(info.name, info.params, &self.args.params).map(|params| (kernel, params))
        });
        let params = match &resolved {
            Ok((_, params)) => params
                .iter()
                .map(|(name, value)| {
                    let value = match value {
                        ParamValue::Word(word) => Value::from(word),
                        ParamValue::Int(value) => Value::from(value),
                        ParamValue::Real(value) => Value::from(value),
                    };
                    (name.to_owned(), value)
                })
                .collect(),
            // Nothing was resolved: what was typed.
            Err(_) => self
                .args
                .params
                .iter()
                .map(|(n, v)| (n.clone(), Value::from(v.as_str())))
                .collect(),
        };
        self.hello(params);
        resolved.map_err(|error| setup_error(&error))
    }

    fn config(&self, info: &KernelInfo) -> Result<RuntimeConfig, Verdict> {
        let a = self.args;
        let least = info.min_cores();
        if let Some(cores) = a.cores.filter(|cores| *cores < least) {
            return Err(setup_error(&SetupError::TooFewCores {
                kernel: info.name,
                least,
                cores,
            }));
        }
        let ring = |r: usize| RingLimits::new(a.ring_heap[r], a.ring_task_window[r], a.ring_dep_pool[r]);
        let rings = (0..4)
            .map(ring)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| config_error(&e))?;
        let rings = rings.try_into().expect("there are four rings");
        let machine = std::thread::available_parallelism()
            .unwrap_or(NonZeroUsize::MIN)
            .max(least);
        let mut timeouts = Timeouts::DEFAULT;
        if let Some(ms) = a.scheduler_timeout_ms {
            timeouts.scheduler = Duration::from_millis(ms);
        }
        if let Some(ms) = a.alloc_timeout_ms {
            timeouts.alloc = Duration::from_millis(ms);
        }
        let config = RuntimeConfig::new(rings, a.cores.unwrap_or(machine)).with_timeouts(timeouts);
        Ok(config.with_fixed_processors(0))
    }

    /// The case; `Err` is a verdict that ends it early.
    fn run(&mut self) -> Result<Verdict, Verdict> {
        let (kernel, params) = self.resolve()?;
        let config = self.config(kernel.info())?;
        let seed = self.args.seed;
        let instance: Box<dyn Instance> = self.stage("fixture", "generate inputs", |_| {
            kernel.prepare(&params, seed).map_err(|error| setup_error(&error))
        })?;
        let mut session = Session::new(instance, &config).map_err(|error| config_error(&error))?;
        let outcome = self.dispatches(&mut session);
        if session.is_poisoned() {
            // A core never came back: joining it would wait for ever.
            session.abandon();
        }
        outcome
    }

    fn dispatches(&mut self, session: &mut Session) -> Result<Verdict, Verdict> {
        self.stage("runtime", "runtime", |case| {
            case.dispatch(session, 0, "correctness", Duration::ZERO).map(|_| ())
        })?;
        if session.instance().has_golden() {
            self.stage("golden", "compute golden", |_| {
                session.instance().golden();
                Ok(())
            })?;
            self.stage("validate", "validate", |case| {
                let verdicts = session.instance().validate();
                for verdict in &verdicts {
                    case.human.tensor(verdict);
                    case.emit(&Event::Tensor(Box::new(wire::Tensor::from(verdict))));
                }
                match Verdict::of_outputs(&verdicts) {
                    verdict if verdict.outcome == "pass" => Ok(()),
                    verdict => Err(verdict),
                }
            })
            .inspect_err(|_| {
                if self.args.rounds > 0 {
                    self.human.line("[RUN]   benchmark skipped: the outputs do not match");
                }
            })?;
        }
        if self.args.rounds > 0 {
            self.stage("benchmark", "benchmark", |case| case.benchmark(session))?;
        }
        if session.instance().has_golden() {
            Ok(Verdict::pass())
        } else {
            Ok(Verdict::new(
                "no-verdict",
                "validation-skipped",
                "the kernel has no golden",
            ))
        }
    }

    fn benchmark(&mut self, session: &mut Session) -> Result<(), Verdict> {
        let (warmup, rounds) = (self.args.warmup, self.args.rounds);
        let mut took = Duration::ZERO;
        for index in 1..=warmup {
            took = self.dispatch(session, index, "warmup", Duration::ZERO)?;
        }
        // Waiting for a turn is no part of a sample.
        let mut turns = self.args.turns.as_ref().map(Turns::open).transpose().map_err(|error| {
            Verdict::new(
                "setup-error",
                "configuration",
                format!("failed to open the pipes of the turns: {error}"),
            )
        })?;
        let mut samples = Vec::new();
        let mut delay = took.mul_f64(self.args.delay);
        for index in warmup + 1..=warmup + rounds {
            if !turns.as_mut().is_none_or(Turns::wait) {
                turns = None;
            }
            let took = self.dispatch(session, index, "timed", delay)?;
            // What this dispatch took by itself says how long the next one is delayed; on a machine whose
            // speed changes, a share of any other time would not be that share.
            delay = took.saturating_sub(delay).mul_f64(self.args.delay);
            // A dispatch of no measurable time is still a positive sample.
            let device_ns = (took.as_nanos() as u64).max(1);
            self.emit(&Event::Sample {
                index,
                device_ns,
                clock: "device",
            });
            samples.push(device_ns);
        }
        turns.as_mut().map(Turns::wait);
        self.human.samples(&samples);
        Ok(())
    }

    /// One dispatch with everything that is reported about it; its device time.
    fn dispatch(
        &mut self,
        session: &mut Session,
        index: u32,
        kind: &'static str,
        delay: Duration,
    ) -> Result<Duration, Verdict> {
        let a = self.args;
        let asked = RingConfig {
            heap: a.ring_heap,
            task_window: a.ring_task_window,
            dep_pool: a.ring_dep_pool,
        };
        let effective: Vec<_> = session.configs().map(ring_config).collect();
        for (rank, effective) in effective.iter().enumerate() {
            self.emit(&Event::Rings {
                dispatch: index,
                rank,
                asked,
                effective: Some(*effective),
                source: "runtime",
            });
            self.human.rings(effective);
        }
        if let Some(other) = effective.iter().find(|e| **e != asked) {
            let message = format!("asked for {asked:?}, the runtime has {other:?}");
            return Err(Verdict::new("config-not-applied", "ring-differs", message));
        }
        let dispatch = if kind == "correctness" {
            session.dispatch(delay)
        } else {
            session.measure(delay)
        };
        for (rank, end) in dispatch.ranks.iter().enumerate() {
            self.emit(&dispatch_event(index, kind, rank, end.report()));
        }
        if let Some(rank) = dispatch.failed {
            self.failure(index, rank, &dispatch);
            return Err(Verdict::of_failure(&dispatch.ranks[rank]));
        }
        Ok(dispatch.device().expect("every rank passed"))
    }

    /// Evidence of the rank that failed first.
    fn failure(&mut self, dispatch: u32, rank: usize, ends: &Dispatch) {
        let report = match &ends.ranks[rank] {
            RankEnd::Reported(report) => report,
            RankEnd::ProgramPanicked(message) => {
                self.emit(&Event::Panic {
                    dispatch,
                    rank,
                    task: None,
                    message: message.clone(),
                });
                return;
            }
        };
        match &report.end {
            RunEnd::Fatal(fatal) => {
                self.human.fatal(fatal);
                self.emit(&Event::Fatal(Box::new(wire::Fatal::of(dispatch, rank, fatal))));
            }
            RunEnd::Stalled(stall) => {
                self.human.stall(stall);
                self.emit(&Event::Stall {
                    dispatch,
                    rank,
                    class: stall_class(stall.class),
                    completed: stall.completed,
                    total: stall.total,
                    running: stall.running as u64,
                    ready: stall.ready as u64,
                    waiting: stall.waiting,
                    orch_done: stall.orch_done,
                    stuck_task: stall.stuck_task.map(|(id, name)| format!("{id} {name}")),
                    stuck_core: stall.stuck_core,
                });
            }
            RunEnd::Panicked(panic) => self.emit(&Event::Panic {
                dispatch,
                rank,
                task: Some(format!("{} {}", panic.task, panic.name)),
                message: panic.message.clone(),
            }),
            RunEnd::Passed | RunEnd::Stopped | RunEnd::Poisoned => {}
        }
    }
}

fn dispatch_event(index: u32, kind: &'static str, rank: usize, report: Option<&RunReport>) -> Event<'static> {
    Event::Dispatch {
        index,
        kind,
        rank,
        device_ns: report
            .filter(|r| r.passed())
            .map(|r| (r.device.as_nanos() as u64).max(1)),
        usage: report.map(|r| r.rings.map(wire::Usage::from)),
        tasks: report.map(|r| wire::Tasks {
            submitted: r.tasks.submitted,
            dispatched: r.tasks.kernels,
            dependency_only: r.tasks.dependency_only,
            allocations: r.tasks.allocations,
        }),
        launched: report.map(|r| r.first_launch),
    }
}
