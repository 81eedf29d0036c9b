//! Speed of the tile products at the shapes of the programs, against the machine's peak.
//!
//! `cargo run --release -p kernels --example gemm_peak [FILTER]`
//!
//! The peak is that of a loop of independent multiply-adds in registers, measured in the same run,
//! for each instruction path. Rates are 10⁹ operations per second, a multiply and an add counting as
//! two; "ratio" is to the peak of the same path and kind on as many cores. Times are the processor time
//! of a thread (of the slowest, when there are several), so that other load on the machine does not
//! count; the median of the repetitions is taken.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod clock;
mod peak;
mod shapes;

use kernels::tile::gemm::Path;

use shapes::Kind;

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for path in Path::ALL.into_iter().filter(|path| path.is_supported()) {
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
            "{:<28} {:>5} {:>6} {:>6} {:>5} {:>7} {:>9} {:>6} {:>9} {:>6}",
            "product", "kind", "M", "N", "K", "B", "1 core", "ratio", "all", "ratio"
        );
        for shape in shapes::ALL.iter().filter(|shape| shape.name.contains(&filter)) {
            let peaks = if shape.kind == Kind::I8 { int } else { float };
            let rates = [1, cores].map(|threads| shape.rate(path, threads));
            println!(
                "{:<28} {:>5} {:>6} {:>6} {:>5} {:>7} {:>9.1} {:>6.2} {:>9.1} {:>6.2}",
                shape.name,
                shape.kind.name(),
                shape.m,
                shape.n,
                shape.k,
                shape.layout.name(),
                rates[0],
                rates[0] / peaks[0],
                rates[1],
                rates[1] / peaks[1]
            );
        }
    }
}
