//! Plans: selection, tiers, defaults and what is refused.

use xtask::{
    cli::{BenchArgs, RingArgs, SelectArgs},
    plan::{Level, Plan, PlanError, PlanRequest},
    platform::PlatformName,
    ring::{Resource, RingLayer, RingSetting, Tier},
    select::Selection,
    suite::{budget::BudgetLayer, file::Depth},
};

use super::{kernels, suite};

fn request(filters: &[&str]) -> PlanRequest {
    let filters: Vec<_> = filters.iter().map(|&filter| filter.to_owned()).collect();
    PlanRequest {
        selection: Selection::new(&filters, &[], &[], &[]).unwrap(),
        platform: PlatformName::new("host").unwrap(),
        ring: RingLayer::default(),
        rounds: None,
        warmup: None,
        seed: None,
        budgets: BudgetLayer::default(),
        depth: Depth::Full,
    }
}

fn heap(text: &str) -> RingLayer {
    RingLayer {
        heap: Some(RingSetting::parse(Resource::Heap, text).unwrap()),
        ..RingLayer::default()
    }
}

const ATTENTION: &str =
    "[[case]]\nname = \"prefill_attention_swa\"\nkernel = \"prefill_attention_swa\"\nring.heap = [0, \"1GiB\", 0, 0]\n";

#[track_caller]
fn check_heap(asked: &str, mib: [u64; 4], tiers: [Tier; 4]) {
    let request = PlanRequest {
        ring: heap(asked),
        ..request(&["prefill_attention_swa"])
    };
    let plan = Plan::resolve(&suite(ATTENTION), &kernels(), &request).unwrap();
    assert_eq!(plan.cases[0].rings.heap.map(|ring| ring.value >> 20), mib);
    assert_eq!(plan.cases[0].rings.heap.map(|ring| ring.tier), tiers);
}

#[test]
fn the_command_line_is_the_strongest_tier_ring_by_ring() {
    use Tier::{Case, CommandLine, Runtime};
    check_heap("default", [256; 4], [CommandLine; 4]);
    check_heap("default,512MiB,default,default", [256, 512, 256, 256], [CommandLine; 4]);
    check_heap("default,default,2GiB,default", [256, 256, 2048, 256], [CommandLine; 4]);
    check_heap(
        "0,0,2GiB,0",
        [256, 1024, 2048, 256],
        [Runtime, Case, CommandLine, Runtime],
    );
    check_heap("0,0,0,0", [256, 1024, 256, 256], [Runtime, Case, Runtime, Runtime]);
}

#[test]
fn what_a_case_leaves_out_the_kernel_tells() {
    let catalogue = suite("[[case]]\nname = \"m\"\nkernel = \"moe\"\n");
    let case = &Plan::resolve(&catalogue, &kernels(), &request(&[])).unwrap().cases[0];
    assert_eq!(
        (case.ranks, case.devices, case.level.map(Level::token)),
        (2, 0, Some("L3"))
    );
    assert_eq!((case.bench.warmup, case.bench.rounds, case.seed), (1, 5, 0));
    let unknown = xtask::kernels::Kernels::Unknown("not built".into());
    let case = &Plan::resolve(&catalogue, &unknown, &request(&[])).unwrap().cases[0];
    assert_eq!((case.ranks, case.level), (1, None));
}

#[test]
fn the_denominator_is_what_is_declared_not_what_is_selected() {
    let catalogue = suite(
        "[defaults]\nkernel = \"moe\"\n[[case]]\nname = \"a\"\n[[case]]\nname = \"b\"\nskip = { reason = \"slow\" }\n",
    );
    let plan = Plan::resolve(&catalogue, &kernels(), &request(&["a"])).unwrap();
    assert_eq!((plan.declared, plan.cases.len(), plan.is_partial()), (2, 1, true));
    let whole = Plan::resolve(&catalogue, &kernels(), &request(&[])).unwrap();
    assert_eq!(
        (whole.cases.len(), whole.runnable().count(), whole.is_partial()),
        (2, 1, false)
    );
    assert_eq!(whole.matrix, plan.matrix);
}

