//! Speed of the tile products at the shapes of the programs, against the machine's peak.
//!
//! `cargo run --release -p kernels --example gemm_peak [FILTER [PATH]]`
//!
//! FILTER is a part of a product's name, PATH one of `avx512`, `avx2` and `portable`; without them all
//! products are measured on all paths of this machine.
//!
//! The peak is that of a loop of independent multiply-adds in registers, measured in the same run,
//! for each instruction path. Rates are 10⁹ operations per second, a multiply and an add counting as
//! two. There are two ratios, each for one core and for all:
//!
//! - "peak": to the peak of the same path and kind.
//! - "bound": to the lower of that peak and the rate at which B alone arrives from cache or memory, read
//!   once in the order of memory by a loop that does nothing else, before and after the product. A product
//!   of a few rows uses an element of B a few times only, and no kernel can be faster than B arrives.
//!   A ratio near 1 here beside a low one to the peak says that memory is what bounds the product.
//!
//! Times are the processor time of a thread (of the slowest, when there are several), so that other load
//! on the machine does not count, though its traffic in the shared cache and memory does. Products take
//! the median of the repetitions, peaks and bounds the fastest one.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

#[path = "../measure/clock.rs"]
mod clock;
#[path = "../measure/memory.rs"]
mod memory;
#[path = "../measure/peak.rs"]
mod peak;
mod shapes;

use kernels::simd::Path;

use shapes::{Kind, Rate};

fn main() {
    let mut args = std::env::args().skip(1);
    let filter = args.next().unwrap_or_default();
    let only = args.next();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let paths = Path::ALL.into_iter().filter(|path| path.is_supported());
    for path in paths.filter(|path| only.as_ref().is_none_or(|only| only == path.name())) {
        let float = [1, cores].map(|threads| peak::float(path, threads));
        let int = [1, cores].map(|threads| peak::int(path, threads));
        println!(
            "\n{}: peak f32 {:.1} GFLOP/s on one core, {:.1} on {cores}; i8 {:.1} Gop/s on one core, {:.1} on {cores}",
            path.name(),
            float[0],
            float[1],
            int[0],
            int[1]
        );
        println!(
            "{:<20} {:>5} {:>5} {:>5} {:>5} {:>6} {:>9} {:>6} {:>6} {:>9} {:>6} {:>6}",
            "product", "kind", "M", "N", "K", "B", "1 core", "peak", "bound", "all", "peak", "bound"
        );
        for shape in shapes::ALL.iter().filter(|shape| shape.name.contains(&filter)) {
            print!(
                "{:<20} {:>5} {:>5} {:>5} {:>5} {:>6}",
                shape.name,
                shape.kind.name(),
                shape.m,
                shape.n,
                shape.k,
                shape.layout.name()
            );
            let peaks = if shape.kind == Kind::I8 { int } else { float };
            for (threads, peak) in [1, cores].into_iter().zip(peaks) {
                let Rate { reached, memory } = shape.rate(path, threads);
                print!(
                    " {reached:>9.1} {:>6.2} {:>6.2}",
                    reached / peak,
                    reached / peak.min(memory)
                );
            }
            println!();
        }
    }
}
