//! The two programs that a suspect is measured with, and one more process run of each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{self, AtomicBool};

use anyhow::Context as _;
use crossbeam_channel::{Receiver, unbounded};

use crate::case_id::CaseId;
use crate::cmd::sweep::Engine;
use crate::dispatch::{self, Ending, Notice, Settings};
use crate::kernel_binary::KernelBinary;
use crate::plan::Plan;
use crate::process::Request;
use crate::provenance;
use crate::record::{CaseRecord, Run};
use crate::run_dir::RunDir;
use crate::runner::{self, Runner, embedded::Embedded};
use crate::suite::runner::RunnerKind;
use crate::turns::{Pipes, Turnstile};

/// Which of the two programs a side is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    /// The one of the baseline's commit.
    Base,
    /// The one of this tree.
    This,
}

impl Whose {
    /// The name of the side's run.
    const fn run_id(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::This => "now",
        }
    }
}

impl std::fmt::Display for Whose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Base => "the baseline's own program",
            Self::This => "this tree's program",
        })
    }
}

/// One program with its fresh runs.
pub(super) struct Side {
    whose: Whose,
    cases: BTreeSet<CaseId>,
    binary: Option<Binary>,
    runners: runner::Runners,
    pub(super) directory: RunDir,
    pub(super) records: Vec<CaseRecord>,
}

impl Side {
    pub(super) fn new(
        whose: Whose,
        commit: Option<String>,
        plan: &Plan,
        cases: &Path,
        binary: Option<&KernelBinary>,
        run: &Run,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let mut provenance = run.provenance.clone();
        provenance.run_id = whose.run_id().into();
        provenance.started = provenance::now();
        provenance.git_commit = commit;
        provenance.planned = plan.cases.iter().map(|case| case.id.clone()).collect();
        Ok(Self {
            whose,
            cases: plan.cases.iter().map(|case| case.id.clone()).collect(),
            binary: binary.map(|binary| Binary {
                path: binary.path().to_owned(),
                takes_turns: binary.takes_turns(),
            }),
            runners: runner::of_plan(plan, cases, binary.map(KernelBinary::path))?,
            directory: RunDir::create(dir, provenance).context("failed to create the fresh runs")?,
            records: Vec::new(),
        })
    }

    /// Whether this side measures the cases of `plan`.
    pub(super) fn has(&self, plan: &Plan) -> bool {
        plan.cases.iter().all(|case| self.cases.contains(&case.id))
    }

    /// What its process runs of a case were lost by, where some gave no latency; they are no part of any verdict, and
    /// a report can't tell of them.
    pub(super) fn loss(&self, case: &CaseId) -> Option<String> {
        let all = || self.records.iter().filter(|record| record.case == *case);
        let lost: Vec<&CaseRecord> = all().filter(|record| record.latency.is_none()).collect();
        let worst = lost.iter().min_by_key(|record| record.outcome.kind())?;
        Some(format!(
            "{case} measured again: {} of {} process runs of {} don't count, such as one that ended as {} (`{}`)",
            lost.len(),
            all().count(),
            self.whose,
            worst.outcome,
            self.directory
                .path()
                .join(worst.log.as_deref().unwrap_or("records.jsonl"))
                .display()
        ))
    }

    /// The runners of this side, whose kernels take turns over `pipes`.
    fn taking_turns(&self, pipes: &Pipes) -> runner::Runners {
        let kernels = self.binary.iter().map(|binary| {
            let runner = Embedded::new(&binary.path).taking_turns(pipes.clone());
            (RunnerKind::Embedded, Box::new(runner) as Box<dyn Runner>)
        });
        kernels.collect()
    }
}

/// The kernels of a side.
struct Binary {
    path: PathBuf,
    takes_turns: bool,
}

/// One more process run of a case on every side.
pub(super) struct Pass<'a> {
    pub(super) plan: &'a Plan,
    pub(super) settings: &'a Settings,
    pub(super) engine: &'a Engine,
    pub(super) root: &'a Path,
}

