//! What no single file can know: platforms, runners, budgets and kernels of every case.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::Catalogue;
use crate::{
    diagnostic::{Problem, Span},
    document::At,
    kernels::{KernelInfo, Kernels},
    platform::{Platform, PlatformName},
    ring::Resource,
    suggest,
    suite::{
        file::{Depth, Suite},
        layer::{Layer, Settings},
        matrix::Declared,
        runner::{RingChannel, RunnerKind},
        stack::Stack,
        template::{Parameter, Template},
    },
};

/// What was found so far. Mistakes are told once, though they hold for every point of a matrix and on every platform.
#[derive(Default)]
struct Found {
    seen: BTreeSet<(usize, String)>,
    problems: Vec<(Span, Problem)>,
}

impl Found {
    fn push(&mut self, suite: &Suite, span: &Span, message: String, label: &str, help: impl FnOnce() -> String) {
        if self.seen.insert((span.start, message.clone())) {
            let problem = Problem::new(&suite.source, span.clone(), message, label).help(help());
            self.problems.push((span.clone(), problem));
        }
    }
}

/// Checks every case of every suite, in parallel: a matrix may have very many.
fn each_case(
    catalogue: &Catalogue,
    defaults: impl Fn(&Suite, &mut Found),
    check: impl Fn(&Suite, &Declared, &mut Found) + Sync,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for suite in &catalogue.suites {
        let mut first = Found::default();
        defaults(suite, &mut first);
        let found = suite.cases.par_iter().map(|case| {
            let mut found = Found::default();
            check(suite, case, &mut found);
            found.problems
        });
        let found: Vec<_> = found.collect();
        let mut seen = BTreeSet::new();
        for (span, problem) in first.problems.into_iter().chain(found.into_iter().flatten()) {
            if seen.insert((span.start, problem.to_string())) {
                problems.push(problem);
            }
        }
    }
    problems
}

/// Checks all that needs no kernel list. Of suites in `unclear` nothing is said to be missing.
pub(super) fn suites(catalogue: &Catalogue, unclear: &BTreeSet<String>) -> Vec<Problem> {
    each_case(
        catalogue,
        |suite, found| platform_names(catalogue, suite, &suite.defaults, found),
        |suite, case, found| {
            for settings in case.tier.settings() {
                platform_names(catalogue, suite, settings, found);
            }
            for layer in case.tier.layers() {
                platforms_of(catalogue, suite, layer, found);
            }
            if !unclear.contains(&suite.name) {
                exists_somewhere(catalogue, suite, case, found);
            }
            for platform in catalogue.platforms.values() {
                for depth in [Depth::Full, Depth::Quick] {
                    budgets(suite, case, &suite.stack(case, &platform.name, depth), found);
                }
                command(suite, case, platform, found);
            }
        },
    )
}

fn platform_names(catalogue: &Catalogue, suite: &Suite, settings: &Settings, found: &mut Found) {
    for (name, layer) in &settings.on {
        platform_name(catalogue, suite, &At::new(name.clone(), layer.span.clone()), found);
    }
    for layer in settings.layers() {
        platforms_of(catalogue, suite, layer, found);
    }
}

fn platforms_of(catalogue: &Catalogue, suite: &Suite, layer: &Layer, found: &mut Found) {
    for name in layer.platforms.iter().flat_map(|at| &at.value) {
        platform_name(catalogue, suite, name, found);
    }
    for name in layer.skip.iter().flat_map(|at| &at.value.on) {
        platform_name(catalogue, suite, name, found);
    }
}

fn platform_name(catalogue: &Catalogue, suite: &Suite, name: &At<PlatformName>, found: &mut Found) {
    if !catalogue.platforms.contains_key(&name.value) {
        let message = format!("unknown platform `{}`", name.value);
        found.push(suite, &name.span, message, "not declared", || {
            let names = catalogue.platforms.keys().map(PlatformName::as_str);
            suggest::help(name.value.as_str(), "platforms", names)
        });
    }
}

