//! Speed of whole programs, against the machine's peak.
//!
//! `cargo run --release -p kernels --features meter --example program_speed -- [FILTER] [--rounds N]`
//!
//! Each program is dispatched as its case does it, at the runtime's default rings but for a heap of
//! 2 GiB, the one with most work first. "least" is the time that its matrix work would take at the peak
//! that this run measured: f32 and bf16 products at the rate of f32 multiply-adds, i8 products at the rate
//! of i8 multiply-adds, on all cores. "took" is the median dispatch, from submission to the last task;
//! "busy" is the median of the processor time of all threads over the number of cores: what "took" would
//! be if no core ever waited, be it for a dependency or for another process. Workers sleep when they have
//! nothing to do. The ratios "took" and "busy" are of least to these, so that everything else that a program
//! does (rows, memory, and waiting in the first) counts against it. On a machine that does other
//! things too, only the second says something.
//!
//! "bound" is the time that the same products can't go below on this machine: weights of which a few rows
//! use each element a few times only don't arrive from memory as fast as a core could multiply them. See
//! `bound.rs` for what it counts, which is less than all. "weights" are the bytes of right operands that
//! had to come from memory, and the last ratio is of bound to busy: near 1 beside a low ratio to the peak,
//! memory is what bounds the program.
//!
//! The work is the one that the specification counts, without the padding to 16 rows of the decode programs.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod bound;
#[path = "../measure/clock.rs"]
mod clock;
#[path = "../measure/memory.rs"]
mod memory;
#[path = "../measure/peak.rs"]
mod peak;

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use bound::{Bound, Machine, Mapped};
use clap::Parser;
use kernels::dispatch::Session;
use kernels::kernel::{Gflop, Kernel, Params};
use kernels::registry;
use kernels::simd::Path;
use kernels::tile::gemm::meter;
use ring_runtime::{RingLimits, RuntimeConfig};

/// Times whole programs against the machine's peak of multiply-adds.
#[derive(Parser)]
struct Args {
    /// Part of a program's name; all programs without it
    filter: Option<String>,
    /// Timed dispatches of a program, after one to warm up
    #[arg(long, default_value = "5")]
    rounds: NonZeroU32,
}

/// Bytes, where the system doesn't tell: more than a core has of its own, so that the bound is rather too low.
const LAST_LEVEL_CACHE: u64 = 64 << 20;

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

/// Medians over the dispatches of a program, and what none of them could beat.
struct Time {
    took: Duration,
    busy: Duration,
    bound: Bound,
}

fn main() {
    let args = Args::parse();
    let filter = args.filter.unwrap_or_default();
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let path = Path::best();
    let machine = Machine {
        cores,
        float: peak::float(path, cores.get()) * 1e9,
        int: peak::int(path, cores.get()) * 1e9,
        memory: [1, cores.get()].map(bound::memory_rate),
        cache: bound::last_level_cache().unwrap_or(LAST_LEVEL_CACHE),
    };
    println!(
        "{} on {cores} cores: peak f32 {:.1} GFLOP/s, i8 {:.1} Gop/s; memory {:.1} GB/s for one core, {:.1} for all; {} MiB of cache",
        path.name(),
        machine.float / 1e9,
        machine.int / 1e9,
        machine.memory[0] / 1e9,
        machine.memory[1] / 1e9,
        machine.cache >> 20,
    );
    println!(
        "{:<28} {:>9} {:>9} {:>10} {:>10} {:>10} {:>10} {:>8} {:>7} {:>6} {:>6} {:>6}",
        "program", "f32+bf16", "i8", "least", "bound", "took", "busy", "weights", "Gop/s", "took", "busy", "bound"
    );
    let chosen = |kernel: &&&dyn Kernel| kernel.info().name.contains(&filter) && total(kernel.info().gflop) > 0.0;
    let mut kernels: Vec<&dyn Kernel> = registry::all().iter().filter(chosen).copied().collect();
    kernels.sort_by(|a, b| total(b.info().gflop).total_cmp(&total(a.info().gflop)));
    if kernels.is_empty() {
        println!("no program with matrix work has `{filter}` in its name; `kernel list` shows them all");
    }
    for kernel in kernels {
        let info = kernel.info();
        let work = info.gflop;
        let Time { took, busy, bound } = match time(kernel, &machine, args.rounds) {
            Ok(time) => time,
            Err(reason) => {
                println!("{:<28} not measured: {reason}", info.name);
                continue;
            }
        };
        let least = machine.arithmetic((work.f32 + work.bf16) * 1e9, work.int8 * 1e9);
        println!(
            "{:<28} {:>9.3} {:>9.3} {:>7.2} ms {:>7.2} ms {:>7.2} ms {:>7.2} ms {:>5.2} GB {:>7.1} {:>6.2} {:>6.2} {:>6.2}",
            info.name,
            work.f32 + work.bf16,
            work.int8,
            least * 1e3,
            bound.seconds * 1e3,
            took.as_secs_f64() * 1e3,
            busy.as_secs_f64() * 1e3,
            bound.arrived / 1e9,
            total(work) / took.as_secs_f64(),
            least / took.as_secs_f64(),
            least / busy.as_secs_f64(),
            bound.seconds / busy.as_secs_f64()
        );
    }
}

fn total(work: Gflop) -> f64 {
    work.f32 + work.bf16 + work.int8
}

/// Processor time of all threads.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(now).expect("the clock starts at zero")
}

/// The times of a program, or why there are none.
fn time(kernel: &dyn Kernel, machine: &Machine, rounds: NonZeroU32) -> Result<Time, String> {
    let info = kernel.info();
    let given = PARAMS.iter().find(|(name, _)| *name == info.name);
    let given = given.map_or(&[][..], |(_, given)| given);
    let params = Params::resolve(info.name, info.params, given).map_err(|error| error.to_string())?;
    let instance = kernel.prepare(&params, 0).map_err(|error| error.to_string())?;
    let arguments = Mapped::now().map_err(|error| format!("failed to read what is mapped: {error}"))?;
    let limits = RingLimits::DEFAULT;
    let ring = RingLimits::new(2 << 30, limits.task_window(), limits.dep_pool()).expect("2 GiB is a heap");
    let config = RuntimeConfig::new([ring; 4], machine.cores.max(info.min_cores())).with_fixed_processors(0);
    let mut session = Session::new(instance, &config).map_err(|error| error.to_string())?;
    let (mut took, mut busy) = (Vec::new(), Vec::new());
    for round in 0..=rounds.get() {
        let begin = processor_time();
        // What a dispatch does first, outside of its time.
        session.instance().reset();
        let ready = processor_time();
        let dispatch = session.measure(Duration::ZERO);
        let end = processor_time();
        let device = dispatch
            .device()
            .ok_or_else(|| format!("a dispatch failed: {:?}", dispatch.failure()))?;
        if round > 0 {
            took.push(device);
            busy.push((end + begin).saturating_sub(ready * 2));
        }
    }
    let (dispatch, products) = meter::record(|| session.measure(Duration::ZERO));
    if let Some(failure) = dispatch.failure() {
        return Err(format!("a dispatch failed: {failure:?}"));
    }
    let cores = u32::try_from(machine.cores.get()).unwrap_or(u32::MAX);
    Ok(Time {
        took: median(took),
        busy: median(busy) / cores,
        bound: machine.bound(&products, &arguments),
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