impl Pass<'_> {
    fn work<'a>(
        &'a self,
        runners: &'a runner::Runners,
        done: &'a [CaseRecord],
        interrupts: Receiver<()>,
    ) -> dispatch::Work<'a> {
        dispatch::Work {
            interrupts,
            ..self.engine.work(self.plan, runners, self.settings, done, self.root)
        }
    }

    /// On one side, with the machine to itself. `tell` hears of an interrupt.
    pub(super) fn alone(&self, side: &mut Side, tell: &mut dyn FnMut(Request)) -> anyhow::Result<Ending> {
        let interrupts = self.engine.interrupts.clone();
        let work = self.work(&side.runners, &side.records, interrupts);
        let (ending, mut fresh) = run(&work, &mut side.directory, tell)?;
        side.records.append(&mut fresh);
        Ok(ending)
    }

    /// Whether both sides can live at the same time and take turns.
    pub(super) fn takes_turns(&self, base: &Side, now: &Side) -> bool {
        let [case] = &self.plan.cases[..] else { return false };
        let fits = self.settings.memory_bytes.is_none_or(|memory| {
            let need = dispatch::memory_of(case);
            need.saturating_mul(2) <= memory
        });
        fits && [base, now]
            .iter()
            .all(|side| side.has(self.plan) && side.binary.as_ref().is_some_and(|b| b.takes_turns))
    }

    /// On both sides at once, in turn. `tell` hears of an interrupt.
    pub(super) fn in_turn(
        &self,
        base: &mut Side,
        now: &mut Side,
        tell: &mut dyn FnMut(Request),
    ) -> anyhow::Result<Ending> {
        let turnstile =
            Turnstile::create(base.directory.path()).context("failed to make the pipes for taking turns")?;
        let ended = [AtomicBool::new(false), AtomicBool::new(false)];
        let has_ended = |side: usize| ended[side].load(atomic::Ordering::SeqCst);
        let (stops, interrupts): (Vec<_>, Vec<_>) = (0..2).map(|_| unbounded()).unzip();
        let mut request = Request::Continue;
        let rounds = self.plan.cases.iter().map(|case| case.bench.rounds).max().unwrap_or(0);
        let endings = std::thread::scope(|scope| {
            let sides = [(0, base), (1, now)];
            let threads = sides.map(|(index, side)| {
                let (turnstile, ended, interrupts) = (&turnstile, &ended, interrupts[index].clone());
                scope.spawn(move || {
                    let _ended = Ended(&ended[index]);
                    let runners = side.taking_turns(&turnstile.pipes()[index]);
                    let work = self.work(&runners, &side.records, interrupts);
                    let (ending, mut fresh) = run(&work, &mut side.directory, &mut |_| {})?;
                    side.records.append(&mut fresh);
                    anyhow::Ok(ending)
                })
            });
            turnstile.preside(rounds, &has_ended, &mut || {
                // Both sides must stop, whichever would have heard of it.
                while self.engine.interrupts.try_recv().is_ok() {
                    for stop in &stops {
                        let _ = stop.send(());
                    }
                    request = match request {
                        Request::Continue => Request::Stop,
                        Request::Stop | Request::Kill => Request::Kill,
                    };
                    tell(request);
                }
            });
            threads.map(|thread| thread.join().expect("a pass doesn't panic"))
        });
        let [base, now] = endings;
        Ok(match (base?, now?) {
            // Both were over when the interrupt came, and nobody else will hear of it.
            _ if request != Request::Continue => Ending::Interrupted,
            (Ending::Finished, ending) | (ending, _) => ending,
        })
    }
}

/// Runs `work` and gives its last attempts.
fn run(
    work: &dispatch::Work<'_>,
    directory: &mut RunDir,
    tell: &mut dyn FnMut(Request),
) -> anyhow::Result<(Ending, Vec<CaseRecord>)> {
    let mut fresh = Vec::new();
    let ending = dispatch::run(work, directory, &mut |notice| match notice {
        Notice::Finished { record, again: false } => fresh.push(record.clone()),
        Notice::Stopping { request, .. } => tell(request),
        Notice::Finished { .. } | Notice::Started { .. } | Notice::Quarantined { .. } | Notice::Tick => {}
    })?;
    Ok((ending, fresh))
}

/// Says that a side has ended when it does, in whatever way.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, atomic::Ordering::SeqCst);
    }
}
