//! Every suite under `suites/err` against its report, every one under `suites/ok` against its expansion.

use std::path::Path;

use xtask::{
    catalogue::{Catalogue, matrix_hash},
    diagnostic::Problems,
    plan::{Plan, PlanRequest},
    platform::PlatformName,
    ring::{Resource, RingLayer},
    select::Selection,
    suite::{budget::BudgetLayer, file::Depth},
};

use super::{file, kernels};

/// The TOML files of a directory beside this one, sorted: stem and text.
fn files(directory: &str) -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/suites")
        .join(directory);
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (stem, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[test]
fn every_mistake_is_told_with_file_line_and_caret() {
    for (stem, text) in files("err") {
        let name = if stem.starts_with("platforms-") {
            "platforms".into()
        } else {
            stem.clone()
        };
        let (catalogue, mut problems) = Catalogue::read(&[file(&format!("{name}.toml"), &text)]);
        problems.extend(catalogue.check_kernels(&kernels()));
        let report = Problems::check(problems).expect_err(&stem).to_string();
        insta::assert_snapshot!(format!("err_{stem}"), report);
    }
}

#[test]
fn suites_without_mistakes_expand_to_cases() {
    for (stem, text) in files("ok") {
        let (catalogue, mut problems) = Catalogue::read(&[file(&format!("{stem}.toml"), &text)]);
        problems.extend(catalogue.check_kernels(&kernels()));
        Problems::check(problems).unwrap_or_else(|problems| panic!("{problems}"));
        let mut shown = Vec::new();
        for platform in ["host", "a5"] {
            for depth in [Depth::Full, Depth::Quick] {
                shown.push(format!("## {platform}, {depth:?}"));
                let request = PlanRequest {
                    selection: Selection::new(&[], &[], &[], std::slice::from_ref(&stem)).unwrap(),
                    platform: PlatformName::new(platform).unwrap(),
                    ring: RingLayer::default(),
                    rounds: None,
                    warmup: None,
                    seed: None,
                    budgets: BudgetLayer::default(),
                    depth,
                };
                match Plan::resolve(&catalogue, &kernels(), &request) {
                    Ok(plan) => shown.extend(plan.cases.iter().map(|case| show(case, depth))),
                    Err(error) => shown.push(error.to_string()),
                }
            }
        }
        assert_eq!(matrix_hash(&catalogue.suites), matrix_hash(&catalogue.suites));
        insta::assert_snapshot!(format!("ok_{stem}"), shown.join("\n"));
    }
}

/// A case of a quick run is told by what may differ from the full one.
fn show(case: &xtask::plan::PlannedCase, depth: Depth) -> String {
    if depth == Depth::Quick {
        return format!("{} {:?} {:?}", case.id, case.params, case.bench);
    }
    let rings = Resource::ALL.map(|resource| {
        let values = case
            .rings
            .get(resource)
            .map(|ring| format!("{}:{}", ring.value, ring.tier));
        format!("{} {}", resource.token(), values.join(" "))
    });
    format!(
        "{}\n  {:?}\n  {:?}\n  params {:?} level {:?} ranks {} devices {} pin {:?} memory {:?}\n  {}\n  {:?}\n  {:?} env {:?} tags {:?}\n  expect {:?}\n  retry {:?}",
        case.id,
        case.disposition,
        case.runner,
        case.params,
        case.level,
        case.ranks,
        case.devices,
        case.pin,
        case.memory,
        rings.join("\n  "),
        case.budgets,
        case.bench,
        case.env,
        case.tags,
        case.expect,
        case.retry,
    )
}
