//! From declarations and a command line to a plan.

use super::{Bench, Disposition, Plan, PlannedCase};
use crate::{
    case_id::CaseId,
    catalogue::{Catalogue, has_runner, matrix_hash, runner},
    kernels::Kernels,
    platform::{Platform, PlatformName, machine_memory},
    ring::{Resource, RingConfig, RingError, RingLayer, Tier},
    select::Selection,
    size::Bytes,
    suggest,
    suite::{
        budget::{BudgetLayer, BudgetOrder},
        file::{Depth, Suite},
        layer::Layer,
        matrix::Declared,
        runner::{EmbeddedSpec, RunnerKind, RunnerSpec},
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
                let layer = suite.settings(case, &platform.name, request.depth);
                if !exists(&layer, platform) {
                    continue;
                }
                declared.push(&case.id);
                let tags = tags(&layer);
                if request.selection.takes(&case.id, &tags) {
                    cases.push(resolver.case(suite, case, layer, tags)?);
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
fn exists(layer: &Layer, platform: &Platform) -> bool {
    match &layer.platforms {
        Some(platforms) => platforms.value.iter().any(|name| name.value == platform.name),
        None => has_runner(layer, platform),
    }
}

fn tags(layer: &Layer) -> Vec<String> {
    let mut tags: Vec<_> = layer.tags.iter().map(|tag| tag.value.clone()).collect();
    tags.sort();
    tags.dedup();
    tags
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
    fn case(&self, suite: &Suite, case: &Declared, layer: Layer, tags: Vec<String>) -> Result<PlannedCase, PlanError> {
        let kernel = layer.kernel.as_ref().and_then(|kernel| self.kernels.get(&kernel.value));
        let ranks = layer
            .ranks
            .as_ref()
            .map(|at| at.value)
            .or(kernel.map(|kernel| kernel.ranks))
            .unwrap_or(1);
        let pin = layer.pin.as_ref().map(|at| at.value.clone()).unwrap_or_default();
        let devices = self.devices(&case.id, &layer, ranks, &pin)?;
        let [own, defaults] = suite.rings(case, &self.platform.name);
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
        let memory = layer.memory.as_ref().map(|at| at.value);
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
        let budgets = self
            .request
            .budgets
            .over(layer.budgets)
            .resolve()
            .map_err(|source| PlanError::Budgets {
                case: case.id.clone(),
                source,
            })?;
        let runner = self.runner(&case.id, &layer)?;
        let skip = layer.skip.as_ref().map(|at| &at.value);
        let skip = skip.filter(|skip| skip.on.is_empty() || skip.on.iter().any(|on| on.value == self.platform.name));
        Ok(PlannedCase {
            id: case.id.clone(),
            description: layer.description.as_ref().map(|at| at.value.clone()),
            disposition: skip.map_or(Disposition::Run, |skip| Disposition::Skip(skip.reason.clone())),
            runner,
            params: layer
                .params
                .iter()
                .map(|(name, at)| (name.clone(), at.value.clone()))
                .collect(),
            level: layer
                .level
                .as_ref()
                .map(|at| at.value)
                .or(kernel.and_then(|kernel| kernel.level)),
            ranks,
            devices,
            pin,
            memory,
            rings,
            budgets,
            bench: self.bench(&layer),
            seed: self.request.seed.unwrap_or(0),
            env: layer.env.into_iter().map(|(name, at)| (name, at.value)).collect(),
            tags,
            expect: layer.expect.map(|at| at.value),
            retry: layer.retry.map(|at| at.value),
        })
    }

    /// Device slots: as declared, else one per rank where the platform has devices.
    fn devices(&self, id: &CaseId, layer: &Layer, ranks: u32, pin: &[u32]) -> Result<u32, PlanError> {
        let ids = &self.platform.devices;
        let least = if ids.is_empty() { 0 } else { ranks };
        let pinned = u32::try_from(pin.len()).unwrap_or(u32::MAX);
        let devices = layer.devices.as_ref().map_or(least.max(pinned), |at| at.value);
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

    fn bench(&self, layer: &Layer) -> Bench {
        let default = match self.request.depth {
            Depth::Full => DEFAULT_BENCH,
            Depth::Quick => QUICK_BENCH,
        };
        let pick = |asked: Option<u32>, declared: &Option<crate::document::At<u32>>, default| {
            asked.or(declared.as_ref().map(|at| at.value)).unwrap_or(default)
        };
        Bench {
            warmup: pick(self.request.warmup, &layer.warmup, default.warmup),
            rounds: pick(self.request.rounds, &layer.rounds, default.rounds),
        }
    }

    fn runner(&self, id: &CaseId, layer: &Layer) -> Result<RunnerSpec, PlanError> {
        let checked = "cases without what their runner needs don't exist on the platform";
        match runner(layer, self.platform) {
            RunnerKind::Embedded => Ok(RunnerSpec::Embedded(EmbeddedSpec {
                kernel: layer.kernel.clone().expect(checked).value,
                tolerances: layer
                    .tolerances
                    .iter()
                    .map(|(name, at)| (name.clone(), at.value))
                    .collect(),
            })),
            RunnerKind::Pypto => Ok(RunnerSpec::Pypto(layer.pypto.clone().expect(checked).value)),
            RunnerKind::Command => {
                let command = layer.command.clone().expect(checked).value;
                let asked = |resource: &Resource| self.request.ring.get(*resource).is_some();
                match Resource::ALL
                    .into_iter()
                    .filter(asked)
                    .find(|&resource| !command.rings.carries(resource))
                {
                    Some(resource) => Err(PlanError::RingChannel {
                        case: id.clone(),
                        resource,
                    }),
                    None => Ok(RunnerSpec::Command(command)),
                }
            }
        }
    }
}
