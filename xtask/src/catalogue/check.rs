//! What no single file can know: platforms, runners, budgets and kernels of every case.

use std::collections::BTreeSet;

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
        template::{Parameter, Template},
    },
};

/// Mistakes are told once, though they hold for every point of a matrix and on every platform.
#[derive(Default)]
struct Found {
    seen: BTreeSet<(String, usize, String)>,
    problems: Vec<Problem>,
}

impl Found {
    fn push(&mut self, suite: &Suite, span: &Span, message: String, label: &str, help: impl FnOnce() -> String) {
        if self.seen.insert((suite.name.clone(), span.start, message.clone())) {
            let problem = Problem::new(&suite.source, span.clone(), message, label);
            self.problems.push(problem.help(help()));
        }
    }
}

/// Checks all that needs no kernel list. Of suites in `unclear` nothing is said to be missing.
pub(super) fn suites(catalogue: &Catalogue, unclear: &BTreeSet<String>) -> Vec<Problem> {
    let mut found = Found::default();
    for suite in &catalogue.suites {
        platform_names(catalogue, suite, &suite.defaults, &mut found);
        for case in &suite.cases {
            platform_names(catalogue, suite, &case.case, &mut found);
            if !unclear.contains(&suite.name) {
                exists_somewhere(catalogue, suite, case, &mut found);
            }
            for platform in catalogue.platforms.values() {
                for depth in [Depth::Full, Depth::Quick] {
                    budgets(suite, case, &suite.settings(case, &platform.name, depth), &mut found);
                }
                command(suite, case, platform, &mut found);
            }
        }
    }
    found.problems
}

fn platform_names(catalogue: &Catalogue, suite: &Suite, settings: &Settings, found: &mut Found) {
    let mut check = |name: &At<PlatformName>| {
        if !catalogue.platforms.contains_key(&name.value) {
            let message = format!("unknown platform `{}`", name.value);
            let names = catalogue.platforms.keys().map(PlatformName::as_str);
            found.push(suite, &name.span, message, "not declared", || {
                suggest::help(name.value.as_str(), "platforms", names)
            });
        }
    };
    for (name, layer) in &settings.on {
        check(&At::new(name.clone(), layer.span.clone()));
    }
    let layers = settings.on.values().map(|layer| &layer.value).chain([&settings.base]);
    for layer in layers {
        layer.platforms.iter().flat_map(|at| &at.value).for_each(&mut check);
        layer.skip.iter().flat_map(|at| &at.value.on).for_each(&mut check);
    }
}

/// The runner of a case on a platform.
pub(crate) fn runner(layer: &Layer, platform: &Platform) -> RunnerKind {
    layer.runner.as_ref().map_or(platform.runner, |runner| runner.value)
}

/// True when the case declares what its runner on the platform needs.
pub(crate) fn has_runner(layer: &Layer, platform: &Platform) -> bool {
    match runner(layer, platform) {
        RunnerKind::Embedded => layer.kernel.is_some(),
        RunnerKind::Pypto => layer.pypto.is_some(),
        RunnerKind::Command => layer.command.is_some(),
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
        let layer = suite.settings(case, &platform.name, Depth::Full);
        let has = has_runner(&layer, platform);
        any |= has;
        let wanted = layer.platforms.iter().flat_map(|at| &at.value);
        if let Some(name) = wanted.into_iter().find(|name| name.value == platform.name && !has) {
            let kind = runner(&layer, platform);
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

fn budgets(suite: &Suite, case: &Declared, layer: &Layer, found: &mut Found) {
    if let Err(error) = layer.budgets.resolve() {
        let span = layer.budgets_span.as_ref().unwrap_or(&case.span);
        found.push(suite, span, error.to_string(), "these budgets", || {
            "silence ≤ run ≤ total and setup ≤ total must hold; queue stands alone".into()
        });
    }
}

/// A ring setting that a program is never told, and parameters that its argv names but the case lacks.
fn command(suite: &Suite, case: &Declared, platform: &Platform, found: &mut Found) {
    let layer = suite.settings(case, &platform.name, Depth::Full);
    let (RunnerKind::Command, Some(command)) = (runner(&layer, platform), &layer.command) else {
        return;
    };
    for resource in Resource::ALL {
        let declared = suite
            .rings(case, &platform.name)
            .iter()
            .any(|(_, ring)| ring.get(resource).is_some());
        if declared && !command.value.rings.carries(resource) {
            let span = layer.ring_span.as_ref().unwrap_or(&case.span);
            let message = format!("`ring.{}` never reaches the program", resource.token());
            found.push(suite, span, message, "declared here", || match command.value.rings {
                RingChannel::None => "declare `command.rings`, or leave the ring config out".into(),
                _ => format!("let `command.rings` carry `{}` too", resource.token()),
            });
        }
    }
    for parameter in command.value.argv.iter().flat_map(Template::parameters) {
        if let Parameter::Param(name) = parameter
            && !layer.params.contains_key(name)
        {
            let message = format!("the argv names `{{param.{name}}}`, which `{}` doesn't set", case.id);
            let names: Vec<_> = layer.params.keys().map(String::as_str).collect();
            found.push(suite, &command.span, message, "in this command", || {
                suggest::help(name, "its parameters", names.iter().copied())
            });
        }
    }
}

/// Checks kernels, parameters and tolerances; nothing when the kernels aren't known.
pub(super) fn kernels(catalogue: &Catalogue, kernels: &Kernels) -> Vec<Problem> {
    let mut found = Found::default();
    let Kernels::Known(known) = kernels else {
        return found.problems;
    };
    for suite in &catalogue.suites {
        for case in &suite.cases {
            for platform in catalogue.platforms.values() {
                for depth in [Depth::Full, Depth::Quick] {
                    let layer = suite.settings(case, &platform.name, depth);
                    if runner(&layer, platform) != RunnerKind::Embedded {
                        continue;
                    }
                    let Some(kernel) = &layer.kernel else { continue };
                    if let Some(info) = known.get(&kernel.value) {
                        parameters(suite, &layer, &kernel.value, info, &mut found);
                    } else {
                        let message = format!("unknown kernel `{}`", kernel.value);
                        found.push(suite, &kernel.span, message, "no such kernel", || {
                            suggest::help(&kernel.value, "kernels", known.keys().map(String::as_str))
                        });
                    }
                }
            }
        }
    }
    found.problems
}

fn parameters(suite: &Suite, layer: &Layer, kernel: &str, info: &KernelInfo, found: &mut Found) {
    for (name, value) in &layer.params {
        let Some(param) = info.params.iter().find(|param| param.name == *name) else {
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
    for (name, value) in &layer.tolerances {
        let Some(tolerance) = info.tolerances.iter().find(|tolerance| tolerance.name == *name) else {
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
    if let Some(ranks) = &layer.ranks
        && info.ranks == 1
        && ranks.value > 1
    {
        let message = format!("kernel `{kernel}` runs on one rank");
        found.push(suite, &ranks.span, message, "too many", || {
            "leave `ranks` out: the kernel knows".into()
        });
    }
}
