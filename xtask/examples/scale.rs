//! 100,000 cases enumerated, compared, judged and reported: prints times and peak memory.
//!
//! `cargo run --release -p xtask --example scale [CASES]` ends with 1 above 2 s or 500 MB. The records
//! are made up, since no machine sweeps that many kernels for a benchmark; everything that is timed is
//! what a sweep does with its records.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use xtask::baseline::{self, Request};
use xtask::case_id::CaseId;
use xtask::catalogue::Catalogue;
use xtask::compare::{self, Rules};
use xtask::diagnostic::Source;
use xtask::format::read;
use xtask::gate::{self, GateFile};
use xtask::kernels::Kernels;
use xtask::plan::{Plan, PlanRequest};
use xtask::platform::PlatformName;
use xtask::record::Run;
use xtask::report::{Format, Report};
use xtask::ring::RingLayer;
use xtask::select::Selection;
use xtask::suite::budget::BudgetLayer;
use xtask::suite::file::Depth;

/// What may be taken.
const MOST_TIME: Duration = Duration::from_secs(2);
/// What may be held, bytes.
const MOST_MEMORY: u64 = 500_000_000;

fn main() -> ExitCode {
    let wanted: usize = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(100_000);
    let mut stages = Stages::default();
    let catalogue = stages.time("suites read and expanded", || read_suite(wanted));
    let (cases, matrix) = stages.time("planned", || plan(&catalogue));
    drop(catalogue);

    // Not timed: what a sweep would have written. What is held from here on counts.
    let base = made_up(&cases, &matrix, "base", 0);
    let request = Request {
        selection: None,
        typed: Vec::new(),
        because: Some("a benchmark".into()),
        renamed: Vec::new(),
        accepted: "2026-12-01T12:00:00Z".into(),
    };
    let baseline = baseline::accept(None, &base, &request)
        .expect("a reason was given")
        .baseline;
    drop(base);
    let run = made_up(&cases, &matrix, "now", 1);
    drop(cases);
    forget_peak();

    let context = compare::Context::new(Rules::STANDARD);
    let comparison = stages.time("compared", || compare::against_baseline(&run, &baseline, &context));
    let verdict = stages.time("judged", || {
        let gates = GateFile::parse(include_str!("../../cases/gate.toml")).expect("the committed file has no mistakes");
        gate::decide(gates.policy("ci").expect("it has this policy"), &comparison, &run)
    });
    let report = stages.time("evidence found", || Report::new(&run, &comparison, Some(&verdict)));
    for (name, format) in [
        ("table", Format::Table),
        ("markdown", Format::Markdown),
        ("junit", Format::Junit),
        ("csv", Format::Csv),
        ("json", Format::Json),
        ("html", Format::Html),
        ("github", Format::Github),
    ] {
        let mut sink = Counter(0);
        stages.time(&format!("reported as {name}"), || {
            report.render(format, &mut sink).expect("a counter takes everything");
        });
        stages.bytes(sink.0);
    }
    stages.finish(comparison.cases.len())
}

/// What each stage took and held.
#[derive(Default)]
struct Stages {
    total: Duration,
    peak: u64,
    lines: Vec<String>,
}

