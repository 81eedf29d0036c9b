//! From declarations and a command line to a plan.

use std::{collections::BTreeMap, sync::Arc};

use super::{Bench, Disposition, Plan, PlannedCase};
use crate::{
    case_id::CaseId,
    catalogue::{Catalogue, has_runner, matrix_hash, runner},
    document::At,
    kernels::Kernels,
    platform::{Platform, PlatformName, machine_memory},
    ring::{Resource, RingConfig, RingError, RingLayer, Tier},
    select::Selection,
    size::Bytes,
    suggest,
    suite::{
        budget::{BudgetLayer, BudgetOrder},
        file::{Depth, Suite},
        matrix::Declared,
        runner::{EmbeddedSpec, RunnerKind, RunnerSpec},
        stack::Stack,
    },
};

/// What was asked for, beside the files.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// Which cases.
    pub selection: Selection,
    /// On which platform.
    pub platform: PlatformName,
    /// The ring tier of the command line.
    pub ring: RingLayer,
    /// Timed dispatches of every case.
    pub rounds: Option<u32>,
    /// Warm-up dispatches of every case.
    pub warmup: Option<u32>,
    /// The seed of every case; 0 where none was asked for.
    pub seed: Option<u64>,
    /// Time limits of every case, over what they declare.
    pub budgets: BudgetLayer,
    /// Full or quick.
    pub depth: Depth,
}

/// The sizes of a benchmark where nobody says.
const DEFAULT_BENCH: Bench = Bench { warmup: 1, rounds: 5 };
/// The same for quick runs.
const QUICK_BENCH: Bench = Bench { warmup: 0, rounds: 1 };

/// Why a request can't be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A platform that isn't declared.
    #[error("unknown platform `{name}`: {help}")]
    Platform {
        /// As typed.
        name: String,
        /// The declared ones.
        help: String,
    },
    /// A suite that doesn't exist.
    #[error("unknown suite `{name}`: {help}")]
    Suite {
        /// As typed.
        name: String,
        /// The existing ones.
        help: String,
    },
    /// No case is left.
    #[error("{0}")]
    NothingSelected(String),
    /// Rings that can't be.
    #[error("`{case}` can't run with these rings: {source}")]
    Rings {
        /// The case.
        case: CaseId,
        /// Why.
        source: RingError,
    },
    /// A ring setting of the command line that a program is never told.
    #[error("`{case}` can't be told `--ring-{}`: its `command.rings` doesn't carry it", .resource.token().replace('_', "-"))]
    RingChannel {
        /// The case.
        case: CaseId,
        /// What was asked for.
        resource: Resource,
    },
    /// Budgets of the command line that contradict those of a case.
    #[error("`{case}` can't run with these budgets: {source}")]
    Budgets {
        /// The case.
        case: CaseId,
        /// Why.
        source: BudgetOrder,
    },
    /// A case that needs more than the platform has.
    #[error("`{case}` needs {need} of memory, more than the {limit} of platform `{platform}`", need = .need.human(), limit = .limit.human())]
    Memory {
        /// The case.
        case: CaseId,
        /// Its declared peak.
        need: Bytes,
        /// What there is.
        limit: Bytes,
        /// The platform.
        platform: String,
    },
    /// A case that takes more devices than the platform has, or one that it doesn't have.
    #[error("`{case}` takes {need}, but platform `{platform}` has {have} device(s)")]
    Devices {
        /// The case.
        case: CaseId,
        /// What it takes, in words.
        need: String,
        /// How many there are.
        have: usize,
        /// The platform.
        platform: String,
    },
}