#[test]
fn suites_that_are_run_by_name_need_their_name() {
    let text = "suite = { name = \"faults\", default = false }\n[[case]]\nname = \"a\"\nkernel = \"moe\"\n";
    let files = [super::file("faults.toml", text)];
    let catalogue = xtask::catalogue::Catalogue::read(&files).0;
    let resolve = |filters: &[&str]| Plan::resolve(&catalogue, &kernels(), &request(filters));
    assert!(matches!(resolve(&[]), Err(PlanError::NothingSelected(_))));
    assert!(matches!(resolve(&["a"]), Err(PlanError::NothingSelected(_))));
    assert_eq!(resolve(&["faults/a"]).unwrap().cases.len(), 1);
    let named = PlanRequest {
        selection: Selection::new(&[], &[], &[], &["faults".into()]).unwrap(),
        ..request(&[])
    };
    assert_eq!(Plan::resolve(&catalogue, &kernels(), &named).unwrap().cases.len(), 1);
}

#[track_caller]
fn refused(text: &str, request: &PlanRequest, message: &str) {
    let error = Plan::resolve(&suite(text), &kernels(), request)
        .unwrap_err()
        .to_string();
    assert_eq!(error, message);
}

#[test]
fn what_can_not_run_is_refused_by_name() {
    let on = |platform: &str| PlanRequest {
        platform: PlatformName::new(platform).unwrap(),
        ..request(&[])
    };
    refused(
        ATTENTION,
        &on("a5smi"),
        "unknown platform `a5smi`: did you mean `a5sim`? platforms: `a2a3`, `a2a3sim`, `a5`, `a5sim`, `host`",
    );
    let suites = PlanRequest {
        selection: Selection::new(&[], &[], &[], &["t".into()]).unwrap(),
        ..request(&[])
    };
    refused(ATTENTION, &suites, "unknown suite `t`: did you mean `s`? suites: `s`");
    refused(
        ATTENTION,
        &request(&["prefill_atention_swa", "rms*"]),
        "no case selected: 1 declared on platform `host` in `s`\n  `prefill_atention_swa` matches no id; near: s/prefill_attention_swa\n  `rms*` matches no id",
    );
    let overflow = PlanRequest {
        ring: heap("8388608TiB"),
        ..request(&[])
    };
    refused(
        ATTENTION,
        &overflow,
        "`s/prefill_attention_swa` can't run with these rings: the heaps of the four rings add up to more than 64 bits hold",
    );
    let program = "[[case]]\nname = \"p\"\nrunner = \"command\"\ncommand.argv = [\"run\"]\n";
    let asked = PlanRequest {
        ring: heap("1GiB"),
        ..request(&[])
    };
    refused(
        program,
        &asked,
        "`s/p` can't be told `--ring-heap`: its `command.rings` doesn't carry it",
    );
    let cards = "[[case]]\nname = \"p\"\npypto.program = \"moe.py\"\nranks = 3\n";
    refused(
        cards,
        &on("a5"),
        "`s/p` takes 3 device(s), but platform `a5` has 2 device(s)",
    );
    let pinned = "[[case]]\nname = \"p\"\npypto.program = \"moe.py\"\npin = [3]\n";
    refused(
        pinned,
        &on("a5"),
        "`s/p` takes device 3, but platform `a5` has 2 device(s)",
    );
}

#[test]
fn a_heap_beyond_the_machine_is_refused() {
    let request = PlanRequest {
        ring: heap("1TiB"),
        ..request(&[])
    };
    let error = Plan::resolve(&suite(ATTENTION), &kernels(), &request).unwrap_err();
    assert!(matches!(error, PlanError::Rings { .. }), "{error}");
}

#[test]
fn options_that_several_commands_share_parse_to_layers() {
    use clap::Parser;
    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        select: SelectArgs,
        #[command(flatten)]
        rings: RingArgs,
        #[command(flatten)]
        bench: BenchArgs,
    }
    let typed = Typed::try_parse_from([
        "t",
        "rmsnorm*",
        "--ring-heap",
        "0,0,2GiB,0",
        "--rounds",
        "3",
        "--suite",
        "s",
    ])
    .unwrap();
    assert_eq!(typed.rings.layer(), heap("0,0,2GiB,0"));
    assert_eq!(
        (typed.select.filters, typed.select.suite),
        (vec!["rmsnorm*".to_owned()], vec!["s".to_owned()])
    );
    assert_eq!((typed.bench.rounds, typed.bench.warmup), (Some(3), None));
    for bad in ["384MB", "1GiB,1GiB,1GiB", "0", "-5"] {
        let error = Typed::try_parse_from(["t", "--ring-heap", bad]).err().unwrap();
        assert_eq!(error.exit_code(), 2, "{bad}");
    }
}
