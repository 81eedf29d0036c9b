//! Suites, plans and `list`.

mod diagnostics;
mod expansion;
mod kernel_list;
mod list;
mod plans;
mod reference;

use std::sync::Arc;

use xtask::{catalogue::Catalogue, diagnostic::Source, kernels::Kernels};

/// The kernels that the test suites are checked against.
pub(crate) fn kernels() -> Kernels {
    Kernels::from_json(include_str!("../suites/kernels.json")).unwrap()
}

/// A file as the catalogue takes it.
pub(crate) fn file(name: &str, text: &str) -> (String, Arc<Source>) {
    (name.to_owned(), Source::new(format!("cases/{name}"), text))
}

/// The catalogue of one suite called `s`, which must have no mistakes.
#[track_caller]
pub(crate) fn suite(text: &str) -> Catalogue {
    let (catalogue, mut problems) = Catalogue::read(&[file("s.toml", &format!("suite.name = \"s\"\n{text}"))]);
    problems.extend(catalogue.check_kernels(&kernels()));
    if let Err(problems) = xtask::diagnostic::Problems::check(problems) {
        panic!("{problems}");
    }
    catalogue
}
