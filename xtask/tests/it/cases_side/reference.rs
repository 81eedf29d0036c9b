//! `cases/README.md` against the reader: every documented key parses, and every key that parses is documented.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use xtask::{catalogue::Catalogue, diagnostic::Problems, kernels::Kernels};

use super::{file, kernels};

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/README.md");
    std::fs::read_to_string(path).unwrap()
}

/// The report on one file; `None` when it has no mistakes.
fn report(name: &str, text: &str) -> Option<String> {
    let (catalogue, mut problems) = Catalogue::read(&[file(name, text)]);
    problems.extend(catalogue.check_kernels(&kernels()));
    Problems::check(problems).err().map(|problems| problems.to_string())
}

/// Where the keys of a section stand in a file.
struct Place {
    file: &'static str,
    /// What comes before the line under test.
    before: &'static str,
    /// Lines beside it, each left out when it sets the same key.
    beside: &'static [&'static str],
    /// What comes after.
    after: &'static str,
}

const SUITE: &str = "suite.name = \"example\"\n";
const CASE: &str = "suite.name = \"example\"\n[[case]]\nname = \"one\"\nkernel = \"rmsnorm\"\n";
const COMMAND: &str = "suite.name = \"example\"\n[[case]]\nname = \"one\"\nrunner = \"command\"\n";
const ONE: &str = "[[case]]\nname = \"one\"\nkernel = \"rmsnorm\"\ncommand = { argv = [\"x\"] }\n";

const fn place(before: &'static str, beside: &'static [&'static str], after: &'static str) -> Place {
    Place {
        file: "example.toml",
        before,
        beside,
        after,
    }
}

const fn platform(before: &'static str, beside: &'static [&'static str]) -> Place {
    Place {
        file: "platforms.toml",
        before,
        beside,
        after: "",
    }
}

/// The places of each section; several where the keys depend on another one.
fn places(section: &str) -> Vec<(String, Place)> {
    let own = |place| vec![(CASE.to_owned(), place)];
    match section {
        "[suite]" => vec![(String::new(), place("[suite]\n", &["name = \"example\""], ONE))],
        "[defaults]" => vec![(SUITE.into(), place("[defaults]\n", &[], ONE))],
        "[[case]]" => vec![(
            SUITE.into(),
            place("[[case]]\n", &["name = \"one\"", "kernel = \"rmsnorm\""], ""),
        )],
        "[[matrix]]" => vec![(
            SUITE.into(),
            place(
                "[[matrix]]\n",
                &[
                    "name = \"all\"",
                    "kernel = \"rmsnorm\"",
                    "axes = { params = { mode = [\"decode\", \"prefill\"] }, ring = { heap = [\"1GiB\"] } }",
                ],
                "",
            ),
        )],
        "axes" => vec![(
            SUITE.into(),
            place(
                "[[matrix]]\nname = \"all\"\nkernel = \"rmsnorm\"\n[matrix.axes]\n",
                &[],
                "",
            ),
        )],
        "ring" => own(place("[case.ring]\n", &[], "")),
        "budgets" => own(place("[case.budgets]\n", &[], "")),
        "bench" => own(place("[case.bench]\n", &[], "")),
        "skip" => own(place("[case.skip]\n", &["reason = \"why\""], "")),
        "expect" => own(place("[case.expect]\n", &["outcome = \"deadlock\""], "")),
        "retry" => own(place("[case.retry]\n", &["on = [\"timeout\"]"], "")),
        "command" => vec![(COMMAND.into(), place("[case.command]\n", &["argv = [\"x\"]"], ""))],
        "command.rings" => {
            let before = "[case.command]\nargv = [\"x\"]\n[case.command.rings]\n";
            vec![
                (COMMAND.into(), place(before, &["via = \"env\"", "heap = \"A\""], "")),
                (COMMAND.into(), place(before, &["via = \"file\"", "env = \"A\""], "")),
            ]
        }
        "command.read_back" => {
            let before = "[case.command]\nargv = [\"x\"]\n[case.command.read_back]\n";
            vec![
                (COMMAND.into(), place(before, &["from = \"log\""], "")),
                (
                    COMMAND.into(),
                    place(before, &["from = \"scope-stats\"", "file = \"a\""], ""),
                ),
            ]
        }
        "command.samples" => {
            let before = "[case.command]\nargv = [\"x\"]\n[case.command.samples]\n";
            let beside = &[
                "from = \"log\"",
                "pattern = '(?<value>1)'",
                "unit = \"ns\"",
                "clock = \"host\"",
            ];
            let json = &[
                "from = \"json\"",
                "file = \"a.json\"",
                "pointer = \"/us\"",
                "unit = \"ns\"",
                "clock = \"host\"",
            ];
            vec![
                (COMMAND.into(), place(before, beside, "")),
                (COMMAND.into(), place(before, json, "")),
            ]
        }
        "pypto" => own(place("[case.pypto]\n", &["program = \"a.py\""], "")),
        "[[renamed]]" => vec![(
            SUITE.into(),
            place("[[renamed]]\n", &["from = \"x\"", "to = \"one\""], ONE),
        )],
        "platforms.toml: [platform.NAME]" => {
            vec![(String::new(), platform("[platform.card]\n", &["runner = \"pypto\""]))]
        }
        "platforms.toml: launcher" => {
            let before = "[platform.card]\nrunner = \"pypto\"\n[platform.card.launcher]\n";
            vec![(String::new(), platform(before, &["kind = \"task-submit\""]))]
        }
        "platforms.toml: health_check, reset" => {
            let before = "[platform.card]\nrunner = \"pypto\"\n[platform.card.reset]\n";
            vec![(String::new(), platform(before, &["argv = [\"x\"]", "budget = \"1s\""]))]
        }
        other => panic!("section `{other}` of the reference is not tested"),
    }
}

/// The file with `line` in its place.
fn with(head: &str, place: &Place, line: &str) -> String {
    let key = |line: &str| line.split([' ', '.', '=']).next().map(str::to_owned);
    let beside: Vec<_> = place
        .beside
        .iter()
        .filter(|other| key(other) != key(line))
        .copied()
        .collect();
    format!("{head}{}{}\n{line}\n{}", place.before, beside.join("\n"), place.after)
}

/// Sections of the reference: heading to rows of key and example.
fn sections() -> BTreeMap<String, Vec<(String, String)>> {
    let mut sections: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut section = String::new();
    for line in readme().lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            section = heading.replace('`', "");
        } else if let Some(row) = line.strip_prefix("| ")
            && !row.starts_with("key ")
            && !row.starts_with("---")
        {
            let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
            let [key, _, _, example] = cells.as_slice() else {
                panic!("a row without four cells: {row}");
            };
            let example = example.trim_matches('`').to_owned();
            sections
                .entry(section.clone())
                .or_default()
                .push(((*key).to_owned(), example));
        }
    }
    assert!(sections.len() >= 20);
    sections
}

