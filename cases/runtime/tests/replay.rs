//! A small sample of graphs of our own, with verdicts worked out by hand from the rules, through the
//! code that replays recorded ones.

#[path = "../examples/replay/compare.rs"]
mod compare;
#[path = "../examples/replay/execute.rs"]
mod execute;
#[path = "../examples/replay/graph.rs"]
mod graph;
#[path = "../examples/replay/verdict.rs"]
mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use compare::{Quirk, Settings};
use graph::Graph;
use verdict::Row;

const SETTINGS: Settings = Settings {
    alloc: Duration::from_millis(30),
    jobs: 4,
};

fn graphs() -> BTreeMap<String, Graph> {
    let parse = |line| serde_json::from_str::<Graph>(line).expect("the fixture is well formed");
    let lines = include_str!("fixtures/graphs.jsonl").lines();
    lines.map(parse).map(|graph| (graph.id.clone(), graph)).collect()
}

#[test]
fn verdicts_are_those_of_the_rules() {
    let graphs = graphs();
    let rows: Vec<Row> = include_str!("fixtures/verdicts.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for outcome in compare::replay(&graphs, &rows, SETTINGS) {
        let row = &rows[outcome.row];
        let what = format!(
            "{} {} under {:?} {:?} {:?}, second look {}: {:?}, not {:?}; numbers equal: {}",
            row.graph,
            row.platform,
            row.heap,
            row.window,
            row.dep_pool,
            outcome.second_look,
            outcome.ours,
            outcome.expected,
            outcome.expected.same_numbers(&outcome.ours)
        );
        assert!(outcome.agrees() && outcome.quirk.is_none(), "{what}");
        assert_eq!(outcome.expected.proof, outcome.ours.proof, "{what}");
    }
}

#[test]
fn least_heaps_are_least_to_the_step() {
    let (checked, wrong) = compare::thresholds(&graphs(), SETTINGS);
    assert_eq!((checked, wrong), (10, Vec::new()));
}

#[test]
fn a_wrapped_sum_is_a_quirk_of_the_original() {
    let line = r#"{"graph":"g","platform":"p","heap":[1024,1024,1024,1024],"window":[4,4,4,4],"dep_pool":[4,4,4,4],
        "pass":true,"orch_error_code":0}"#;
    let row: Row = serde_json::from_str(line).unwrap();
    let line = r#"{"id":"g","n_tasks":1,"n_tensors":2,"ops":[{"op":"alloc","task":0,
        "out":[{"t":0,"bytes":1073741824},{"t":1,"bytes":1073741824}]}]}"#;
    let graph: Graph = serde_json::from_str(line).unwrap();
    let graphs = BTreeMap::from([("g".to_owned(), graph)]);
    let outcomes = compare::replay(&graphs, &[row], SETTINGS);
    assert_eq!(outcomes[0].quirk, Some(Quirk::WrappedSum));
    assert_eq!((outcomes[0].ours.code, outcomes[0].agrees()), (5, false));
    assert!(Quirk::WrappedSum.policy().starts_with("repaired"));
}
