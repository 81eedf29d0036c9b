//! From what was typed to a plan, with the exit codes of what can go wrong on the way.

use std::collections::BTreeMap;

use anyhow::Context as _;

use super::{Context, Failure};
use crate::{
    catalogue::{Catalogue, LoadError},
    cli::{BenchArgs, RingArgs, SelectArgs},
    exit::Exit,
    kernel_binary::KernelBinary,
    kernels::Kernels,
    plan::{Plan, PlanError, PlanRequest},
    platform::PlatformName,
    select::Selection,
    suite::{budget::BudgetLayer, file::Depth},
};

/// What is known before a plan is made.
#[derive(Debug)]
pub struct Declared {
    /// Platforms and suites.
    pub catalogue: Catalogue,
    /// The kernels.
    pub kernels: Kernels,
    /// Their binary, when a case can use it and it could be built.
    pub binary: Option<KernelBinary>,
}

impl Declared {
    /// Reads the suites; builds and asks the kernel binary when a case can use it. A binary that can't be had is told
    /// as a warning, since suites can be listed without.
    pub fn load(context: &mut Context<'_>) -> anyhow::Result<Self> {
        // Until a case needs one, there is none to know.
        let (mut kernels, mut binary) = (Kernels::Known(BTreeMap::new()), None);
        let root = context.root.clone();
        let loaded = Catalogue::load(&context.cases, || {
            kernels = match KernelBinary::build(&root) {
                Ok(built) => built.list().inspect(|_| binary = Some(built)),
                Err(error) => Err(error),
            }
            .unwrap_or_else(|error| Kernels::Unknown(format!("{:#}", anyhow::Error::from(error))));
            kernels.clone()
        });
        let catalogue = match loaded {
            Ok(catalogue) => catalogue,
            Err(LoadError::Problems(problems)) => {
                return Err(Failure::usage(format!(
                    "the suites have mistakes\n\n{}",
                    problems.render(context.style)
                )));
            }
            Err(error @ LoadError::Empty(_)) => return Err(Failure::usage(error.to_string())),
            Err(error @ LoadError::Io(_)) => {
                return Err(error).with_context(|| format!("failed to load `{}`", context.cases.display()));
            }
        };
        Ok(Self {
            catalogue,
            kernels,
            binary,
        })
    }

    /// Resolves what was typed into a plan.
    pub fn plan(
        &self,
        select: &SelectArgs,
        rings: &RingArgs,
        bench: &BenchArgs,
        budgets: BudgetLayer,
    ) -> anyhow::Result<Plan> {
        let selection = Selection::new(&select.filters, &select.skip, &select.tag, &select.suite)
            .map_err(|error| Failure::usage(format!("{:#}", anyhow::Error::from(error))))?;
        let host = || PlatformName::new(PlatformName::HOST).expect("`host` is one word");
        let request = PlanRequest {
            selection,
            platform: select.platform.clone().unwrap_or_else(host),
            ring: rings.layer(),
            rounds: bench.rounds,
            warmup: bench.warmup,
            seed: bench.seed,
            budgets,
            depth: if bench.quick { Depth::Quick } else { Depth::Full },
        };
        Plan::resolve(&self.catalogue, &self.kernels, &request).map_err(|error| match error {
            PlanError::NothingSelected(text) => Failure::ending(Exit::NothingSelected, text),
            error => Failure::usage(error.to_string()),
        })
    }
}
