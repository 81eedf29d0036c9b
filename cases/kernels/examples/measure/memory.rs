//! Memory that arrives and is not worked on.

use ring_runtime::Element;

/// Loads every cache line of a row, with no arithmetic to speak of.
pub(crate) fn touch<T: Element>(row: &[T]) {
    let per_line = row.iter().step_by(64 / size_of::<T>());
    std::hint::black_box(per_line.filter(|&&x| x != T::default()).count());
}