/// The runner of a case on a platform.
pub(crate) fn runner(stack: &Stack<'_>, platform: &Platform) -> RunnerKind {
    let declared = stack.first(|layer| layer.runner.as_ref());
    declared.map_or(platform.runner, |runner| runner.value)
}

/// True when the case declares what its runner on the platform needs.
pub(crate) fn has_runner(stack: &Stack<'_>, platform: &Platform) -> bool {
    match runner(stack, platform) {
        RunnerKind::Embedded => stack.first(|layer| layer.kernel.as_ref()).is_some(),
        RunnerKind::Pypto => stack.first(|layer| layer.pypto.as_ref()).is_some(),
        RunnerKind::Command => stack.first(|layer| layer.command.as_ref()).is_some(),
    }
}

fn exists_somewhere(catalogue: &Catalogue, suite: &Suite, case: &Declared, found: &mut Found) {
    let needs = |kind| match kind {
        RunnerKind::Embedded => "`kernel = \"…\"`",
        RunnerKind::Pypto => "`pypto = { program = \"…\" }`",
        RunnerKind::Command => "`command = { argv = [\"…\"] }`",
    };
    let mut any = false;
    for platform in catalogue.platforms.values() {
        let stack = suite.stack(case, &platform.name, Depth::Full);
        let has = has_runner(&stack, platform);
        any |= has;
        let wanted = stack.first(|layer| layer.platforms.as_ref());
        let wanted = wanted.iter().flat_map(|at| &at.value);
        if let Some(name) = wanted.into_iter().find(|name| name.value == platform.name && !has) {
            let kind = runner(&stack, platform);
            let message = format!("`{}` has nothing to run on `{}`", case.id, platform.name);
            found.push(suite, &name.span, message, "declared to exist here", || {
                format!("the `{kind}` runner needs {}", needs(kind))
            });
            any = true;
        }
    }
    if !any {
        let message = format!("`{}` has nothing to run", case.id);
        found.push(suite, &case.span, message, "no runner can start it", || {
            format!(
                "give it {}, {} or {}",
                needs(RunnerKind::Embedded),
                needs(RunnerKind::Pypto),
                needs(RunnerKind::Command)
            )
        });
    }
}

fn budgets(suite: &Suite, case: &Declared, stack: &Stack<'_>, found: &mut Found) {
    if let Err(error) = stack.budgets().resolve() {
        let span = stack.first(|layer| layer.budgets_span.as_ref()).unwrap_or(&case.span);
        found.push(suite, span, error.to_string(), "these budgets", || {
            "silence ≤ run ≤ total and setup ≤ total must hold; queue stands alone".into()
        });
    }
}

/// A ring setting that a program is never told, and parameters that its argv names but the case lacks.
fn command(suite: &Suite, case: &Declared, platform: &Platform, found: &mut Found) {
    let stack = suite.stack(case, &platform.name, Depth::Full);
    let command = stack.first(|layer| layer.command.as_ref());
    let (RunnerKind::Command, Some(command)) = (runner(&stack, platform), command) else {
        return;
    };
    let ring = stack.ring();
    for resource in Resource::ALL {
        if ring.get(resource).is_some() && !command.value.rings.carries(resource) {
            let span = stack.ring_span().unwrap_or(&case.span);
            let message = format!("`ring.{}` never reaches the program", resource.token());
            found.push(suite, span, message, "declared here", || match command.value.rings {
                RingChannel::None => "declare `command.rings`, or leave the ring config out".into(),
                _ => format!("let `command.rings` carry `{}` too", resource.token()),
            });
        }
    }
    for parameter in command.value.argv.iter().flat_map(Template::parameters) {
        if let Parameter::Param(name) = parameter
            && stack.first(|layer| layer.params.get(name)).is_none()
        {
            let message = format!("the argv names `{{param.{name}}}`, which `{}` doesn't set", case.id);
            found.push(suite, &command.span, message, "in this command", || {
                let names = stack.entries(|layer| &layer.params);
                suggest::help(name, "its parameters", names.keys().copied())
            });
        }
    }
}