impl Plan {
    /// Resolves `request` against what is declared. `kernels` tells ranks and levels that cases leave out.
    pub fn resolve(catalogue: &Catalogue, kernels: &Kernels, request: &PlanRequest) -> Result<Self, PlanError> {
        let platform = catalogue
            .platforms
            .get(&request.platform)
            .ok_or_else(|| PlanError::Platform {
                name: request.platform.to_string(),
                help: suggest::help(
                    request.platform.as_str(),
                    "platforms",
                    catalogue.platforms.keys().map(PlatformName::as_str),
                ),
            })?;
        let names = catalogue.suites.iter().map(|suite| suite.name.as_str());
        if let Some(name) = request
            .selection
            .suites()
            .iter()
            .find(|name| catalogue.suite(name).is_none())
        {
            return Err(PlanError::Suite {
                name: name.clone(),
                help: suggest::help(name, "suites", names),
            });
        }
        let suites: Vec<_> = catalogue
            .suites
            .iter()
            .filter(|suite| request.selection.in_scope(suite))
            .collect();
        let resolver = Resolver {
            platform,
            kernels,
            request,
            machine: machine_memory(),
        };
        let (mut declared, mut cases) = (Vec::new(), Vec::new());
        for suite in &suites {
            for case in &suite.cases {
                let stack = suite.stack(case, &platform.name, request.depth);
                if !exists(&stack, platform) {
                    continue;
                }
                declared.push(&case.id);
                let tags = stack.tags();
                if request.selection.takes(&case.id, &tags) {
                    cases.push(resolver.case(suite, case, &stack, &tags)?);
                }
            }
        }
        if cases.is_empty() {
            return Err(nothing_selected(request, &declared, &suites));
        }
        Ok(Self {
            platform: platform.clone(),
            suites: suites.iter().map(|suite| suite.name.clone()).collect(),
            matrix: matrix_hash(suites.iter().copied()),
            declared: declared.len(),
            cases,
            renamed: suites
                .iter()
                .flat_map(|suite| &suite.renamed)
                .map(|(from, to)| (from.value.clone(), to.value.clone()))
                .collect(),
        })
    }
}

/// A case exists on the platforms that it names, else on those where it has something to run.
fn exists(stack: &Stack<'_>, platform: &Platform) -> bool {
    match stack.first(|layer| layer.platforms.as_ref()) {
        Some(platforms) => platforms.value.iter().any(|name| name.value == platform.name),
        None => has_runner(stack, platform),
    }
}

/// Owned copies of values by name.
fn owned<V: Clone>(entries: BTreeMap<&str, &At<V>>) -> BTreeMap<String, V> {
    let entries = entries.into_iter();
    entries.map(|(name, at)| (name.to_owned(), at.value.clone())).collect()
}

fn nothing_selected(request: &PlanRequest, declared: &[&CaseId], suites: &[&Suite]) -> PlanError {
    let names: Vec<_> = suites.iter().map(|suite| format!("`{}`", suite.name)).collect();
    let mut lines = vec![format!(
        "no case selected: {} declared on platform `{}` in {}",
        declared.len(),
        request.platform,
        if names.is_empty() {
            "no suite".into()
        } else {
            names.join(", ")
        }
    )];
    for filter in request.selection.idle(declared) {
        let near = Selection::near(filter, declared);
        lines.push(if near.is_empty() {
            format!("  `{filter}` matches no id")
        } else {
            format!("  `{filter}` matches no id; near: {}", near.join(", "))
        });
    }
    PlanError::NothingSelected(lines.join("\n"))
}

struct Resolver<'a> {
    platform: &'a Platform,
    kernels: &'a Kernels,
    request: &'a PlanRequest,
    machine: Option<Bytes>,
}

