//! Rates at which memory arrives, from loops that do nothing else.

use ring_runtime::{DType, Element, Tensor, Tile};

use crate::clock::times;

/// Loads every cache line of a row, with no arithmetic to speak of.
pub(crate) fn touch<T: Element>(row: &[T]) {
    let per_line = row.iter().step_by(64 / size_of::<T>());
    std::hint::black_box(per_line.filter(|&&x| x != T::default()).count());
}

/// Bytes per second of all threads together, each reading an area of its own that is too large for any cache.
#[allow(
    dead_code,
    reason = "one of the benchmarks that share this file asks for the memory of each product instead"
)]
pub(crate) fn rate(threads: usize) -> f64 {
    const AREA: usize = 128 << 20;
    // In memory of the kind that the programs' weights are in: the pages matter.
    let areas: Vec<Tensor> = (0..threads).map(|_| Tensor::zeros(DType::I8, &[AREA])).collect();
    areas.iter().for_each(|area| area.write::<i8>().fill(1));
    let guards: Vec<_> = areas.iter().map(Tensor::read::<i8>).collect();
    let time = times(threads, |thread| {
        let area = Tile::new(&guards[thread], 1, AREA);
        move || touch(area.row(0))
    })[0];
    (threads * AREA) as f64 / time.as_secs_f64()
}
