//! Speed of whole programs, against the machine's peak.
//!
//! `cargo run --release -p kernels --example program_speed [FILTER]`
//!
//! Each program is dispatched as its case does it, at the runtime's default rings but for a heap of
//! 2 GiB, and timed from submission to the last task. "least" is the time that its matrix work would take
//! at the peak that this run measured: f32 and bf16 products at the rate of f32 multiply-adds, i8 products
//! at the rate of i8 multiply-adds, on all cores. "ratio" is least over the median dispatch, so that
//! everything else that a program does (rows, memory, waiting for a peer) counts against it.
//! The work is the one that the specification counts, without the padding to 16 rows of the decode programs;
//! these read their weights once for a few rows, and memory, not arithmetic, is what bounds them.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

#[path = "../gemm_peak/clock.rs"]
mod clock;
#[path = "../gemm_peak/peak.rs"]
mod peak;

use std::num::NonZeroUsize;
use std::time::Duration;

use kernels::dispatch::Session;
use kernels::kernel::Params;
use kernels::registry;
use kernels::tile::gemm::Path;
use ring_runtime::{RingLimits, RuntimeConfig};

/// Timed dispatches of a program, after one to warm up.
const ROUNDS: usize = 5;

/// Programs whose parameters are not the defaults: experts share their weights in the cases too, and the work is the same.
const PARAMS: [(&str, &[(&str, &str)]); 8] = [
    ("decode_fwd", &[("weight_alias", "4"), ("pairs", "1")]),
    ("decode_layer", &[("weight_alias", "4")]),
    ("decode_mtp", &[("weight_alias", "4")]),
    ("expert_routed", &[("weight_alias", "4")]),
    ("moe", &[("weight_alias", "4")]),
    ("prefill_fwd", &[("weight_alias", "4"), ("pairs", "1")]),
    ("prefill_layer", &[("weight_alias", "4")]),
    ("prefill_mtp", &[("weight_alias", "4")]),
];

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let path = Path::ALL
        .into_iter()
        .find(|path| path.is_supported())
        .expect("the portable path always is");
    let (float, int) = (peak::float(path, cores), peak::int(path, cores));
    println!(
        "{} on {cores} cores: peak f32 {float:.1} GFLOP/s, i8 {int:.1} Gop/s",
        path.name()
    );
    println!(
        "{:<28} {:>9} {:>9} {:>10} {:>10} {:>9} {:>6}",
        "program", "f32+bf16", "i8", "least", "median", "Gop/s", "ratio"
    );
    let limits = RingLimits::DEFAULT;
    let ring = RingLimits::new(2 << 30, limits.task_window(), limits.dep_pool()).expect("2 GiB is a heap");
    for kernel in registry::all().iter().filter(|k| k.info().name.contains(&filter)) {
        let info = kernel.info();
        let work = info.gflop;
        let total = work.f32 + work.bf16 + work.int8;
        if total == 0.0 {
            continue;
        }
        let given = PARAMS.iter().find(|(name, _)| *name == info.name);
        let given = given.map_or(&[][..], |(_, given)| given);
        let params = Params::resolve(info.name, info.params, given).expect("the parameters above are valid");
        let instance = kernel.prepare(&params, 0).expect("the defaults can be set up");
        let threads = NonZeroUsize::new(cores)
            .expect("a machine has a core")
            .max(info.min_cores());
        let mut session =
            Session::new(instance, &RuntimeConfig::new([ring; 4], threads)).expect("the rings can be mapped");
        let mut times: Vec<_> = (0..=ROUNDS)
            .map(|_| session.dispatch(Duration::ZERO).device().expect("the program passes"))
            .skip(1)
            .collect();
        times.sort();
        let time = times[times.len() / 2].as_secs_f64();
        let least = (work.f32 + work.bf16) / float + work.int8 / int;
        println!(
            "{:<28} {:>9.3} {:>9.3} {:>7.2} ms {:>7.2} ms {:>9.1} {:>6.2}",
            info.name,
            work.f32 + work.bf16,
            work.int8,
            least * 1e3,
            time * 1e3,
            total / time,
            least / time
        );
    }
}
