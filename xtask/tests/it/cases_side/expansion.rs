//! Expansion and the matrix hash are functions of what is declared, not of how it is written.

use proptest::prelude::*;
use xtask::{catalogue::Catalogue, catalogue::matrix_hash, plan::MatrixHash};

use super::{file, suite};

fn ids(catalogue: &Catalogue) -> Vec<String> {
    let cases = catalogue.suites.iter().flat_map(|suite| &suite.cases);
    cases.map(|case| case.id.to_string()).collect()
}

fn hash(text: &str) -> MatrixHash {
    matrix_hash(&suite(text).suites)
}

/// A matrix over `axes`, written in that order.
fn matrix(axes: &[(&str, Vec<String>)]) -> String {
    let lines: Vec<_> = axes
        .iter()
        .map(|(axis, values)| format!("{axis} = [{}]", values.join(", ")))
        .collect();
    format!(
        "[[matrix]]\nname = \"m\"\nkernel = \"rmsnorm\"\n[matrix.axes]\n{}\n",
        lines.join("\n")
    )
}

/// Some axes with some values each.
fn axes() -> impl Strategy<Value = Vec<(&'static str, Vec<String>)>> {
    let heap = prop::sample::subsequence(
        vec!["\"1GiB\"", "\"512MiB\"", "2048", "\"default\"", "[0, 0, 4096, 0]"],
        1..=5,
    );
    let window = prop::sample::subsequence(vec!["4", "4096", "\"default\""], 1..=3);
    let mode = prop::sample::subsequence(vec!["\"decode\"", "\"prefill\""], 1..=2);
    (heap, window, mode).prop_map(|(heap, window, mode)| {
        let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect::<Vec<_>>();
        vec![
            ("ring.heap", owned(heap)),
            ("ring.task_window", owned(window)),
            ("params.mode", owned(mode)),
        ]
    })
}

proptest! {
    #[test]
    fn neither_axes_nor_values_have_an_order(axes in axes(), order in Just(vec![0, 1, 2]).prop_shuffle(), flip: bool) {
        let mut other: Vec<_> = order.iter().map(|&i| axes[i].clone()).collect();
        if flip {
            for (_, values) in &mut other {
                values.reverse();
            }
        }
        let (a, b) = (suite(&matrix(&axes)), suite(&matrix(&other)));
        prop_assert_eq!(ids(&a), ids(&b));
        prop_assert_eq!(matrix_hash(&a.suites), matrix_hash(&b.suites));
        prop_assert_eq!(ids(&a).len(), axes.iter().map(|(_, values)| values.len()).product::<usize>());
    }

    #[test]
    fn a_value_that_is_added_changes_no_existing_id(axes in axes(), which in 0..3_usize) {
        let mut grown = axes.clone();
        grown[which].1.push(["\"3MiB\"", "8192", "\"prefill\""][which].to_owned());
        grown[which].1.dedup();
        prop_assume!(which != 2 || axes[2].1 == ["\"decode\""]);
        let (before, after) = (ids(&suite(&matrix(&axes))), ids(&suite(&matrix(&grown))));
        prop_assert!(before.iter().all(|id| after.contains(id)));
        prop_assert!(after.len() > before.len());
        prop_assert_ne!(hash(&matrix(&axes)), hash(&matrix(&grown)));
    }
}

const SUITE: &str = r#"
[defaults]
kernel = "rmsnorm"
tags = ["b", "a"]
ring.heap = "1GiB"
budgets = { run = "60s", total = "5m" }

[defaults.on.a5]
bench.rounds = 7

[[case]]
name = "x"
params = { mode = "decode" }
bench = { rounds = 5, warmup = 1 }
expect = { outcome = "deadlock", cause = "heap-ring", until = "2027-01-31" }

[[case]]
name = "y"
runner = "command"
command = { argv = ["run", "{ring_heap}"], rings = { via = "argv" } }
"#;

/// The suite with each pair's left text replaced by its right one.
fn edited(pairs: &[(&str, &str)]) -> String {
    pairs.iter().fold(SUITE.to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "`{from}` must stand once");
        text.replace(from, to)
    })
}