impl Stages {
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let made = work();
        let took = started.elapsed();
        self.total += took;
        let peak = peak_bytes().unwrap_or(0);
        self.peak = self.peak.max(peak);
        self.lines.push(format!(
            "{name:<26} {:>8.3} s   peak {:>4} MB",
            took.as_secs_f64(),
            peak / 1_000_000
        ));
        made
    }

    /// Adds to the last stage how much it wrote.
    fn bytes(&mut self, written: u64) {
        if let Some(line) = self.lines.last_mut() {
            let _ = write!(line, "   {} kB", written / 1000);
        }
    }

    fn finish(self, cases: usize) -> ExitCode {
        let mut out = std::io::stdout();
        for line in &self.lines {
            let _ = writeln!(out, "{line}");
        }
        let _ = writeln!(
            out,
            "{cases} cases: {:.2} s, peak memory {} MB",
            self.total.as_secs_f64(),
            self.peak / 1_000_000
        );
        if self.total <= MOST_TIME && self.peak <= MOST_MEMORY {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Making up the records needs memory that no sweep takes at once; the kernel forgets peaks on demand.
fn forget_peak() {
    // Where it can't be done, the peak is that of making up too.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

struct Counter(u64);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A suite with a matrix of about `wanted` cases.
fn read_suite(wanted: usize) -> Catalogue {
    let side = (wanted as f64).sqrt().ceil() as usize;
    let list = |values: &mut dyn Iterator<Item = String>| values.collect::<Vec<_>>().join(", ");
    let heaps = list(&mut (0..side).map(|n| format!("\"{}KiB\"", 1024 + n)));
    let pools = list(&mut (0..wanted.div_ceil(side)).map(|n| (n + 4).to_string()));
    let text = format!(
        "[suite]\nname = \"scale\"\n[[matrix]]\nname = \"grid\"\nkernel = \"rmsnorm\"\naxes = {{ ring.heap = [{heaps}], ring.dep_pool = [{pools}] }}\n"
    );
    let (catalogue, problems) = Catalogue::read(&[("scale.toml".into(), Source::new("scale.toml", text))]);
    assert!(problems.is_empty(), "the suite has no mistakes");
    catalogue
}

/// Ids of the plan of everything, and the hash of its matrix.
fn plan(catalogue: &Catalogue) -> (Vec<CaseId>, String) {
    let request = PlanRequest {
        selection: Selection::new(&[], &[], &[], &[]).expect("an empty selection"),
        platform: PlatformName::new(PlatformName::HOST).expect("one word"),
        ring: RingLayer::default(),
        rounds: None,
        warmup: None,
        seed: None,
        budgets: BudgetLayer::default(),
        depth: Depth::Full,
    };
    let plan = Plan::resolve(catalogue, &Kernels::Unknown("not asked".into()), &request).expect("it has cases");
    (
        plan.cases.iter().map(|case| case.id.clone()).collect(),
        plan.matrix.to_string(),
    )
}

/// A run over `cases`, through the format that a sweep writes: one case in a hundred fails in the second one.
fn made_up(cases: &[CaseId], matrix: &str, run_id: &str, salt: u64) -> Run {
    let planned: Vec<String> = cases.iter().map(|case| format!("\"{case}\"")).collect();
    let header = format!(
        r#"{{"format":"ringsweep-results","major":1,"minor":0,"run_id":"{run_id}","status":"complete","started":"2026-12-01T10:00:00Z","ended":"2026-12-01T11:00:00Z","command_line":[],"harness_version":"0","matrix_hash":"{matrix}","planned":[{}],"deselected":0,"shard":null,"seed":0,"git_commit":"0","git_dirty":false,"platform":"host","host":{{"cores":"2"}},"toolchain":"","environment":{{}}}}"#,
        planned.join(",")
    );
    let mut lines = format!(r#"{{"format":"ringsweep-results","major":1,"minor":0,"run_id":"{run_id}"}}"#);
    let ring = r#"{"heap_capacity_bytes":268435456,"heap_high_water_bytes":1048576,"task_window":16384,"tasks_high_water":9,"dep_pool":16384,"dep_pool_high_water":7,"tasks_submitted":100}"#;
    for (n, case) in (0_u64..).zip(cases) {
        let ns = 1_000_000 + n * 7919 % 100_000 + salt * (n % 1013);
        let (outcome, cause, latency) = if salt > 0 && n % 100 == 0 {
            ("mismatch", "output", "null".to_owned())
        } else {
            let samples = format!("[{ns},{},{},{},{}]", ns + 1000, ns + 2500, ns + 900, ns + 400);
            ("pass", "", format!(r#"{{"clock":"device","samples_ns":{samples}}}"#))
        };
        let _ = write!(
            lines,
            "\n{{\"case\":\"{case}\",\"attempt\":1,\"repeat\":0,\"outcome\":\"{outcome}\",\"cause\":\"{cause}\",\"expectation\":{{\"state\":\"none\"}},\"evidence\":{{\"summary\":\"every output within its tolerance\",\"source\":\"report\"}},\"rings\":{{\"asked\":null,\"effective\":null,\"usage\":[{ring},{ring},{ring},{ring}]}},\"latency\":{latency},\"queue_ns\":0,\"setup_ns\":1,\"total_ns\":2,\"declared_memory_bytes\":null,\"peak_memory_bytes\":null,\"work\":{{\"tasks_submitted\":100,\"tasks_dispatched\":90}},\"kernel\":\"rmsnorm\",\"params\":{{}},\"seed\":0,\"kernel_hash\":null,\"tags\":[],\"devices\":[],\"log\":\"logs/x.log\"}}"
        );
    }
    lines.push('\n');
    let provenance = read::parse_run(&header).expect("a header of this version");
    let (records, _) = read::parse_records(lines.as_bytes(), run_id).expect("records of this version");
    Run { provenance, records }
}

/// Peak resident memory of this process.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