/// Checks that the classification rules that commands name can be had; `load` says why not.
pub(super) fn rules(
    catalogue: &Catalogue,
    names: &[String],
    load: impl Fn(&str) -> Result<(), String> + Sync,
) -> Vec<Problem> {
    each_case(
        catalogue,
        |_, _| {},
        |suite, case, found| {
            for command in case
                .tier
                .layers()
                .chain(suite.defaults.layers())
                .filter_map(|layer| layer.command.as_ref())
            {
                let Some(name) = &command.value.rules else { continue };
                if let Err(message) = load(name) {
                    found.push(suite, &command.span, message, "these rules are named here", || {
                        suggest::help(name, "rule sets", names.iter().map(String::as_str))
                    });
                }
            }
        },
    )
}

/// Checks kernels, parameters and tolerances; nothing when the kernels aren't known.
pub(super) fn kernels(catalogue: &Catalogue, kernels: &Kernels) -> Vec<Problem> {
    let Kernels::Known(known) = kernels else {
        return Vec::new();
    };
    each_case(
        catalogue,
        |_, _| {},
        |suite, case, found| {
            for platform in catalogue.platforms.values() {
                for depth in [Depth::Full, Depth::Quick] {
                    let stack = suite.stack(case, &platform.name, depth);
                    if runner(&stack, platform) != RunnerKind::Embedded {
                        continue;
                    }
                    let Some(kernel) = stack.first(|layer| layer.kernel.as_ref()) else {
                        continue;
                    };
                    if let Some(info) = known.get(&kernel.value) {
                        parameters(suite, &stack, &kernel.value, info, found);
                    } else {
                        let message = format!("unknown kernel `{}`", kernel.value);
                        found.push(suite, &kernel.span, message, "no such kernel", || {
                            suggest::help(&kernel.value, "kernels", known.keys().map(String::as_str))
                        });
                    }
                }
            }
        },
    )
}

fn parameters(suite: &Suite, stack: &Stack<'_>, kernel: &str, info: &KernelInfo, found: &mut Found) {
    for (name, value) in stack.entries(|layer| &layer.params) {
        let Some(param) = info.params.iter().find(|param| param.name == name) else {
            let message = format!("kernel `{kernel}` has no parameter `{name}`");
            found.push(suite, &value.span, message, "unknown parameter", || {
                suggest::help(name, "parameters", info.params.iter().map(|param| param.name.as_str()))
            });
            continue;
        };
        if let Some(refusal) = param.refusal(&value.value) {
            let message = format!(
                "parameter `{name}` of kernel `{kernel}`: `{}` is {refusal}",
                value.value
            );
            found.push(suite, &value.span, message, "not a value of it", || {
                let default = param.default.as_deref().unwrap_or("none");
                format!("leave it out for the default, `{default}`")
            });
        }
    }
    for (name, value) in stack.entries(|layer| &layer.tolerances) {
        let Some(tolerance) = info.tolerances.iter().find(|tolerance| tolerance.name == name) else {
            let message = format!("kernel `{kernel}` lets no case change the tolerance `{name}`");
            found.push(suite, &value.span, message, "fixed by the kernel", || {
                let names = info.tolerances.iter().map(|tolerance| tolerance.name.as_str());
                suggest::help(name, "tolerances that may be changed", names)
            });
            continue;
        };
        if let Some(refusal) = tolerance.refusal(&value.value.to_string()) {
            let message = format!(
                "tolerance `{name}` of kernel `{kernel}`: `{}` is {refusal}",
                value.value
            );
            found.push(suite, &value.span, message, "not a value of it", || {
                "the kernel says how far it may be changed".into()
            });
        }
    }
    if let Some(ranks) = stack.first(|layer| layer.ranks.as_ref())
        && info.ranks == 1
        && ranks.value > 1
    {
        let message = format!("kernel `{kernel}` runs on one rank");
        found.push(suite, &ranks.span, message, "too many", || {
            "leave `ranks` out: the kernel knows".into()
        });
    }
}