#[test]
fn the_hash_ignores_how_a_suite_is_written() {
    let same = [
        edited(&[("kernel = \"rmsnorm\"", "kernel   =   'rmsnorm' # the usual one\n")]),
        edited(&[("\"1GiB\"", "1073741824")]),
        edited(&[("\"1GiB\"", "[\"1GiB\", \"1024MiB\", 1073741824, 0x40000000]")]),
        edited(&[("\"60s\"", "\"1m\"")]),
        edited(&[("[\"b\", \"a\"]", "[\"a\", \"b\", \"a\"]")]),
        edited(&[("\"2027-01-31\"", "2027-01-31")]),
        edited(&[(
            "[[case]]\nname = \"x\"",
            "[[case]]\ndescription = \"words\"\nname = \"x\"",
        )]),
        edited(&[("params = { mode = \"decode\" }", "params.mode = \"decode\"")]),
        edited(&[
            ("tags = [\"b\", \"a\"]\n", ""),
            ("name = \"x\"", "name = \"x\"\ntags = [\"a\", \"b\"]"),
            ("name = \"y\"", "name = \"y\"\ntags = [\"a\", \"b\"]"),
        ]),
    ];
    for text in same {
        assert_eq!(hash(&text), hash(SUITE), "{text}");
    }
}

#[test]
fn the_hash_follows_what_a_suite_means() {
    let edits = [
        ("name = \"x\"", "name = \"z\""),
        ("kernel = \"rmsnorm\"", "kernel = \"rmsnorm\"\ndevices = 0"),
        ("mode = \"decode\"", "mode = \"prefill\""),
        ("[\"b\", \"a\"]", "[\"b\"]"),
        ("ring.heap = \"1GiB\"", "ring.heap = \"2GiB\""),
        ("ring.heap = \"1GiB\"", "ring.heap = [\"1GiB\", \"1GiB\", \"1GiB\", 0]"),
        ("ring.heap = \"1GiB\"", ""),
        ("run = \"60s\"", "run = \"61s\""),
        ("bench.rounds = 7", "bench.rounds = 8"),
        ("bench.rounds = 7", "ring.heap = 7168"),
        ("rounds = 5", "rounds = 6"),
        ("cause = \"heap-ring\", ", ""),
        ("until = \"2027-01-31\"", "until = \"2027-02-01\""),
        ("params = { mode", "memory = \"1GiB\"\nparams = { mode"),
        ("params = { mode", "skip = { reason = \"slow\" }\nparams = { mode"),
        ("params = { mode", "quick.bench.rounds = 2\nparams = { mode"),
        ("params = { mode", "env.A = \"b\"\nparams = { mode"),
        ("params = { mode", "tolerances.atol = 1e-3\nparams = { mode"),
        ("params = { mode", "retry = { on = [\"timeout\"] }\nparams = { mode"),
        ("params = { mode", "platforms = [\"host\"]\nparams = { mode"),
        ("\"run\", ", "\"run\", \"-v\", "),
        ("via = \"argv\" }", "via = \"argv\" }, read_back.from = \"log\""),
        ("[defaults]", "[defaults]\nranks = 1"),
    ];
    let mut hashes = vec![hash(SUITE).to_string()];
    hashes.extend(edits.iter().map(|edit| hash(&edited(&[*edit])).to_string()));
    let by_name = Catalogue::read(&[file(
        "s.toml",
        &format!("suite = {{ name = \"s\", default = false }}\n{SUITE}"),
    )]);
    hashes.push(matrix_hash(&by_name.0.suites).to_string());
    let count = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), count, "every edit has a hash of its own");
}

#[test]
fn files_are_read_in_any_order() {
    let text = |name: &str| format!("suite.name = \"{name}\"\n{SUITE}");
    let files = ["b", "a", "c"].map(|name| file(&format!("{name}.toml"), &text(name)));
    let forward = Catalogue::read(&files).0;
    let backward = Catalogue::read(&files.iter().rev().cloned().collect::<Vec<_>>()).0;
    assert_eq!(ids(&forward), ids(&backward));
    assert_eq!(ids(&forward)[0], "a/x");
    assert_eq!(matrix_hash(&forward.suites), matrix_hash(&backward.suites));
}