impl Resolver<'_> {
    fn case(&self, suite: &Suite, case: &Declared, stack: &Stack<'_>, tags: &[&str]) -> Result<PlannedCase, PlanError> {
        let kernel = stack.first(|layer| layer.kernel.as_ref());
        let kernel = kernel.and_then(|kernel| self.kernels.get(&kernel.value));
        let ranks = stack.first(|layer| layer.ranks.as_ref()).map(|at| at.value);
        let ranks = ranks.or(kernel.map(|kernel| kernel.ranks)).unwrap_or(1);
        let pin = stack
            .first(|layer| layer.pin.as_ref())
            .map(|at| at.value.clone())
            .unwrap_or_default();
        let devices = self.devices(&case.id, stack, ranks, &pin)?;
        let [own, defaults] = suite.rings(case, Some(&self.platform.name));
        let rings = RingConfig::resolve(&[
            (Tier::CommandLine, self.request.ring),
            own,
            defaults,
            (Tier::Platform, self.platform.ring),
        ]);
        let limit = self.platform.memory.limit(devices, self.machine);
        rings
            .check_fits(ranks, limit, self.platform.name.as_str())
            .map_err(|source| PlanError::Rings {
                case: case.id.clone(),
                source,
            })?;
        let memory = stack.first(|layer| layer.memory.as_ref()).map(|at| at.value);
        if let (Some(need), Some(limit)) = (memory, limit)
            && need > limit
        {
            return Err(PlanError::Memory {
                case: case.id.clone(),
                need,
                limit,
                platform: self.platform.name.to_string(),
            });
        }
        let budgets = self.request.budgets.over(stack.budgets());
        let budgets = budgets.resolve().map_err(|source| PlanError::Budgets {
            case: case.id.clone(),
            source,
        })?;
        let level = stack.first(|layer| layer.level.as_ref()).map(|at| at.value);
        Ok(PlannedCase {
            id: case.id.clone(),
            description: stack
                .first(|layer| layer.description.as_ref())
                .map(|at| at.value.clone()),
            disposition: self.disposition(stack),
            runner: self.runner(&case.id, stack)?,
            params: owned(stack.entries(|layer| &layer.params)),
            level: level.or(kernel.and_then(|kernel| kernel.level)),
            ranks,
            devices,
            pin,
            memory,
            memory_limit: stack.first(|layer| layer.memory_limit.as_ref()).map(|at| at.value),
            rings,
            budgets,
            bench: self.bench(stack),
            seed: self.request.seed.unwrap_or(0),
            env: owned(stack.entries(|layer| &layer.env)),
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            expect: stack.first(|layer| layer.expect.as_ref()).map(|at| at.value.clone()),
            retry: stack.first(|layer| layer.retry.as_ref()).map(|at| at.value.clone()),
        })
    }

    fn disposition(&self, stack: &Stack<'_>) -> Disposition {
        let here = |on: &[At<PlatformName>]| on.is_empty() || on.iter().any(|on| on.value == self.platform.name);
        match stack.first(|layer| layer.skip.as_ref()) {
            Some(skip) if here(&skip.value.on) => Disposition::Skip(skip.value.reason.clone()),
            _ => Disposition::Run,
        }
    }

    /// Device slots: as declared, else one per rank where the platform has devices.
    fn devices(&self, id: &CaseId, stack: &Stack<'_>, ranks: u32, pin: &[u32]) -> Result<u32, PlanError> {
        let ids = &self.platform.devices;
        let least = if ids.is_empty() { 0 } else { ranks };
        let pinned = u32::try_from(pin.len()).unwrap_or(u32::MAX);
        let declared = stack.first(|layer| layer.devices.as_ref());
        let devices = declared.map_or(least.max(pinned), |at| at.value);
        let stranger = pin.iter().find(|id| !ids.contains(id));
        if devices as usize > ids.len() || stranger.is_some() {
            return Err(PlanError::Devices {
                case: id.clone(),
                need: stranger.map_or(format!("{devices} device(s)"), |stranger| format!("device {stranger}")),
                have: ids.len(),
                platform: self.platform.name.to_string(),
            });
        }
        Ok(devices)
    }

    fn bench(&self, stack: &Stack<'_>) -> Bench {
        let default = match self.request.depth {
            Depth::Full => DEFAULT_BENCH,
            Depth::Quick => QUICK_BENCH,
        };
        Bench {
            warmup: self.request.warmup.or(stack.warmup()).unwrap_or(default.warmup),
            rounds: self.request.rounds.or(stack.rounds()).unwrap_or(default.rounds),
        }
    }

    fn runner(&self, id: &CaseId, stack: &Stack<'_>) -> Result<RunnerSpec, PlanError> {
        let checked = "cases without what their runner needs don't exist on the platform";
        match runner(stack, self.platform) {
            RunnerKind::Embedded => Ok(RunnerSpec::Embedded(EmbeddedSpec {
                kernel: stack.first(|layer| layer.kernel.as_ref()).expect(checked).value.clone(),
                tolerances: owned(stack.entries(|layer| &layer.tolerances)),
            })),
            RunnerKind::Pypto => {
                let program = stack.first(|layer| layer.pypto.as_ref()).expect(checked);
                Ok(RunnerSpec::Pypto(Arc::clone(&program.value)))
            }
            RunnerKind::Command => {
                let command = &stack.first(|layer| layer.command.as_ref()).expect(checked).value;
                let asked = |resource: &Resource| self.request.ring.get(*resource).is_some();
                let dropped = Resource::ALL.into_iter().filter(asked);
                match dropped.into_iter().find(|&resource| !command.rings.carries(resource)) {
                    Some(resource) => Err(PlanError::RingChannel {
                        case: id.clone(),
                        resource,
                    }),
                    None => Ok(RunnerSpec::Command(Arc::clone(command))),
                }
            }
        }
    }
}