#[test]
fn every_example_of_the_reference_parses() {
    for (section, rows) in sections() {
        for (key, example) in rows {
            assert!(
                example.starts_with(&format!("{key} = ")),
                "`{example}` is no example of `{key}`"
            );
            let mut reports = Vec::new();
            for (head, place) in places(&section) {
                let text = with(&head, &place, &example);
                match report(place.file, &text) {
                    None => reports.clear(),
                    Some(report) => reports.push(format!("{text}\n{report}")),
                }
                if reports.is_empty() {
                    break;
                }
            }
            assert!(reports.is_empty(), "`{section}`: {}", reports.join("\n"));
        }
    }
}

/// The keys that the reader names as valid when it meets one that isn't.
fn valid_keys(section: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (head, place) in places(section) {
        let report = report(place.file, &with(&head, &place, "zzzzzzzzzzzz = 1")).expect("the key is unknown");
        let flat = report.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, list) = flat.split_once("valid keys: ").unwrap_or_else(|| panic!("{report}"));
        let list = list.split(" ×").next().unwrap().split(" 1 problem").next().unwrap();
        keys.extend(list.split(", ").map(|key| key.trim_matches(['`', ' ']).to_owned()));
    }
    keys
}

#[test]
fn every_key_of_the_reader_is_in_the_reference() {
    let sections = sections();
    for (section, rows) in &sections {
        let mut documented: BTreeSet<_> = rows.iter().map(|(key, _)| key.clone()).collect();
        if matches!(section.as_str(), "[[case]]" | "[[matrix]]") {
            documented.extend(sections["[defaults]"].iter().map(|(key, _)| key.clone()));
        }
        assert_eq!(documented, valid_keys(section), "{section}");
    }
}

#[test]
fn the_example_suite_of_the_reference_is_one() {
    let readme = readme();
    let (_, rest) = readme.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    assert_eq!(report("example.toml", text), None);
    for id in ["example/rmsnorm_decode", "example/windows@mode=decode,task_window=16"] {
        let (catalogue, _) = Catalogue::read(&[file("example.toml", text)]);
        assert!(
            catalogue.suites[0].cases.iter().any(|case| case.id.as_str() == id),
            "{id}"
        );
        assert!(readme.contains(id));
    }
}

#[test]
fn the_suites_of_this_repository_have_no_mistakes() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
    // Kernels are checked by `list` and `sweep`, which build them.
    let unknown = || Kernels::Unknown("not built here".into());
    let catalogue = Catalogue::load(&cases, unknown).unwrap_or_else(|error| panic!("{error}"));
    assert!(catalogue.suite("deepseek_v4_pro").is_some());
}
